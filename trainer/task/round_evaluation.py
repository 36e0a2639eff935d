"""A client's evaluation of one round: correct predictions of the global model and of its own on the client's test set.

Shape legend: B batch, D feature size, M classes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from fedplcc.shared.methods.arrays import ClientState, ModelArrays
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange, Scores
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.scoring.scores import score_is_balanced
from fedplcc.shared.types import (
    ALONE_MODEL,
    BALANCED_SET,
    GLOBAL_MODEL,
    HISTOGRAM_SETS,
    LOCAL_MODEL,
    TEST_SET,
    VALIDATION_SET,
    ClientActivity,
    ClientProblem,
    Evaluation,
    EvaluationCounts,
    attacked_set,
    own_set,
    stage_set,
)
from fedplcc.trainer.cancellation import check
from fedplcc.trainer.learning.alone import AloneSoFar, mixed_model, train_alone
from fedplcc.trainer.learning.attacks import ImageAttack
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.divergence import TrainingDiverged
from fedplcc.trainer.learning.evaluation import Score, counted, evaluate, predicted_classes
from fedplcc.trainer.learning.losses import prototype_constants
from fedplcc.trainer.learning.ops import TorchOps
from fedplcc.trainer.learning.site_statistics import check_layers, take_site_statistics
from fedplcc.trainer.task.inputs import TaskInputs, model_with
from fedplcc.trainer.task.job import Job
from fedplcc.trainer.task.received import received_prototypes
from fedplcc.trainer.task.withholding import told_counts

_SHARE_BESIDE = 0.05
"""Share of an evaluation that passes over images are, before and after the training of a model alone."""

log = get_logger("fedplcc.trainer.task.round_evaluation")


def round_evaluation(
    job: Job, inputs: TaskInputs, client_state: Callable[[], ClientState | None], alone: AloneSoFar | None = None
) -> Evaluation:
    """Return the counts of the client's test set, and of its validation images where it has any.

    With `evaluation.batch_norm = "site"` the client's own model, or the global one where the method gives it no other, is
    evaluated with the BatchNorm statistics of its training images, as the model `local`.

    In a run with stages they are the test images of the stages seen so far, and those of each of these stages have counts
    of their own.

    The client's own model is that of its last committed update, even if another process trained it. A client that has none
    yet or never trains, or has no image to take statistics of, reports on the global model alone.

    Args:
        inputs: Fetches the global model.
        client_state: Gives the state that the client kept from its last committed update; called only where the method
            evaluates the client's own model.
        alone: How far the client's training alone in this run has come; kept up to date. None to keep nothing.

    Raises:
        Cancelled: `job.should_stop()` held.
        FedplccError: A model cannot be made or fetched, or `client_state` failed.
    """
    joins, models = _joins(job), _models(job, inputs, client_state)
    share = _SHARE_BESIDE if joins else 1.0
    counts = [
        each
        for number, (name, arrays) in enumerate(models.items())
        for each in _counted(job, name, arrays, begin=share * number / len(models), share=share / len(models))
    ]
    if joins:
        counts += _joined_counts(job, models[GLOBAL_MODEL], alone)
    thresholds, least = job.site.policy.thresholds, job.site.withhold_below
    counts = [told_counts(each, thresholds, least) for each in counts]
    return Evaluation(
        client_id=job.site.client_id, domain=job.site.domain, counts=tuple(counts), timings=dict(job.timings)
    )


def _joins(job: Job) -> bool:
    """Whether the client reports what `evaluation.joining` asks for: in the run's last round.

    Not without training images, or validation images that weigh the two models.
    """
    config, loaded = job.config, job.loaded
    is_last = bool(config.evaluation.joining) and job.task.round == config.run.rounds
    return is_last and len(loaded.train) > 0 and len(loaded.validation) > 0


def _joined_counts(job: Job, received: ModelArrays, so_far: AloneSoFar | None) -> list[EvaluationCounts]:
    """Return the counts of a model of the client's images alone, and of the mix of that and the global one.

    None where the training alone diverged: then the log and the client's problem say it.
    """
    config, loaded = job.config, job.loaded

    def on_share(done: float) -> None:
        job.on_activity(ClientActivity.EVALUATING, _SHARE_BESIDE + (1 - 2 * _SHARE_BESIDE) * done)

    alone = job.site.new_model(config, with_weights=True).to(job.site.device)
    try:
        with job.site.turns.taken(job.should_stop), job.timed("alone_seconds"):
            train_alone(
                alone,
                loaded.train,
                config,
                job.site.client_id,
                should_stop=job.should_stop,
                on_share=on_share,
                so_far=so_far,
            )
    except TrainingDiverged as error:
        log.warning("alone_diverged", client_id=job.site.client_id, round=job.task.round, detail=error.detail)
        job.on_problem(
            ClientProblem(
                reason=error.reason,
                detail="the model of this client's images alone diverged, so that nobody says what joining is worth to it",
                hint="the run is whole all the same; set training.clip_norm, or a lower training.learning_rate, in another",
            )
        )
        return []
    whole = model_with(job, received)
    is_balanced = score_is_balanced(config.evaluation.score, loaded.class_counts)
    mix = mixed_model(whole, alone, loaded.validation, config, is_balanced=is_balanced, should_stop=job.should_stop)
    sets = {TEST_SET: loaded.test, VALIDATION_SET: loaded.validation}
    with job.timed("evaluate_seconds"):
        return [
            evaluate(model, images, config, set_name=name, model_name=of, should_stop=job.should_stop)
            for of, model in ((LOCAL_MODEL, mix), (ALONE_MODEL, alone))
            for name, images in sets.items()
        ]


def _models(job: Job, inputs: TaskInputs, client_state: Callable[[], ClientState | None]) -> dict[str, ModelArrays]:
    """Return the models to evaluate, by name."""
    names, received = job.config.evaluated_models, inputs.received_model(job)
    local = None
    if (
        LOCAL_MODEL in names
        and not job.config.evaluation.joining
        and (len(job.loaded.train) or not _has_site_statistics(job, LOCAL_MODEL))
    ):
        local = _local_model(job, inputs, client_state, received)
    models: dict[str, ModelArrays] = {}
    if GLOBAL_MODEL in names or local is None:
        models[GLOBAL_MODEL] = received
    if local is not None:
        models[LOCAL_MODEL] = local
    if ALONE_MODEL in names:
        alone = job.config.algorithm.alone_model(inputs.first_model(job), client_state(), job.config.method)
        models |= {} if alone is None else {ALONE_MODEL: alone}
    return models


def _local_model(
    job: Job, inputs: TaskInputs, client_state: Callable[[], ClientState | None], received: ModelArrays
) -> ModelArrays | None:
    """Return the model that the client evaluates as its own, whatever its statistics; None where it has none yet."""
    if not _is_methods(job, LOCAL_MODEL):
        return received
    return job.config.algorithm.own_model(inputs.first_model(job), client_state(), job.config.method)


def _is_methods(job: Job, name: str) -> bool:
    """Whether it is the method that has a model evaluated, not statistics of the site alone."""
    return name in job.config.algorithm.evaluated_models(job.config.method)


def _has_site_statistics(job: Job, name: str) -> bool:
    """Whether a model is evaluated with the BatchNorm statistics of the client's training images."""
    return name == LOCAL_MODEL and job.config.evaluation.batch_norm == "site"


