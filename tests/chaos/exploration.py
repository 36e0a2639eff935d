"""Every state that a small federation can reach, walked through breadth-first on the steps of rounds.py and settling.py.

At every state all that may happen is tried: a client comes, leaves, commits, reports; the aggregator finishes or fails a
round, looks for absent clients, is killed and reads its state back from a real store; somebody pauses, resumes, stops,
quarantines or releases, and lets a completed run go on to one more round, once. States that differ in nothing but times are
one. Then it is checked that

- nothing impossible is a state or a step: see `problems_of_state` and `problems_of_step`;
- no state is a trap: without `stop` every run that has not ended can still complete or fail, with the help of people; and
  without people too, unless it is paused or its reason says for whom it waits; and every run can be stopped;
- a run that goes on always shows for whom or what it waits.

`python -m tests.chaos.exploration` walks through all of `FEDERATIONS` and prints what it found; it fails on any violation.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedplcc.aggregator.rounds.machine import absences, members, round_parts, round_waits, run_facts, run_moves
from fedplcc.aggregator.rounds.machine.run_moves import RunEvent
from fedplcc.aggregator.rounds.quorum import Quorum
from fedplcc.aggregator.rounds.settling import Surroundings, is_looked_at, settled
from fedplcc.aggregator.rounds.tasks import task_in
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.errors import FedplccError, InvalidTransition, RoundClosed
from fedplcc.shared.reasons import Dropped, DropReason, Reason, Stated, WaitsForClients, sentence_of
from fedplcc.shared.types import PrototypeCounts, Round, RoundPhase, Run, RunStatus
from tests.chaos.small_federations import FEDERATIONS, Small
from tests.support.hosts.memory_folder import memory_folder
from tests.support.records.builders import a_blob, a_run, an_evaluation, an_update

LONGEST_SETTLING = 20
"""Steps after which a run that settles by itself counts as one that never does."""
PHASES = list(RoundPhase)
OPERATOR = frozenset({"pause", "pause now", "resume", "release", "owner approves"})
"""What people do to help; quarantining, ending a part, stopping and extending is no help."""


@dataclass(frozen=True)
class World:
    """A run, and the clients that are there and get on."""

    run: Run
    here: frozenset[str]


@dataclass
class Found:
    """Result of a walk."""

    name: str
    num_states: int = 0
    num_steps: int = 0
    num_written: int = 0
    """States that were written to a store and read back."""
    waiting: Counter[str] = field(default_factory=Counter)
    """States in which a run waits for somebody, by what its status and its reason say."""
    ends: Counter[str] = field(default_factory=Counter)
    moves: set[tuple[RunStatus, RunStatus]] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The figures in a line for people."""
        return (
            f"{self.name}: {self.num_states:,} states, {self.num_steps:,} steps, {self.num_written:,} written and read, "
            f"{sum(self.waiting.values()):,} waiting, {sum(self.ends.values()):,} ended, {len(self.violations)} violations"
        )


