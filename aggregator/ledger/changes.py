"""Changes of runs that one transaction writes: steps on a copy of the open runs, and what each adds to the store.

Making them reads the store but writes nothing: a change that raises leaves no trace. See ledger.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Protocol

from fedplcc.aggregator.rounds.events import came_and_gone
from fedplcc.aggregator.rounds.settling import concerns
from fedplcc.aggregator.rounds.tasks import task_in
from fedplcc.aggregator.store.base import ControlRequest, Transaction
from fedplcc.shared.types import BlobRef, Client, Evaluation, Event, Round, Run, Update, result_blobs

Write = Callable[[Transaction], None]

_REMOVALS = frozenset(("update_damaged", "update_removed", "report_removed"))
"""Events of a step that takes an update or a report away."""


@dataclass(frozen=True, slots=True)
class Step:
    """A change of one run with all that follows by itself, to be written in one transaction."""

    states: Sequence[Run]
    """The run before the change, after it, and after each step that it took by itself."""
    events: Sequence[Event]
    final: Run
    """The last state, with the time of the change where a row of the run or the round changes."""
    update: Update | None = None
    evaluation: Evaluation | None = None
    request: ControlRequest | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether there is no other state and no event."""
        return not self.events and all(state is self.states[0] for state in self.states)

    @property
    def only_adds(self) -> bool:
        """Whether an update or a report is added, and the rows of run and round stay as they are."""
        before = self.states[0]
        return (self.update is not None or self.evaluation is not None) and all(
            state is before or _same_rows(state, before) for state in self.states
        )

    def save(self, transaction: Transaction) -> None:
        """Write all but the events."""
        before, final = self.states[0], self.final
        if not self.only_adds:
            self._save_rows(transaction)
        if self.update is not None:
            transaction.add_update(final.run_id, before.round_number, self.update)
        if self.evaluation is not None:
            transaction.add_evaluation(final.run_id, before.round_number, self.evaluation)
        if self.request is not None:
            transaction.add_control_request(self.request)
        earlier, current = before.current_round, self.states[1].current_round
        if not any(event.type in _REMOVALS for event in self.events):
            return  # known without a look at what a thousand clients have
        if earlier is not None and current is not None and current.number == earlier.number:
            for client_id in sorted(came_and_gone(earlier.updates, current.updates)[1]):
                transaction.remove_update(final.run_id, earlier.number, earlier.updates[client_id])
            for client_id in sorted(came_and_gone(earlier.evaluations, current.evaluations)[1]):
                transaction.remove_evaluation(final.run_id, earlier.number, client_id)

    def _save_rows(self, transaction: Transaction) -> None:
        final = self.final
        for state in self.states[1:-1]:
            if state.current_round is not None and (
                final.current_round is None or state.current_round.number != final.current_round.number
            ):
                transaction.save_run(state)
        transaction.save_run(final)
        # In one step a round may be aggregated, commit and be followed by the next: any of the states may have new blobs.
        stored, *found = (_results(state) for state in (*self.states, final))
        for blob in dict.fromkeys(blob for results in found for blob in results if blob not in stored):
            transaction.add_blob(blob)


class MakeStep(Protocol):
    """Settles a changed run: from the run before and after the change, and the time, to the step with what follows."""

    def __call__(
        self,
        before: Run,
        after: Run,
        now: float,
        /,
        *,
        update: Update | None = None,
        evaluation: Evaluation | None = None,
        request: ControlRequest | None = None,
        extra: Sequence[Event] = (),
    ) -> Step:
        """Return the step."""


