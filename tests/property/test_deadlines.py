"""Any order of commits, signs of life and silences: a phase closes at the second that the rule says, without whom it says.

The judge knows nothing of drops, returns and reasons. It says: a phase closes as soon as everybody is done; or else once the
deadline is over, there is a quorum of those who are done, and everybody else is absent: without lease, or without progress
for `silence_s`; or once the hard deadline is over and those who are done form the quorum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fedplcc.aggregator.presence.deadlines import Deadlines
from fedplcc.aggregator.presence.sessions import Sessions
from fedplcc.aggregator.rounds.machine import absences, round_parts, round_waits
from fedplcc.aggregator.rounds.quorum import Quorum
from fedplcc.shared.reasons import sentence_of
from fedplcc.shared.types import ClientActivity, Heartbeat, RoundPhase, RunSpec, Task, TaskKind
from tests.support.federation.in_process import Clock
from tests.support.records.builders import a_blob, a_client, a_round, a_run, an_evaluation, an_update

LEASE_S, SILENCE_S, DEADLINE_S, HARD_DEADLINE_S, END_S = 3.0, 6.0, 15.0, 30.0, 60
NAMES = ("ann", "bob", "cat", "zoe")


@dataclass(frozen=True)
class Script:
    """What a client does, by the second; it lives, and says the same as before, in every second that is not in `away`."""

    progress: frozenset[int]
    away: range
    done_at: int | None


def seconds(least: int = 0) -> st.SearchStrategy[int]:
    return st.integers(least, END_S)


SCRIPTS = st.builds(
    Script,
    progress=st.frozensets(seconds(), max_size=10),
    away=st.tuples(seconds(), seconds()).map(lambda ends: range(min(ends), max(ends))),
    done_at=st.none() | seconds(),
)


class Scene:
    """One phase of one run, moved on second by second."""

    def __init__(
        self, phase: RoundPhase, scripts: dict[str, Script], quorum: Quorum, hard_deadline_s: float | None = None
    ) -> None:
        self.scripts, self.quorum, self.hard_deadline_s = scripts, quorum, hard_deadline_s
        self.clock = Clock()
        self.sessions = Sessions(LEASE_S, self.clock)
        self.deadlines = Deadlines(self.sessions, wall_clock=self.clock, monotonic_clock=self.clock)
        self.began = self.clock.now
        names = tuple(scripts)
        current = a_round(1, phase, cohort=names, phase_started_at={phase.value: self.began})
        if phase is RoundPhase.EVALUATING:
            blobs = {"model": a_blob("m"), "prototypes": a_blob("p")}
            current = a_round(1, phase, cohort=names, phase_started_at={phase.value: self.began}, **blobs)
            current = replace(current, updates={name: an_update(name) for name in names})
        self.run = a_run(roster=names, current_round=current)
        kind = TaskKind.EVALUATE if phase is RoundPhase.EVALUATING else TaskKind.TRAIN
        self.task = Task(kind=kind, run=RunSpec(run_id="test-0000", config_json="{}", config_hash=""), round=1)
        self.fractions = dict.fromkeys(names, 0.0)
        # What the judge knows.
        self.done: set[str] = set()
        self.alive = dict.fromkeys(names, self.began)
        self.moved = dict.fromkeys(names, self.began)

    def second(self, second: int) -> None:
        """Signs of life in this second, which a tick sees; then what is done in it, and a tick.

        Who was dropped is back with the tick that sees it: an update that comes before that tick may close the phase.
        """
        there = [name for name, script in self.scripts.items() if second not in script.away or second == 0]
        for name in there:
            self.live(name, moves=second in self.scripts[name].progress)
        self.tick()
        for name in there:
            if self.scripts[name].done_at == second:
                self.finish(name)
        self.tick()

    def tick(self) -> None:
        """Look at who is there, and close the phase if that is the rule."""
        self.deadlines.observe([self.run])
        self.sessions.end_expired()
        there = self.deadlines.presence(
            self.run, deadline_s=DEADLINE_S, silence_s=SILENCE_S, hard_deadline_s=self.hard_deadline_s
        )
        run = absences.drop_absent(
            self.run, absent=there.absent, slow=there.slow, moving=there.moving, quorum=self.quorum, now=self.clock.now
        )
        self.run = round_parts.close_updates(run, now=self.clock.now, quorum=self.quorum)

    def live(self, name: str, *, moves: bool) -> None:
        session = self.sessions.join(a_client(name), "token")
        self.sessions.record_task(session, self.task)
        self.alive[name] = self.clock.now
        if moves:
            self.fractions[name] += 0.01
            self.moved[name] = self.clock.now
        fraction = self.fractions[name]
        self.sessions.record_heartbeat(
            session, Heartbeat(client_id=name, activity=ClientActivity.TRAINING, progress=fraction)
        )

    def finish(self, name: str) -> None:
        if name not in self.done and not self.is_closed:
            self.done.add(name)
            if self.task.kind is TaskKind.TRAIN:
                self.run = round_parts.add_update(self.run, 1, an_update(name), now=self.clock.now, quorum=self.quorum)
            else:
                self.run = round_parts.add_evaluation(self.run, 1, an_evaluation(name))

    @property
    def is_closed(self) -> bool:
        assert self.run.current_round is not None
        return self.run.current_round.phase is RoundPhase.AGGREGATING or round_waits.is_evaluated(self.run, self.quorum)

    def absent(self) -> set[str]:
        """Clients that need not be waited for now, as the judge sees it."""
        now = self.clock.now
        if now - self.began < DEADLINE_S:
            return set()
        return {
            name for name in self.scripts if now - self.alive[name] > LEASE_S or now - self.moved[name] >= SILENCE_S
        }

    def should_close(self) -> bool:
        others = set(self.scripts) - self.done
        is_over = self.hard_deadline_s is not None and self.clock.now - self.began >= self.hard_deadline_s
        may_close = is_over or others <= self.absent()
        return not others or (may_close and not self.quorum.lack(tuple(self.scripts), self.done))


@settings(max_examples=80)
@given(
    phase=st.sampled_from([RoundPhase.COLLECTING, RoundPhase.EVALUATING]),
    scripts=st.lists(SCRIPTS, min_size=1, max_size=4),
    min_clients=st.integers(1, 4),
    by_domain=st.booleans(),
    hard_deadline_s=st.sampled_from([None, HARD_DEADLINE_S]),
)
def test_a_phase_closes_at_the_second_that_the_rule_says_and_drops_who_is_missing_then(
    phase: RoundPhase, scripts: list[Script], min_clients: int, by_domain: bool, hard_deadline_s: float | None
) -> None:
    clients = dict(zip(NAMES, scripts, strict=False))
    domains = {name: "north" if name < "c" else "south" for name in clients} if by_domain else None
    quorum = Quorum(min_clients=min(min_clients, len(clients)), domains=domains)
    scene = Scene(phase, clients, quorum, hard_deadline_s)
    for second in range(END_S + 1):
        scene.second(second)
        assert scene.is_closed == scene.should_close(), second
        current = scene.run.current_round
        assert current is not None
        missing = set(clients) - scene.done
        if scene.is_closed:
            assert set(current.dropped) == missing
            assert sentence_of(scene.run.reason) == ""
            return
        assert set(current.dropped) <= missing & scene.absent()
        present = set(clients) - (missing & scene.absent())
        assert (scene.run.reason is None) == (scene.quorum.lack(tuple(clients), present) is None), scene.run.reason
        scene.clock.now += 1.0


@settings(max_examples=30)
@given(scripts=st.lists(SCRIPTS, min_size=1, max_size=4))
def test_without_a_deadline_a_phase_closes_with_its_whole_cohort_and_no_sooner(scripts: list[Script]) -> None:
    clients = dict(zip(NAMES, scripts, strict=False))
    scene = Scene(RoundPhase.COLLECTING, clients, Quorum())
    for second in range(END_S + 1):
        for name, script in clients.items():
            if script.done_at == second:
                scene.live(name, moves=False)
                scene.finish(name)
        scene.deadlines.observe([scene.run])
        there = scene.deadlines.presence(scene.run, deadline_s=None, silence_s=SILENCE_S)
        after = absences.drop_absent(scene.run, absent=there.absent, moving=there.moving, now=scene.clock.now)
        assert after is scene.run
        assert scene.is_closed == (scene.done == set(clients))
        scene.clock.now += 1.0
