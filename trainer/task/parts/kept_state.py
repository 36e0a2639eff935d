"""What a client keeps: another state for a stage before its training, and after it what it takes of its own prototypes."""

from __future__ import annotations

from dataclasses import replace

from fedplcc.shared.methods.parts.kept_state import KeptState, StageBegin, StageMemory
from fedplcc.shared.types import ClientActivity
from fedplcc.trainer.task.work import Work


def begin_stage(work: Work) -> None:
    """Make the client's state for the present stage, where it first trains in that."""
    job, state, memory = work.job, work.inputs.client_state, _memory(work)
    hyper, scalars = job.config.method, job.task.payload.scalars
    if state is None or memory is None or not memory.begins(state, scalars, hyper):
        return
    model = work.received_model()
    job.begin(ClientActivity.SUMMARISING)
    with job.timed("summarise_seconds"):
        features_ND, labels_N = work.features(model)
        begin = StageBegin(
            features_ND=features_ND,
            labels_N=labels_N,
            num_classes=len(job.config.data.classes),
            state=state,
            scalars=scalars,
        )
        work.inputs = replace(work.inputs, client_state=memory.state(begin, hyper))


def keep(work: Work) -> None:
    """Take what the training came to, and what the client remembers of the prototypes that it sends."""
    assert work.trained is not None
    memory, work.client_state = _memory(work), work.trained.client_state
    if memory is not None:
        kept, scalars = work.client_state or {}, work.job.task.payload.scalars
        state, hyper = work.inputs.client_state, work.job.config.method
        work.client_state = memory.with_report(kept, state, work.prototypes, scalars, hyper) or None


def _memory(work: Work) -> StageMemory | None:
    kept = work.job.config.algorithm.part(KeptState)
    return None if kept is None else kept.of_stages
