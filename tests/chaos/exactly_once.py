"""Every update counts exactly once, or is refused by name: sent again, late, altered, or in the middle of a crash.

A hypothesis state machine over a real coordinator on a real store. Up to three runs share three clients; updates and reports
are handed in once more at any later time, altered, for another round or by a trainer that was taken over; leases run out;
people pause, resume and stop under keys of their own and retry; and the aggregator is killed between any two steps, or at
any failpoint within one. After each step `tests.chaos.round_oracle` says what the answer, the runs, the history and the
counters must be; at the end a mean computed directly says what the models must be.

`python -m tests.chaos.exactly_once EXAMPLES` plays as many games and prints what came of them.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.shared.types import TaskKind
from tests.chaos.judged_federation import KEYS, NAMES, Fickle, JudgedFederation, altered, figures
from tests.chaos.round_oracle import ACCEPTED, DONE, Oracle
from tests.support.federation.in_process import LocalFederation

names = st.sampled_from(NAMES)
moments = st.sampled_from([0] * 12 + [1, 2, 3, 4, 5, 6, 8, 10])
"""The failpoint within a call at which the aggregator is killed; 0 lets it live."""
picks = st.integers(0, 1_000)
quorums = st.sampled_from([None, None, 1, 2])


class ExactlyOnce(JudgedFederation, RuleBasedStateMachine):
    """What may happen to a judged federation, in any order."""

    @initialize(
        method=st.sampled_from(["fedavg", "fedplcc"]),
        num_rounds=st.integers(1, 2),
        size=st.sampled_from([None, 2]),
        quorum=quorums,
    )
    def begin(self, method: str, num_rounds: int, size: int | None, quorum: int | None) -> None:
        clients = [
            Fickle("ann", size=3),
            Fickle("bob", size=3, counts=(2, 0, 7)),
            Fickle("zoe", size=3, counts=(1, 1, 1)),
        ]
        limits = Limits()
        self.federation = LocalFederation(Path(self._folder.name), clients, limits)
        self.oracle = Oracle(limits.lease_s, self.federation.clock.now)
        self.tokens = {client.client_id: [client.token, f"{client.token}-of-another"] for client in clients}
        self._has_begun = True
        for name in NAMES:
            self._join(name, 0)
        self._create(method, NAMES, num_rounds, size, quorum)
        figures["games"] += 1

    # What clients do

    @rule(name=names, variant=st.integers(0, 2), errs=st.booleans(), dies_at=moments, is_inline=st.booleans())
    def work(self, name: str, variant: int, errs: bool, dies_at: int, is_inline: bool = False) -> None:
        """A client does its task."""
        self._do(name, variant, dies_at, errs=errs, is_inline=is_inline)

    @rule(variant=st.integers(0, 1), absent=st.sets(names, max_size=1), dies_at=moments, is_inline=st.booleans())
    def all_work(self, variant: int, absent: set[str], dies_at: int, is_inline: bool = False) -> None:
        """Every client does its task, or all but one, then the aggregator its work."""
        for name in NAMES:
            if name not in absent:
                self._do(name, variant, is_inline=is_inline)
        self._aggregate(dies_at)

    @rule(name=names, variant=st.integers(0, 2), sends=st.booleans(), dies_at=moments)
    def prepare(self, name: str, variant: int, sends: bool, dies_at: int) -> None:
        """A client computes its task and perhaps uploads it, and hands nothing in yet."""
        work = self._prepare(name, variant)
        if work is not None and work.blobs is not None and sends:
            self._send(work, dies_at)

    @rule(name=names, pauses=st.booleans(), is_late=st.booleans())
    def straggle(self, name: str, pauses: bool, is_late: bool) -> None:
        """A client computes its task and is silent until its lease has run out; then it comes back and hands it in."""
        work = self._prepare(name, 0)
        if work is None or (work.blobs is not None and self._send(work) != DONE):
            return
        if pauses:
            self._steer("pause", work.run_id)
        for other in NAMES:
            if other != name:
                self._do(other)
        self._be_silent(12.0, {name})
        if is_late:
            self._aggregate()
        if self._join(name, 0) == DONE:
            self._hand_in(work)

    @precondition(lambda self: self.works)
    @rule(pick=picks, way=st.sampled_from(["bare", "uploaded", "inline"]), dies_at=moments)
    def hand_in_again(self, pick: int, way: str, dies_at: int) -> None:
        """Anything that was ever computed is handed in, for the first time or not, in time or not."""
        work = self.works[-1 - pick % len(self.works)]
        if way != "uploaded" or work.blobs is None or self._send(work) == DONE:
            self._hand_in(work, dies_at, is_inline=way == "inline" and work.blobs is not None)

    @precondition(lambda self: self.works)
    @rule(pick=picks, change=st.sampled_from(["slower", "losses", "counts"]))
    def hand_inaltered(self, pick: int, change: str) -> None:
        """What was computed is handed in with other seconds, other losses or a wrong count."""
        work = self.works[-1 - pick % len(self.works)]
        if work.update is None:
            return
        other = altered(work, change)
        if self._hand_in(other) == ACCEPTED:
            self.works.append(other)

    @precondition(lambda self: self.works)
    @rule(pick=picks, number=st.integers(-1, 3))
    def hand_in_for_another_round(self, pick: int, number: int) -> None:
        """What was computed for one round is handed in for another."""
        work = self.works[-1 - pick % len(self.works)]
        if work.report is not None or (work.task.kind is TaskKind.INIT) == (number == 0):
            self._hand_in(work, number=number)

    @precondition(lambda self: self.works)
    @rule(pick=picks, name=names)
    def hand_in_as_somebody_else(self, pick: int, name: str) -> None:
        """A client hands in what another one computed, as its own."""
        work = self.works[-1 - pick % len(self.works)]
        if work.report is not None:
            self._hand_in(replace(work, client_id=name, report=replace(work.report, client_id=name)))
        elif name != work.client_id and work.update is not None:
            self._hand_in(replace(work, client_id=name, update=replace(work.update, client_id=name)))

    @precondition(lambda self: self.works)
    @rule(pick=picks)
    def hand_in_as_the_trainer_before(self, pick: int) -> None:
        """A trainer that another one took over from, or that never joined, hands in what it computed."""
        work = self.works[-1 - pick % len(self.works)]
        client = self.federation.clients[work.client_id]
        (other,) = set(self.tokens[work.client_id]) - {client.token}
        self._hand_in(work, token=other)

    @rule(name=names, which=st.integers(0, 1))
    def join(self, name: str, which: int) -> None:
        """A trainer joins: for the first time, again, or in place of another."""
        self._join(name, which)

    @rule(name=names, is_busy=st.booleans(), pick=picks)
    def beat(self, name: str, is_busy: bool, pick: int) -> None:
        """A trainer says that it is idle, or that it works for some run."""
        runs = list(self.oracle.runs)
        self._beat(name, runs[pick % len(runs)] if is_busy else "")

    # What people do

    @precondition(lambda self: len(self.oracle.runs) < 3)
    @rule(
        method=st.sampled_from(["fedavg", "fedplcc"]),
        roster=st.sampled_from([NAMES, ("bob", "zoe"), ("ann", "zoe")]),
        quorum=quorums,
    )
    def create(self, method: str, roster: tuple[str, ...], quorum: int | None) -> None:
        """Another run begins, of some of the same clients."""
        self._create(method, roster, 1, None, quorum)

    @rule(
        action=st.sampled_from(["pause", "pause", "resume", "resume", "resume", "stop"]),
        pick=picks,
        now=st.booleans(),
        key=st.sampled_from(["", "", *KEYS]),
        dies_at=moments,
    )
    def steer(self, action: str, pick: int, now: bool, key: str, dies_at: int) -> None:
        """Somebody pauses, resumes or stops a run, for the first time or as a retry."""
        runs = list(self.oracle.runs)
        self._steer(action, runs[pick % len(runs)], now=now and action == "pause", key=key, dies_at=dies_at)

    # What the aggregator does, and what is done to it

    @rule(dies_at=moments)
    def aggregate(self, dies_at: int) -> None:
        self._aggregate(dies_at)

    @rule(absent=st.sets(names, max_size=2))
    def restart(self, absent: set[str]) -> None:
        """The aggregator is killed between two calls, and some of its trainers notice at once."""
        figures["killed between calls"] += 1
        self._start_again([self.oracle])
        for name in sorted(set(NAMES) - absent):
            self._join(name, self.tokens[name].index(self.federation.clients[name].token))

    @rule(seconds=st.sampled_from([1.0, 6.0, 12.0]), silent=st.sets(names, max_size=2))
    def let_time_pass(self, seconds: float, silent: set[str]) -> None:
        """Time passes; the leases of those who are silent for more than 10 s run out."""
        self._be_silent(seconds, silent)

    # What always holds, and how it ends

    @invariant()
    def the_judge_agrees(self) -> None:
        if self._has_begun:
            self._agree()

    def teardown(self) -> None:
        """Left alone, every run that nobody stopped comes to its end, with the model of the updates that counted."""
        try:
            if self._has_begun:
                self._play_out()
                for run in self.oracle.runs.values():
                    self._check_results(run)
        finally:
            if self._has_begun:
                self.federation.close()
            self._folder.cleanup()


@contextmanager
def _quiet() -> Iterator[None]:
    """Say nothing of lost clients: there are thousands."""
    logger = logging.getLogger("fedplcc.aggregator")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _played_out(game: ExactlyOnce) -> Iterator[None]:
    try:
        yield
    finally:
        game.teardown()


def play_straggler() -> Counter[str]:
    """Play one game by a script, of a client that is too late for a round with a quorum, and too early for the next."""
    figures.clear()
    game = ExactlyOnce()
    with _quiet(), _played_out(game):
        game.begin(method="fedplcc", num_rounds=3, size=None, quorum=2)
        (run_id,) = game.oracle.runs
        game.work(name="ann", variant=0, errs=False, dies_at=0)  # the first model
        game.the_judge_agrees()
        game.straggle(name="zoe", pauses=False, is_late=False)  # an update, when the others' are being aggregated
        game.the_judge_agrees()
        game.aggregate(dies_at=0)
        report = game._prepare("ann", 0)
        for name in NAMES:
            game.work(name=name, variant=0, errs=False, dies_at=0)
        assert report is not None
        game._hand_in(report, number=2)  # a report, when round 2 has no model yet
        game.all_work(variant=0, absent=set(), dies_at=0)
        game.the_judge_agrees()
        game.straggle(
            name="bob", pauses=True, is_late=True
        )  # a report, when its round has committed and the run is paused
        game.the_judge_agrees()
        assert game.oracle.runs[run_id].dropped == {"bob"}
    return Counter(figures)


def play(games: int, *, steps: int, is_random: bool) -> Counter[str]:
    """Play games, other ones each time if they are random; returns what came of them.

    Raises:
        AssertionError: The aggregator and its judge disagree; hypothesis prints the shortest game in which they do.
    """
    figures.clear()
    with _quiet():
        run_state_machine_as_test(
            ExactlyOnce,
            settings=settings(
                max_examples=games,
                stateful_step_count=steps,
                deadline=None,
                derandomize=not is_random,
                database=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
    return Counter(figures)


def table(found: Counter[str]) -> str:
    """The figures in lines for people."""
    return "\n".join(
        f"{count:>9,}  {what}" for what, count in sorted(found.items(), key=lambda item: (-item[1], item[0]))
    )


def main(arguments: Sequence[str]) -> int:
    """Play as many games as the first argument says."""
    games = int(arguments[0]) if arguments else 200
    began = time.monotonic()
    print(table(play(games, steps=60, is_random=True) + play_straggler()))
    print(f"{time.monotonic() - began:>8.0f}s  in all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
