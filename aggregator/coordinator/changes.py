"""Changes of runs that one transaction writes: steps on a copy of the open runs, and what each adds to the store.

Making them reads the store but writes nothing: a change that raises leaves no trace. See ledger.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace

from aggregator.rounds import machine
from aggregator.rounds.events import events_between
from aggregator.rounds.tasks import task_in
from aggregator.store.base import ControlRequest, Transaction
from shared.reasons import Reason
from shared.types import BlobRef, Client, Evaluation, Event, Round, Run, RunStatus, Update

Write = Callable[[Transaction], None]
Settle = Callable[[Run, Run, float], tuple[Sequence[Run], Sequence[Event]]]
"""Returns the states of a run from one to another, with those that follow by themselves, and the events between them."""


@dataclass(slots=True)
class Changes:
    """Changes of one caller, or of several one after the other."""

    runs: dict[str, Run]
    """Open runs after these changes."""
    ended: dict[str, Run]
    """Runs that these changes have ended."""
    settle: Settle
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

    def settle_pending(self) -> None:
        """Settle the runs whose next step depends on the clients that are connected."""
        for run in list(self.runs.values()):
            if run.status is RunStatus.PENDING or machine.may_open_another(run):
                self.step(run, run)

    def add_run(self, run: Run, *, request_id: str, request_hash: str, created: Event) -> Run:
        """Add a new run; returns it settled."""
        self.writes.append(
            lambda transaction: transaction.add_run(run, request_id=request_id, request_hash=request_hash)
        )
        self.writes += [_adding(blob) for blob in (run.model, run.prototypes) if blob is not None]
        self._happened(created)
        self.runs[run.run_id] = run
        return self.step(run, run)

    def end(self, run: Run, reason: Reason) -> None:
        """End a run that cannot be settled."""
        failed = replace(run, status=RunStatus.FAILED, reason=reason, updated_at=self.now)
        self.writes.append(_saving(failed))
        for event in events_between(run, failed, now=self.now):
            self._happened(event)
        self._replace(failed)
        self.steps.append((run, failed))

    def record(self, event: Event, client: Client | None = None) -> None:
        """Add an event that changes no run, together with the client that it changed."""
        if client is not None:
            self.writes.append(lambda transaction: transaction.save_client(client))
        self._happened(event)

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
        states, events = self.settle(before, after, self.now)
        if request is not None:
            self.writes.append(lambda transaction: transaction.add_control_request(request))
        if all(state is before for state in states) and not extra:
            return before
        final = replace(states[-1], updated_at=self.now)
        states = [*states[:-1], final]
        self._save(states, is_recorded=bool(extra))
        number = before.round_number
        if update is not None:
            self.writes.append(lambda transaction: transaction.add_update(final.run_id, number, update))
        if evaluation is not None:
            self.writes.append(lambda transaction: transaction.add_evaluation(final.run_id, number, evaluation))
        for event in (*extra, *events):
            self._happened(event)
        self._replace(final)
        self.steps.append(states)
        self._wake(states, update or evaluation)
        return final

    def _replace(self, run: Run) -> None:
        if run.status.is_final:
            del self.runs[run.run_id]
            self.ended[run.run_id] = run
        else:
            self.runs[run.run_id] = run

    def _save(self, states: Sequence[Run], *, is_recorded: bool) -> None:
        """Write the last state of each round that changed; updates and reports alone change no row of run or round."""
        before, final = states[0], states[-1]
        if not is_recorded and all(_row(state) == _row(before) for state in states):
            return
        for state, following in itertools.pairwise(states[1:]):
            if state.current_round is not None and state.round_number != following.round_number:
                self.writes.append(_saving(state))
        self.writes.append(_saving(final))
        for blob in () if final.current_round is None else (final.current_round.model, final.current_round.prototypes):
            if blob is not None:
                self.writes.append(_adding(blob))

    def _wake(self, states: Sequence[Run], done: Update | Evaluation | None) -> None:
        before, final = states[0], states[-1]
        if any(_asks_differently(before, state) for state in states):
            self.tasks_of.update(before.roster, final.roster)
        elif done is not None and self._is_wanted_elsewhere(done.client_id, final):
            self.tasks_of.add(done.client_id)

    def _is_wanted_elsewhere(self, client_id: str, run: Run) -> bool:
        """Whether another run has work for a client that has just finished its part in this run."""
        others = (other for other in self.runs.values() if other.run_id != run.run_id)
        return any(task_in(other, client_id) is not None for other in others)

    def _happened(self, event: Event) -> None:
        self.events.append(event)
        self.writes.append(lambda transaction: transaction.add_event(event))


def _saving(run: Run) -> Write:
    return lambda transaction: transaction.save_run(run)


def _adding(blob: BlobRef) -> Write:
    return lambda transaction: transaction.add_blob(blob)


def _row(run: Run) -> tuple[Run, Round | None]:
    """Return what the rows of a run and its round hold: without time of change, updates and reports."""
    current = run.current_round
    if current is not None:
        current = replace(current, updates={}, evaluations={})
    return replace(run, updated_at=0.0, current_round=None), current


def _asks_differently(before: Run, after: Run) -> bool:
    """Whether a step may change the task of a client other than the one whose update or report caused it."""

    def what(run: Run) -> tuple[object, ...]:
        phase, cohort = (None, ()) if run.current_round is None else (run.current_round.phase, run.current_round.cohort)
        return run.status, run.quarantined, run.round_number, phase, cohort

    return what(before) != what(after)
