"""The task of a client: a pure function of the runs' states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from fedplcc.aggregator.rounds.configuration import config_of, place_of
from fedplcc.aggregator.rounds.machine import run_facts
from fedplcc.shared.config.declared_arrays import sent_groups
from fedplcc.shared.config.tables.stream import PASS, STAGE
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.parts.part import TaskView
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange
from fedplcc.shared.reasons import IdleReason
from fedplcc.shared.types import ENCODED, BlobRef, Payload, RoundPhase, Run, RunSpec, RunStatus, Task, TaskKind

MAX_IDLE_REASONS = 64
"""Most runs for which a waiting client gets a reason."""


def task_in(run: Run, client_id: str) -> Task | None:
    """The client's current task in this run, or None."""
    current = run.current_round
    if run.status is not RunStatus.RUNNING or current is None or not run_facts.has_task_in(run, client_id):
        return None
    if client_id in run.quarantined or run_facts.takes_no_part(run, client_id):
        return None
    kind, payload = TaskKind.WAIT, Payload()
    if current.phase is RoundPhase.INITIALISING and client_id not in current.updates:
        # Before round 0 the run's model is the initial model, if its configuration names one.
        kind, payload = TaskKind.INIT, Payload(tensor_groups=_blobs(run.model))
    elif current.phase is RoundPhase.COLLECTING and client_id not in current.updates:
        kind, payload = TaskKind.TRAIN, _start(run, client_id)
    elif current.phase is RoundPhase.EVALUATING and client_id not in current.evaluations:
        # The round's new prototypes: the client's own model predicts with them from now on.
        sets = _blobs(current.prototypes) if _names_by_prototypes(run) else ()
        groups = _blobs(current.model)
        kind, payload = (
            TaskKind.EVALUATE,
            Payload(
                tensor_groups=groups,
                prototype_sets=sets,
                scalars=_place_scalars(run),
                encoded=current.server_state.get(ENCODED),
            ),
        )
    if kind is TaskKind.WAIT:
        return None
    asked = current.asked_again.get(client_id) if kind is TaskKind.TRAIN else None
    return Task(
        kind=kind,
        run=spec_of(run),
        round=current.number,
        total_rounds=run.total_rounds,
        payload=payload,
        missing=() if asked is None else asked.sha256s,
        times_asked=0 if asked is None else asked.times,
    )


def next_task(
    runs: Iterable[Run],
    client_id: str,
    previous: Task | None,
    rank: Callable[[str], tuple[bool, int, int]] = lambda _run_id: (False, 0, 0),
) -> Task:
    """Return the task of a client: its previous task if that is still wanted, else the task of the run whose turn it is.

    That is the run with the lowest rank by its id, and of several the oldest. Rank begins with whether the client could not
    do the run's task a moment ago: that task gives way to another run's, also where it is the previous one. Without work the
    task is STOP if the client's run is stopping, else WAIT. Both have a sentence for people in `detail`; WAIT also has the
    reason of each run, see `Task.idle_reasons`.
    """
    mine = [run for run in runs if client_id in run.roster]
    wanted = [task for task in (task_in(run, client_id) for run in mine) if task is not None]

    def ranked(task: Task) -> tuple[bool, int, int]:
        return (False, 0, 0) if task.run is None else rank(task.run.run_id)

    def is_hindered(task: Task) -> bool:
        return ranked(task)[0]

    if previous is not None and previous.run is not None:
        kept = next((task for task in wanted if task.key == previous.key), None)
        if kept is not None and (not is_hindered(kept) or all(map(is_hindered, wanted))):
            return kept
        former = next((run for run in mine if run.run_id == previous.run.run_id), None)
        if not wanted and former is not None and former.status is RunStatus.STOPPING:
            return Task(kind=TaskKind.STOP, run=spec_of(former), detail=f"run {former.run_id} is stopping")
    if wanted:
        return min(wanted, key=ranked)
    return _waiting(mine, client_id)