def _counted(job: Job, name: str, arrays: ModelArrays, *, begin: float, share: float) -> Iterator[EvaluationCounts]:
    """Yield the counts of one model, whose part of the whole evaluation is `share`, from the fraction `begin` on.

    First those of the test set, with those of its stages, then those of the test set under each attack of the run, then
    those of a balanced whole, then those of validation images. Where the run asks for it, the test set and the balanced
    whole are followed by what the model makes of them with the client's own classes to choose from.
    """
    model, test, config = model_with(job, arrays, is_own=name != GLOBAL_MODEL), job.loaded.test, job.config
    if _has_site_statistics(job, name):
        begin, share = _calibrated(job, model, begin=begin, share=share / 2)
    score = _score(job, model) if name == LOCAL_MODEL and _is_methods(job, name) else None
    own_score = _own_score(job, model) if config.evaluation.own_classes and job.loaded.own_classes else None
    attacks = {attack: ImageAttack.named(attack, config.attack_epsilon, test) for attack in config.evaluation.attacks}
    sets: list[tuple[str, DeviceImages, ImageAttack | None]] = [(TEST_SET, test, None)]
    sets += [(attacked_set(attack), test, made) for attack, made in attacks.items()]
    if job.loaded.stage is not None and len(job.loaded.stage.balanced_test):
        sets.append((BALANCED_SET, job.loaded.stage.balanced_test, None))
    if len(job.loaded.validation) and not config.withholds:
        sets.append((VALIDATION_SET, job.loaded.validation, None))
    for number, (set_name, images, attack) in enumerate(sets):
        check(job.should_stop)
        begin_of_set = begin + share * number / len(sets)

        def on_share(done: float, begin_of_set: float = begin_of_set) -> None:
            job.on_activity(ClientActivity.EVALUATING, begin_of_set + share * done / len(sets))

        on_share(0.0)
        has_bins = config.evaluation.histograms and set_name in HISTOGRAM_SETS and score is None
        has_own = own_score is not None and attack is None and set_name in (TEST_SET, BALANCED_SET)
        with job.timed("evaluate_seconds"):
            predicted_CN = predicted_classes(
                model,
                images,
                config,
                scores=[score, own_score] if has_own else [score],
                attack=attack,
                has_bins=has_bins,
                should_stop=job.should_stop,
                on_share=on_share,
            )
        labels_N = images.labels_N.cpu().numpy()
        for part, piece in _parts(job, set_name).items():
            bins_NM = predicted_CN[-len(config.data.classes) - 1 :].T if has_bins and part == set_name else None
            yield counted(
                labels_N[piece], predicted_CN[0][piece], config, set_name=part, model_name=name, bins_NM=bins_NM
            )
        if has_own:
            yield counted(labels_N, predicted_CN[1], config, set_name=own_set(set_name), model_name=name)


