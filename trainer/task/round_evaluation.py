"""A client's evaluation of one round: correct predictions of the global model and of its own on the client's test set.

Shape legend: B batch, D feature size, M classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import nn

from shared.methods.base import ClientState, ModelArrays
from shared.types import (
    GLOBAL_MODEL,
    LOCAL_MODEL,
    TEST_SET,
    VALIDATION_SET,
    ClientActivity,
    Evaluation,
    EvaluationCounts,
    attacked_set,
)
from trainer.cancellation import check
from trainer.learning.attacks import ImageAttack
from trainer.learning.device_images import DeviceImages
from trainer.learning.evaluation import Score, evaluate
from trainer.learning.losses import prototype_constants
from trainer.learning.ops import TorchOps
from trainer.task.inputs import TaskInputs, model_with, received_prototypes
from trainer.task.job import Job


def round_evaluation(job: Job, inputs: TaskInputs, client_state: Callable[[], ClientState | None]) -> Evaluation:
    """Return the counts of the client's test set, and of its validation images where it has any.

    The client's own model is that of its last committed update, even if another process trained it. A client that has none
    yet reports on the global model alone.

    Args:
        job: The task.
        inputs: Fetches the global model.
        client_state: Gives the state that the client kept from its last committed update; called only where the method
            evaluates the client's own model.

    Raises:
        Cancelled: `job.should_stop()` held.
        FedplccError: A model cannot be made or fetched, or `client_state` failed.
    """
    models = _models(job, inputs, client_state)
    counts = [
        each
        for number, (name, arrays) in enumerate(models.items())
        for each in _counted(job, name, arrays, begin=number / len(models), share=1 / len(models))
    ]
    return Evaluation(
        client_id=job.site.client_id, domain=job.site.domain, counts=tuple(counts), timings=dict(job.timings)
    )


def _models(job: Job, inputs: TaskInputs, client_state: Callable[[], ClientState | None]) -> dict[str, ModelArrays]:
    """Return the models to evaluate, by name."""
    method, hyper = job.config.algorithm, job.config.method
    names = method.evaluated_models(hyper)
    received = inputs.received_model(job)
    local = method.own_model(inputs.first_model(job), client_state(), hyper) if LOCAL_MODEL in names else None
    models: dict[str, ModelArrays] = {}
    if GLOBAL_MODEL in names or local is None:
        models[GLOBAL_MODEL] = received
    if local is not None:
        models[LOCAL_MODEL] = local
    return models


def _counted(job: Job, name: str, arrays: ModelArrays, *, begin: float, share: float) -> Iterator[EvaluationCounts]:
    """Yield the counts of one model, whose part of the whole evaluation is `share`, from the fraction `begin` on.

    First those of the test set, then those of the test set under each attack of the run, then those of validation images.
    """
    model, test, config = model_with(job, arrays, is_own=name == LOCAL_MODEL), job.loaded.test, job.config
    score = _score(job, model) if name == LOCAL_MODEL else None
    attacks = {attack: ImageAttack.named(attack, config.attack_epsilon, test) for attack in config.evaluation.attacks}
    sets: list[tuple[str, DeviceImages, ImageAttack | None]] = [(TEST_SET, test, None)]
    sets += [(attacked_set(attack), test, made) for attack, made in attacks.items()]
    if len(job.loaded.validation):
        sets.append((VALIDATION_SET, job.loaded.validation, None))
    for number, (set_name, images, attack) in enumerate(sets):
        check(job.should_stop)
        begin_of_set = begin + share * number / len(sets)

        def on_share(done: float, begin_of_set: float = begin_of_set) -> None:
            job.on_activity(ClientActivity.EVALUATING, begin_of_set + share * done / len(sets))

        on_share(0.0)
        with job.timed("evaluate_seconds"):
            counts = evaluate(
                model,
                images,
                config,
                set_name=set_name,
                model_name=name,
                score=score,
                attack=attack,
                should_stop=job.should_stop,
                on_share=on_share,
            )
        yield counts


def _score(job: Job, model: nn.Module) -> Score | None:
    """Return the scores by which the client's own model predicts classes; None for its logits."""
    method, hyper = job.config.algorithm, job.config.method
    if method.scores is None:
        return None
    scores = method.scores
    prototypes = prototype_constants(received_prototypes(job), model, job.loaded.test, job.config)
    return lambda features_BD, logits_BM: scores(TorchOps(), features_BD, logits_BM, prototypes, hyper)