@dataclass(slots=True)
class Changes:
    """Changes of one caller, after those of the callers before it."""

    runs: dict[str, Run]
    """Open runs after these changes."""
    ended: dict[str, Run]
    """Runs that these changes have ended."""
    make_step: MakeStep
    now: float
    context: Context
    """Context of the caller, for log lines."""
    writes: list[Write] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    steps: list[Sequence[Run]] = field(default_factory=list)
    """States of each changed run, in order."""
    tasks_of: set[str] = field(default_factory=set)
    """Clients whose task may be another one afterwards."""
    afterwards: list[Callable[[], None]] = field(default_factory=list)
    """Called once the changes are durable."""

    def find_open(self, run_id: str) -> Run | None:
        """A run that has not ended."""
        return self.runs.get(run_id)

    def find(self, run_id: str) -> Run | None:
        """A run that has not ended before these changes."""
        return self.runs.get(run_id) or self.ended.get(run_id)

    def settle_joined(self, client_id: str) -> None:
        """Settle the runs that a client's joining concerns: it may complete a roster."""
        for run in list(self.runs.values()):
            if concerns(run, client_id):
                self.step(run, run)

    def add_run(self, run: Run, *, request_id: str, request_hash: str, created: Event) -> Run:
        """Add a new run; returns it settled."""
        self.writes.append(
            lambda transaction: transaction.add_run(run, request_id=request_id, request_hash=request_hash)
        )
        self.writes += [_adding(blob) for blob in result_blobs(run)]
        self.events.append(created)
        self.runs[run.run_id] = run
        return self.step(run, run)

    def note(self, audited: Sequence[Write]) -> None:
        """Add the audit's record of these changes, unless there are none."""
        if self.writes or self.events:
            self.writes += audited

    def record(self, event: Event, client: Client | None = None) -> None:
        """Add an event that changes no run, together with the client that it changed."""
        if client is not None:
            self.writes.append(lambda transaction: transaction.save_client(client))
        self.events.append(event)

    def step(
        self,
        before: Run,
        after: Run,
        *,
        update: Update | None = None,
        evaluation: Evaluation | None = None,
        request: ControlRequest | None = None,
        extra: Sequence[Event] = (),
    ) -> Run:
        """Settle a changed run, and write it with its events."""
        step = self.make_step(
            before, after, self.now, update=update, evaluation=evaluation, request=request, extra=extra
        )
        if step.changes_nothing:
            if request is not None:
                self.writes.append(lambda transaction: transaction.add_control_request(request))
            return before
        return self.add(step).final

    def add(self, step: Step) -> Step:
        """Add a step of a run."""
        self.writes.append(step.save)
        self.events += step.events
        final = step.final
        if final.status.is_final:
            del self.runs[final.run_id]
            self.ended[final.run_id] = final
        else:
            self.runs[final.run_id] = final
        self.steps.append(step.states)
        done = step.update or step.evaluation
        if any(_asks_differently(step.states[0], state) for state in step.states):
            self.tasks_of.update(step.states[0].roster, final.roster)
        elif done is not None and self._is_wanted_elsewhere(done.client_id, final):
            self.tasks_of.add(done.client_id)
        return step

    def _is_wanted_elsewhere(self, client_id: str, run: Run) -> bool:
        """Whether another run has work for a client that has just finished its part in this run."""
        others = (other for other in self.runs.values() if other.run_id != run.run_id)
        return any(task_in(other, client_id) is not None for other in others)


def _results(run: Run) -> list[BlobRef]:
    """Results of the latest round, where it has them."""
    return [] if run.current_round is None else list(result_blobs(run.current_round))


def _adding(blob: BlobRef) -> Write:
    return lambda transaction: transaction.add_blob(blob)


def _same_rows(one: Run, other: Run) -> bool:
    """Whether two states have the same rows of run and round, which hold neither time of change nor updates and reports."""
    first, second = one.current_round, other.current_round
    if first is None or second is None:
        return first is second and _run_row(one) == _run_row(other)
    return _run_row(one) == _run_row(other) and _round_row(first) == _round_row(second)


# Tuples: what is the same object in both is not compared.
_run_row = attrgetter(*(each.name for each in fields(Run) if each.name not in ("updated_at", "current_round")))
_round_row = attrgetter(*(each.name for each in fields(Round) if each.name not in ("updates", "evaluations")))


def _asks_differently(before: Run, after: Run) -> bool:
    """Whether a step may change the task of a client other than the one whose update or report caused it."""

    def what(run: Run) -> tuple[object, ...]:
        phase, cohort = (None, ()) if run.current_round is None else (run.current_round.phase, run.current_round.cohort)
        return run.status, run.quarantined, run.retired, run.round_number, phase, cohort

    return what(before) != what(after)
