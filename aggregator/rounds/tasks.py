"""Which task a client has: a pure function of the runs' states."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable

from shared.config.run import parse_run_config
from shared.methods import METHODS
from shared.types import BlobRef, Payload, RoundPhase, Run, RunSpec, RunStatus, Task, TaskKind


def task_in(run: Run, client_id: str) -> Task | None:
    """The client's work in this run now, or None."""
    current = run.round
    if run.status is not RunStatus.RUNNING or current is None or client_id not in current.cohort:
        return None
    if client_id in run.quarantined:
        return None
    kind, payload = TaskKind.WAIT, Payload()
    if current.phase is RoundPhase.INITIALISING and client_id not in current.updates:
        # What a run has before round 0 is the model that it is to begin with, if its configuration names one.
        kind, payload = TaskKind.INIT, Payload(tensor_groups=_blobs(run.model))
    elif current.phase is RoundPhase.COLLECTING and client_id not in current.updates:
        kind, payload = TaskKind.TRAIN, _start(run, run.model, run.prototypes)
    elif current.phase is RoundPhase.EVALUATING and client_id not in current.evaluations:
        # Those that the round came to: with them the client's model would name classes from now on.
        sets = _blobs(current.prototypes) if _names_by_prototypes(run) else ()
        kind, payload = TaskKind.EVALUATE, Payload(tensor_groups=_blobs(current.model), prototype_sets=sets)
    if kind is TaskKind.WAIT:
        return None
    return Task(
        kind=kind,
        run=spec_of(run),
        round=current.number,
        total_rounds=run.total_rounds,
        payload=payload,
    )


def next_task(runs: Iterable[Run], client_id: str, previous: Task | None) -> Task:
    """The one task of a client: what it was given before if that is still wanted, else the oldest run's work.

    With nothing to do it is STOP where the run that it worked on is stopping, else WAIT, each with a sentence that says why.
    """
    mine = [run for run in runs if client_id in run.roster]
    wanted = [task for task in (task_in(run, client_id) for run in mine) if task is not None]
    if previous is not None and previous.run is not None:
        kept = next((task for task in wanted if task.key == previous.key), None)
        if kept is not None:
            return kept
        former = next((run for run in mine if run.run_id == previous.run.run_id), None)
        if not wanted and former is not None and former.status is RunStatus.STOPPING:
            return Task(kind=TaskKind.STOP, run=spec_of(former), detail=f"run {former.run_id} is stopping")
    if wanted:
        return wanted[0]
    details = [_why_waiting(run, client_id) for run in mine]
    return Task(kind=TaskKind.WAIT, detail="; ".join(details) or "no run names this client")


def spec_of(run: Run) -> RunSpec:
    """What a trainer needs to know of the run."""
    return RunSpec(run_id=run.run_id, config_json=run.config_json, config_hash=run.config_hash)


def _start(run: Run, model: BlobRef | None, prototypes: BlobRef | None) -> Payload:
    sets = _blobs(prototypes) if METHODS[run.method].has_prototypes else ()
    return Payload(tensor_groups=_blobs(model), prototype_sets=sets)


def _names_by_prototypes(run: Run) -> bool:
    """Whether clients need the round's prototypes to evaluate; most methods answer without a look at the configuration."""
    return METHODS[run.method].scores is not None and _configured_to(run.config_json)


@functools.lru_cache(maxsize=64)
def _configured_to(config_json: str) -> bool:
    config = parse_run_config(json.loads(config_json))
    return config.algorithm.names_by_prototypes(config.method)


def _blobs(blob: BlobRef | None) -> tuple[BlobRef, ...]:
    return () if blob is None else (blob,)


def _why_waiting(run: Run, client_id: str) -> str:
    if client_id in run.quarantined:
        return f"run {run.run_id} has quarantined this client: {run.quarantined[client_id]}"
    if run.status is RunStatus.RUNNING and run.round is not None:
        return f"run {run.run_id}: round {run.round.number} is {run.round.phase}"
    return f"run {run.run_id} is {run.status}"