def _calibrated(job: Job, model: nn.Module, *, begin: float, share: float) -> tuple[float, float]:
    """Give a model the statistics of the client's training images; returns where the rest of it begins, and its share."""
    check_layers(model, (job.site.model or job.config.model).name, job.config.site_statistics_key)
    with job.timed("evaluate_seconds"):
        take_site_statistics(
            model,
            job.loaded.train,
            job.config,
            should_stop=job.should_stop,
            on_share=lambda done: job.on_activity(ClientActivity.EVALUATING, begin + share * done),
        )
    return begin + share, share


def _parts(job: Job, set_name: str) -> dict[str, slice]:
    """Return what an evaluation set is counted in: as a whole and, the test set of a run with stages, stage by stage."""
    parts, stage = {set_name: slice(None)}, job.loaded.stage
    if stage is not None and set_name == TEST_SET:
        begins = (0, *stage.ends)
        pieces = [slice(begin, end) for begin, end in itertools.pairwise(begins)]
        parts |= {stage_set(number): piece for number, piece in enumerate(pieces, start=1)}
    return parts


def _score(job: Job, model: nn.Module) -> Score | None:
    """Return the scores by which the client's own model predicts classes; None for its logits."""
    exchange = job.config.algorithm.part(PrototypeExchange)
    return _with_prototypes(job, model, None if exchange is None else exchange.scores)


def _own_score(job: Job, model: nn.Module) -> Score:
    """Return the scores by which a model predicts one of the client's own classes; the others are minus infinity."""
    exchange = job.config.algorithm.part(PrototypeExchange)
    given = _with_prototypes(job, model, None if exchange is None else exchange.own_scores)
    is_own_M = torch.zeros(len(job.config.data.classes), dtype=torch.bool, device=job.site.device)
    is_own_M[list(job.loaded.own_classes)] = True

    def score(features_BD: Tensor, logits_BM: Tensor) -> Tensor:
        scores_BM = logits_BM if given is None else given(features_BD, logits_BM)
        return scores_BM.masked_fill(~is_own_M, -float("inf"))

    return score


def _with_prototypes(job: Job, model: nn.Module, scores: Scores | None) -> Score | None:
    """Return a method's scores with the round's prototypes; None for none."""
    if scores is None:
        return None
    hyper = job.config.method
    prototypes = prototype_constants(received_prototypes(job), model, job.loaded.test, job.config)
    return lambda features_BD, logits_BM: scores(TorchOps(), features_BD, logits_BM, prototypes, hyper)