def has_done_its_part(runs: Iterable[Run], client_id: str) -> bool:
    """Whether the open round of every run that names a client has its part, so that it waits for the others' alone."""
    mine = [run for run in runs if client_id in run.roster]
    return bool(mine) and all(
        _idle_reason(run, client_id) is IdleReason.IN_ROUND and _is_in(run, client_id) for run in mine
    )


def spec_of(run: Run) -> RunSpec:
    """The run's specification for trainers."""
    return RunSpec(run_id=run.run_id, config_json=run.config_json, config_hash=run.config_hash)


def _is_in(run: Run, client_id: str) -> bool:
    current = run.current_round
    assert current is not None
    return client_id in (current.evaluations if current.phase is RoundPhase.EVALUATING else current.updates)


def _start(run: Run, client_id: str) -> Payload:
    sets = _blobs(run.prototypes) if METHODS[run.method].has_prototypes else ()
    groups = (*_blobs(run.start or run.model), *_sent_arrays(run))
    encoded = run.server_state.get(ENCODED)
    return Payload(tensor_groups=groups, prototype_sets=sets, scalars=_scalars(run, client_id), encoded=encoded)


def _sent_arrays(run: Run) -> Iterator[BlobRef]:
    """Yield the server arrays beside a client's task, none before the first aggregation."""
    if run.server_state:
        for name in sent_groups(config_of(run)):
            yield run.server_state[name]


def _scalars(run: Run, client_id: str) -> Mapping[str, float]:
    """Return the numbers beside a client's task of training: its place in the run's stages, and those of the method."""
    method = METHODS[run.method]
    if not method.has("scalars"):
        return _place_scalars(run)
    counts = [run.admitted_examples.get(name, 0) for name in run_facts.trainers(run)]
    view = TaskView(
        round=run.round_number,
        num_examples=run.admitted_examples.get(client_id, 0),
        mean_examples=sum(counts) / max(len(counts), 1),
    )
    return {**method.scalars(view, config_of(run).method), **_place_scalars(run)}


def _place_scalars(run: Run) -> Mapping[str, float]:
    """Return the pass and the stage of a run's open round; none in a run without stages."""
    place = place_of(run)
    return {} if place is None else {PASS: float(place.number), STAGE: float(place.stage)}


def _names_by_prototypes(run: Run) -> bool:
    """Whether clients need the round's prototypes to evaluate; only methods with `scores` need the configuration."""
    method = METHODS[run.method]
    exchange = method.part(PrototypeExchange)
    if exchange is None or (exchange.scores is None and exchange.own_scores is None):
        return False
    config = config_of(run)
    return method.names_by_prototypes(config.method, own_classes=config.evaluation.own_classes)


def _blobs(blob: BlobRef | None) -> tuple[BlobRef, ...]:
    return () if blob is None else (blob,)


def _waiting(mine: Sequence[Run], client_id: str) -> Task:
    reasons = [(run, _idle_reason(run, client_id)) for run in mine]
    detail = "; ".join(_idle_sentence(run, reason, client_id) for run, reason in reasons)
    names = {run.run_id: reason.value for run, reason in reasons[:MAX_IDLE_REASONS]}
    return Task(kind=TaskKind.WAIT, payload=Payload(metadata=names), detail=detail or "no run names this client")


def _idle_reason(run: Run, client_id: str) -> IdleReason:
    if client_id in run.quarantined:
        return IdleReason.QUARANTINED
    if run_facts.is_retired(run, client_id):
        return IdleReason.RETIRED
    if run.status is RunStatus.RUNNING and run.current_round is not None:
        return IdleReason.IN_ROUND
    return IdleReason(run.status.value)


def _idle_sentence(run: Run, reason: IdleReason, client_id: str) -> str:
    if reason is IdleReason.QUARANTINED:
        return f"run {run.run_id} has quarantined this client: {run.quarantined[client_id]}"
    if reason is IdleReason.RETIRED:
        return f"run {run.run_id} has retired this client"
    if reason is IdleReason.IN_ROUND and run.current_round is not None:
        return f"run {run.run_id}: round {run.current_round.number} is {run.current_round.phase}"
    return f"run {run.run_id} is {run.status}"