class Explorer:
    """Walks through a small federation."""

    def __init__(self, small: Small) -> None:
        self._small = small
        self.found = Found(small.name)
        self._worlds: dict[Any, World] = {}
        self._edges: dict[Any, list[tuple[str, Any]]] = {}

    def walk(self, *, most: int = 2_000_000) -> Found:
        """Visit every state, check it and every step, then look for traps. More states than `most` are a violation too."""
        rule = self._small.rule
        first = a_run(
            RunStatus.PENDING,
            roster=rule.clients or (),
            total_rounds=self._small.num_rounds,
            model=None,
            reason=WaitsForClients(),
        )
        start = World(first, frozenset())
        queue = deque([self._visit(start)])
        while queue and len(self._worlds) <= most:
            key = queue.popleft()
            self._edges[key] = []
            for name, after in self._steps(self._worlds[key]):
                self.found.num_steps += 1
                is_new = _key(after) not in self._worlds
                self._edges[key].append((name, self._visit(after)))
                if is_new:
                    queue.append(_key(after))
        if queue:
            self.found.violations.append(f"more than {most} states")
            return self.found
        self._write_and_read()
        self._look_for_traps()
        self.found.num_states = len(self._worlds)
        return self.found

    def _visit(self, world: World) -> Any:
        key = _key(world)
        if key not in self._worlds:
            self._worlds[key] = world
            problems = problems_of_state(world.run, self._small.clients)
            if not self._shows_what_it_waits_for(world):
                problems.append("it waits for nobody and nothing")
            if not self._waits_if_it_says_so(world):
                problems.append("it says that it waits, and does not")
            self.found.violations += [f"{problem}: {_said(world)}" for problem in problems]
            if world.run.status.is_final:
                self.found.ends[world.run.status.value] += 1
            elif waits_for_people(world.run):
                self.found.waiting[f"{world.run.status}: {_kind_of(world.run.reason)}"] += 1
        return key

    def _shows_what_it_waits_for(self, world: World) -> bool:
        run, current = world.run, world.run.current_round
        if run.status is not RunStatus.RUNNING or round_waits.waited_for(run) or run.reason:
            return True
        is_at_work = current is not None and current.phase is RoundPhase.AGGREGATING
        return is_at_work or self._look(run, world.here, is_overdue=False, fails=False) != run

    def _waits_if_it_says_so(self, world: World) -> bool:
        run = world.run
        if (
            not run_facts.waits_for_quorum(run)
            or not run_facts.has_open_round(run)
            or is_looked_at(run, has_deadline=self._small.has_deadline)
        ):
            return True
        return self._look(run, world.here, is_overdue=False, fails=False).reason == run.reason

    # What may happen

    def _steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Everything that may happen in a state, and the state after it; what is refused or changes nothing is left out."""
        run = world.run
        for name, after_here, change in self._changes(world):
            try:
                after = self._settled(run, change(run), after_here)
            except RoundClosed:
                continue
            except InvalidTransition as error:
                if name in ("pause", "pause now", "resume") and run.status not in (RunStatus.RUNNING, RunStatus.PAUSED):
                    continue
                self.found.violations.append(f"{name} is refused ({error.detail}): {_said(world)}")
                continue
            except FedplccError:
                continue
            next_world = World(after, after_here)
            if _key(next_world) == _key(world):
                continue
            if run.status.is_final and name != "extend" and after != run:
                self.found.violations.append(f"{name} changes a run that has ended: {_said(world)}")
            problems = problems_of_step(run, after, name, self._small.quorum)
            self.found.violations += [
                f"{problem}, by {name}: {_said(world)} -> {_said(next_world)}" for problem in problems
            ]
            yield name, next_world

    def _changes(self, world: World) -> Iterator[tuple[str, frozenset[str], Callable[[Run], Run]]]:
        run, here, small = world.run, world.here, self._small
        for client in small.clients:
            if client not in here:
                yield "come", here | {client}, lambda run: run
            else:
                yield "leave", here - {client}, lambda run: run
                yield "update", here, lambda run, client=client: self._update(run, client)  # type: ignore[misc]
                yield (
                    "report",
                    here,
                    lambda run, client=client: round_parts.add_evaluation(  # type: ignore[misc]
                        run, run.round_number, an_evaluation(client)
                    ),
                )
            if small.may_quarantine:
                yield "quarantine", here, lambda run, client=client: members.quarantine(run, client, "spoils rounds")  # type: ignore[misc]
                yield "release", here, lambda run, client=client: members.release(run, client)  # type: ignore[misc]
            if small.has_owners and not run.status.is_final and run.status is not RunStatus.STOPPING:
                yield "owner ends", here, lambda run, client=client: members.retire(run, client, by_owner=True)  # type: ignore[misc]
                yield "owner approves", here, lambda run, client=client: members.come_back(run, client)  # type: ignore[misc]
        yield "killed", frozenset(), lambda run: run
        if is_looked_at(run, has_deadline=self._small.has_deadline):
            yield "look", here, lambda run: self._look(run, here, is_overdue=False, fails=small.fails)
        if small.has_deadline:
            yield "look", here, lambda run: self._look(run, here, is_overdue=True, fails=small.fails)
        current = run.current_round
        if current is not None and current.phase is RoundPhase.AGGREGATING and run.status in _AGGREGATED_IN:
            yield "aggregate", here, _aggregate
            yield (
                "aggregation fails",
                here,
                lambda run: run_moves.move(run, RunEvent.FAIL, reason=Stated("a stored update is gone")),
            )
        if run.status is RunStatus.STOPPING:
            yield "idle", here, lambda run: run_moves.move(run, RunEvent.ALL_IDLE, reason=run.reason)
        yield "pause", here, lambda run: run_moves.pause(run, now=False)
        yield "pause now", here, lambda run: run_moves.pause(run, now=True)
        yield "resume", here, run_moves.resume
        yield "stop", here, lambda run: run_moves.stop(run, reason="enough")
        if run.status is RunStatus.COMPLETED and run.total_rounds == small.num_rounds:
            yield "extend", here, _extend

    def _update(self, run: Run, client: str) -> Run:
        update = an_update(client, content=f"round {run.round_number}")
        return round_parts.add_update(run, run.round_number, update, now=0.0, quorum=self._small.quorum)

    def _look(self, run: Run, here: Collection[str], *, is_overdue: bool, fails: bool) -> Run:
        """What a tick does with an open phase; where it is overdue, whoever is not here is absent."""
        missing = set(self._small.clients) - set(here) if is_overdue else set()
        absent = dict.fromkeys(sorted(missing), Dropped(DropReason.LOST, "not connected"))
        return absences.drop_absent(
            run, absent=absent, moving=sorted(here), quorum=self._small.quorum, fails=fails, now=0.0
        )

    def _settled(self, before: Run, run: Run, here: Collection[str]) -> Run:
        """Let what happens by itself happen, as the ledger does after every change."""
        small = self._small
        around = Surroundings(
            rule=small.rule,
            connected=sorted(here),
            quorum=lambda _run: small.quorum,
            fails=small.fails,
            evaluates=True,
            commit=lambda run: round_parts.commit_round(run, results_json="{}", timings_json="{}", now=0.0),
        )
        states = [before, run]
        while (state := settled(states[-1], around, now=0.0)) is not states[-1]:
            states.append(state)
            if len(states) > LONGEST_SETTLING:
                self.found.violations.append(f"it never settles: {_said(World(run, frozenset(here)))}")
                break
        for old, new in itertools.pairwise(states):
            if old.status is not new.status:
                self.found.moves.add((old.status, new.status))
                if not any(was is old.status and to is new.status for (was, _), to in _RUN_TABLE.items()):
                    self.found.violations.append(f"no move leads from {old.status} to {new.status}")
        return states[-1]

    # What is checked at the end

    def _write_and_read(self) -> None:
        """Write every run as the ledger does, and read it back as the next start of an aggregator does."""
        runs = {_run_key(world.run): world.run for world in self._worlds.values()}
        with memory_folder() as folder:
            store = SqlStore.in_folder(Path(folder))
            written = [replace(run, run_id=f"run-{number}") for number, run in enumerate(runs.values())]
            with store.transaction() as transaction:
                for run in written:
                    begun = replace(run, total_rounds=self._small.num_rounds)  # an extension is written by save_run
                    transaction.add_run(begun, request_id=run.run_id, request_hash="0")
                    transaction.save_run(run)
                    if run.current_round is not None:
                        for update in run.current_round.updates.values():
                            transaction.add_update(run.run_id, run.round_number, update)
                        for evaluation in run.current_round.evaluations.values():
                            transaction.add_evaluation(run.run_id, run.round_number, evaluation)
            for run in written:
                if store.find_run(run.run_id) != run:
                    self.found.violations.append(f"it is read back as something else: {_said(World(run, frozenset()))}")
            store.close()
        self.found.num_written = len(written)

    def _look_for_traps(self) -> None:
        final = {key for key, world in self._worlds.items() if world.run.status.is_final}
        result = {key for key in final if self._worlds[key].run.status is not RunStatus.STOPPED}
        hindrances = {"stop", "aggregation fails", "quarantine", "owner ends", "extend"}
        with_people = self._leading_to(result, lambda name: name not in hindrances)
        alone = self._leading_to(result, lambda name: name not in hindrances | OPERATOR)
        asking = self._leading_to(
            [key for key, world in self._worlds.items() if waits_for_people(world.run)],
            lambda name: name not in hindrances | OPERATOR,
        )
        stopped = self._leading_to(final - result, lambda name: name in ("stop", "idle"))
        for key, world in self._worlds.items():
            run = world.run
            if run.status.is_final:
                continue
            if key not in stopped:
                self.found.violations.append(f"it cannot be stopped: {_said(world)}")
            if run.status is RunStatus.STOPPING:
                continue
            if key not in with_people:
                self.found.violations.append(f"it can never end but by stop: {_said(world)}")
            elif key not in alone and key not in asking:
                self.found.violations.append(f"it waits for people and never says so: {_said(world)}")

    def _leading_to(self, goals: Iterable[Any], takes: Callable[[str], bool]) -> set[Any]:
        """States from which some of the goals can be reached by the steps that are taken."""
        sources: dict[Any, list[Any]] = {}
        for key, edges in self._edges.items():
            for name, after in edges:
                if takes(name):
                    sources.setdefault(after, []).append(key)
        reached, queue = set(goals), deque(goals)
        while queue:
            for key in sources.get(queue.popleft(), ()):
                if key not in reached:
                    reached.add(key)
                    queue.append(key)
        return reached


_AGGREGATED_IN = (RunStatus.RUNNING, RunStatus.PAUSED)
_RUN_TABLE: Mapping[tuple[RunStatus, RunEvent], RunStatus] = dict(run_moves.RUN_TRANSITIONS)
"""As documented, whatever a test takes out of the table in use."""


def _aggregate(run: Run) -> Run:
    number = run.round_number
    return round_parts.aggregated(
        run,
        number,
        model=a_blob(f"model {number}"),
        prototypes=a_blob(f"prototypes {number}", "global_cluster"),
        prototype_counts=PrototypeCounts(by_class=(1, 1, 1)),
        now=0.0,
    )


def _extend(run: Run) -> Run:
    return run_moves.extend(
        run, rounds=run.total_rounds + 1, config_json=run.config_json, config_hash=f"{run.config_hash} longer"
    )


def waits_for_people(run: Run) -> bool:
    """Whether a run says by its status or its reason that it waits, and for whom."""
    if run.status is RunStatus.PAUSED:
        return True
    return run.status in (RunStatus.PENDING, RunStatus.RUNNING) and run.reason is not None


def problems_of_state(run: Run, clients: Collection[str]) -> list[str]:
    """In what a state is impossible."""
    problems = []

    def check(is_right: bool, problem: str) -> None:
        if not is_right:
            problems.append(problem)

    current = run.current_round
    asked = {client: task_in(run, client) for client in clients}
    if run.status is not RunStatus.RUNNING:
        check(not any(asked.values()), "somebody has a task in a run that does not run")
        check(not run.is_pause_requested, "a pause waits in a run that does not run")
    check(current is not None or run.status is not RunStatus.COMPLETED, "it completed without a round")
    if current is None:
        return problems
    cohort, owing = set(current.cohort), set(round_waits.waited_for(run))
    check(cohort <= set(run.roster), "the cohort is not of the roster")
    check(bool(cohort), "a round has no cohort")
    check(set(current.updates) <= cohort, "an update of a client that was not asked")
    check(set(current.evaluations) <= cohort, "a report of a client that was not asked")
    check(set(current.dropped) <= cohort, "a client was dropped that was not asked")
    check(all(name == update.client_id for name, update in current.updates.items()), "an update under another's name")
    check(not owing & set(run.quarantined), "it waits for a client in quarantine")
    if current.phase in (RoundPhase.INITIALISING, RoundPhase.COLLECTING):
        check(not current.evaluations, "a report came before the model")
        done = {name for name in current.updates if not run_facts.is_out(current, name)}
        check(not set(current.dropped) & done, "a client that did its part counts as dropped")
    else:
        check(bool(current.updates), "a round without an update goes on")
    if current.phase is RoundPhase.COMMITTED:
        check(current.model is not None and current.prototypes is not None, "a committed round has no result")
        check(run.model == current.model, "the run's model is not the last committed one")
    if run.status is RunStatus.COMPLETED:
        check(current.number == run.total_rounds, "it completed too early")
        check(current.phase is RoundPhase.COMMITTED, "it completed within a round")
    if run.status is RunStatus.RUNNING:
        for client, task in asked.items():
            if task is not None:
                check(client in cohort, "a task for a client that was not asked")
                check(client not in run.quarantined, "a task for a client in quarantine")
            check(client not in owing or task is not None, "it waits for a client that has no task")
    return problems


def problems_of_step(before: Run, after: Run, name: str, quorum: Quorum) -> list[str]:
    """In what a step is impossible."""
    problems = []
    was, now = before.current_round, after.current_round
    if _measure(after) < _measure(before) and name != "look":
        problems.append("it goes backwards")
    if name in ("update", "report", "aggregate") and _measure(after) == _measure(before):
        problems.append("work was done and nothing came of it")
    if was is not None and now is not None:
        if was.phase is RoundPhase.COMMITTED and now.number == was.number and now != was:
            problems.append("a committed round changes")
        left = [name for name in now.cohort if not run_facts.is_out(now, name)]
        has_changed = now.number == was.number and now.phase is not RoundPhase.INITIALISING and now.cohort != was.cohort
        if has_changed and not (set(was.cohort) < set(now.cohort) and len(left) <= (quorum.min_clients or 1)):
            problems.append("the cohort of an open round changes")
    elif now is None and was is not None:
        problems.append("the round is gone")
    if run_facts.last_committed(before) == run_facts.last_committed(after) and after.model != before.model:
        problems.append("the model changes although no round has committed")
    if was is not None and now is not None and now.number and was.phase is not now.phase is RoundPhase.AGGREGATING:
        counted = [name for name in now.cohort if name not in after.quarantined and not run_facts.is_out(now, name)]
        if quorum.lack(counted, now.updates):
            problems.append("it aggregates without a quorum")
    kept = _kept(was)
    if now is not None and was is not None and now.number == was.number and not kept.items() <= _kept(now).items():
        problems.append("an update or a report is lost")
    return problems


def _kept(current: Round | None) -> dict[tuple[str, str], object]:
    if current is None:
        return {}
    updates: dict[tuple[str, str], object] = {("update", name): value for name, value in current.updates.items()}
    return updates | {("report", name): value for name, value in current.evaluations.items()}


def _measure(run: Run) -> tuple[int, int, int, int]:
    """How far a run has come; work makes it grow, nothing makes it shrink."""
    current = run.current_round
    if current is None:
        return (-1, 0, 0, 0)
    return (current.number, PHASES.index(current.phase), len(current.updates), len(current.evaluations))


def _key(world: World) -> Any:
    return _run_key(world.run), world.here


def _run_key(run: Run) -> Any:
    """What of a run decides what may happen to it."""
    current = run.current_round
    fields: tuple[Any, ...] = ()
    if current is not None:
        done = (tuple(sorted(current.updates)), tuple(sorted(current.evaluations)))
        dropped = tuple((name, why.reason.value) for name, why in sorted(current.dropped.items()))
        fields = (current.number, current.phase, current.cohort, done, dropped)
    out = tuple(sorted(run.quarantined)), tuple(name for name in run.roster if run_facts.is_retired(run, name))
    return (run.status, run.total_rounds, run.roster, run.is_pause_requested, out, _kind_of(run.reason), fields)


def _kind_of(reason: Reason | None) -> str:
    return sentence_of(reason).partition(";")[0]


def _said(world: World) -> str:
    run, current = world.run, world.run.current_round
    where = (
        ""
        if current is None
        else (
            f", round {current.number} of {list(current.cohort)} is {current.phase} with updates {sorted(current.updates)}, "
            f"reports {sorted(current.evaluations)}, dropped {sorted(current.dropped)}"
        )
    )
    extra = f", quarantined {sorted(run.quarantined)}" if run.quarantined else ""
    pausing = ", a pause waits" if run.is_pause_requested else ""
    return f"{run.status}{where}{extra}{pausing}, here {sorted(world.here)}, reason {sentence_of(run.reason)!r}"


def explore(small: Small) -> Found:
    """Walk through a federation."""
    return Explorer(small).walk()


def main() -> int:
    """Walk through all of them."""
    num_violations = 0
    for small in FEDERATIONS:
        began = time.monotonic()
        found = explore(small)
        print(f"{found.line} in {time.monotonic() - began:.0f} s", flush=True)
        for violation in found.violations[:10]:
            print(f"  {violation}")
        num_violations += len(found.violations)
    return 1 if num_violations else 0


if __name__ == "__main__":
    sys.exit(main())
