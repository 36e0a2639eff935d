"""A client's update of one round: local training, then the prototypes of its samples.

Shape legend: N training samples, D feature size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
from torch import nn

from shared.config.run import RunConfig
from shared.errors import Code, FedplccError, InvalidConfig
from shared.methods.base import ClientState, ModelArrays, StageBegin, excess_rows
from shared.methods.prototypes import PrototypeConfig
from shared.methods.public import PUBLIC
from shared.methods.server_arrays import ArrayGroup, BeforeTraining
from shared.tensors import blob_ref, prototypes_to_bytes, to_bytes
from shared.types import (
    FEATURE_DIM,
    MODEL,
    STAGE_DATA,
    STREAM_PLACE,
    BlobRef,
    ClientActivity,
    FloatArray,
    IntArray,
    Payload,
    PrototypeSet,
    Update,
)
from trainer.factories import import_factory
from trainer.learning.augmentation import ImageChange
from trainer.learning.divergence import check_features, diverged
from trainer.learning.evaluation import collect_features
from trainer.learning.public_images import PublicImages, learn_from_public, public_outputs
from trainer.learning.site_statistics import check_layers, with_site_statistics
from trainer.learning.training import LocalTraining, RoundInputs, TrainingObserver, local_train
from trainer.models import FeatureModel, head_names, personal_names, state_arrays, tensor_lists
from trainer.task.delivery import Finished
from trainer.task.first_model_check import begins_with_first_model
from trainer.task.inputs import TaskInputs, model_with, received_arrays, received_prototypes
from trainer.task.job import Job
from trainer.task.manifest import CLIENT_STATE


class TooManyPrototypes(FedplccError):
    """The client's samples give more prototypes than the aggregator takes; the same run will always give as many."""

    code = Code.FAILED_PRECONDITION
    reason = "TOO_MANY_PROTOTYPES"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summary:
    """The prototypes of a client's samples; empty for a method without prototypes.

    Attributes:
        sets: Names of the prototype sets.
        blobs: Their bytes by SHA-256.
        num_excluded: Samples that no prototype stands for.
        num_prototypes: Rows of the sets.
        prototypes: The set.
    """

    sets: tuple[BlobRef, ...] = ()
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    num_excluded: int = 0
    num_prototypes: int = 0
    prototypes: PrototypeSet = field(default_factory=PrototypeSet.empty)


def trained_update(job: Job, inputs: TaskInputs, identity: str, client_state: ClientState | None) -> Finished:
    """Train on the client's data, from the round's model or the client's own, and return the update.

    Args:
        job: The task.
        inputs: Fetches the round's model.
        identity: Names the work.
        client_state: The state that the client kept from its last committed update; None where there is none.

    Raises:
        TooManyPrototypes: The prototypes do not fit into an update.
        TrainingDiverged: A loss, a gradient or a feature is not finite.
        InvalidModel: The run computes statistics of the site, and the model has no BatchNorm layer.
        Cancelled: `job.should_stop()` held.
        FedplccError: The model cannot be made or fetched.
    """
    method, loaded = job.config.algorithm, job.loaded
    model, received, first_lists = _model_to_train(job, inputs, client_state)
    check_layers(model, (job.site.model or job.config.model).name, job.config.site_statistics_key)
    client_state = _state_for_stage(job, lambda: model if received is None else model_with(job, received), client_state)
    uploads = _uploads(job, lambda: model if received is None else model_with(job, received))
    public = inputs.public_images(job.config)
    round_inputs = _round_inputs(job, received, client_state)
    learned: Mapping[str, float] = {}
    if public is not None:
        round_inputs, learned = _learned_from_public(job, model, public, round_inputs)
    trained = _trained(job, model, round_inputs)
    if public is not None:
        uploads |= _public_outputs(job, model, public)
    summary = _Summary() if method.client_report is None else _summary(job, model, trained)
    groups, state, blobs = _model_blobs(job, model, _kept(job, trained, client_state, summary))
    if job.metrics is not None:
        job.metrics.clipped_steps.inc(trained.num_clipped_steps)
        job.metrics.prototypes.set(summary.num_prototypes)
    steps = {"steps": float(trained.num_steps), "clipped_steps": float(trained.num_clipped_steps)}
    update = Update(
        client_id=job.site.client_id,
        payload=Payload(
            tensor_groups=(*groups, *sorted(uploads, key=lambda blob: blob.role)),
            prototype_sets=summary.sets,
            int_lists={**inputs.public_lists(job.config), **_stage_lists(job), **first_lists},
        ),
        num_examples=len(loaded.train),
        num_excluded=summary.num_excluded,
        class_counts=loaded.class_counts,
        losses={**trained.losses, **learned},
        timings=dict(job.timings) | steps,
        num_prototypes=summary.num_prototypes,
    )
    keeps_state = method.keeps_client_state
    return Finished.of(
        job,
        identity,
        update,
        {**blobs, **{blob.sha256: data for blob, data in uploads.items()}, **summary.blobs},
        keeps_state=keeps_state,
        state=state,
    )


def without_data(job: Job) -> Update:
    """Return the answer of a client that has nothing to train on in the stage: an update without samples and blobs."""
    return Update(client_id=job.site.client_id, payload=Payload(int_lists=_stage_lists(job)), num_examples=0)


def _stage_lists(job: Job) -> dict[str, tuple[int, ...]]:
    """Return the integer lists of an update that say what it was trained on; none in a run without stages."""
    stage = job.loaded.stage
    if stage is None:
        return {}
    place = (stage.place.number, stage.place.stage)
    return {STREAM_PLACE: place, STAGE_DATA: tuple(bytes.fromhex(stage.sha256))}


def _model_to_train(
    job: Job, inputs: TaskInputs, client_state: ClientState | None
) -> tuple[nn.Module, ModelArrays | None, Mapping[str, tuple[int, ...]]]:
    """Return the model that training starts from, the round's model where that is another one, and lists of the first one.

    Where they are the same, the round's arrays are not returned, so that their memory is free during training. The lists are
    those of round 0's update as this site makes them, in the round that begins with the first model.
    """
    received = inputs.first_model(job)
    own = job.config.algorithm.start_of(received, client_state, job.config.method)
    if own is not None:
        return model_with(job, own), received, {}
    model = model_with(job, received)
    if not begins_with_first_model(job):
        return model, None, {}
    return model, None, {FEATURE_DIM: (cast(FeatureModel, model).feature_dim,), **tensor_lists(model, list(received))}


def _round_inputs(job: Job, received: ModelArrays | None, client_state: ClientState | None) -> RoundInputs:
    config, method = job.config, job.config.algorithm
    return RoundInputs(
        config=config,
        method=method,
        round=job.task.round,
        client_id=job.site.client_id,
        prototypes=received_prototypes(job) if method.has_prototypes else PrototypeSet.empty(),
        client_state=client_state,
        scalars=job.task.payload.scalars,
        received=received,
        keeps_seen=_uses_seen_features(config),
        augmentations=_augmentations(job),
    )


def _trained(job: Job, model: nn.Module, inputs: RoundInputs) -> LocalTraining:
    """Train the model in place."""
    job.begin(ClientActivity.TRAINING)
    observer = _observer(job)
    with job.timed("train_seconds"):
        return local_train(model, job.loaded.train, inputs, observer)


def _uploads(job: Job, received: Callable[[], nn.Module]) -> dict[BlobRef, bytes]:
    """Return what the update has beside its model, made of the client's samples under the received model."""
    config, method = job.config, job.config.algorithm
    if method.before_training is None:
        return {}
    model = received()
    job.begin(ClientActivity.SUMMARISING)
    with job.timed("summarise_seconds"):
        features_ND, labels_N = _features(job, model)
        arrays = state_arrays(model)
        before = BeforeTraining(
            features_ND=features_ND,
            labels_N=labels_N,
            num_classes=len(config.data.classes),
            head={name: arrays[name] for name in head_names(model)},
            received=received_arrays(job, features_ND.shape[1]),
        )
        groups = method.before_training(before, config.method)
    return _blobs_of(groups)


def _features_for_prototypes(job: Job, model: nn.Module) -> tuple[FloatArray, IntArray]:
    """Return the features and labels that prototypes are made of; the model keeps its bytes."""
    if job.config.training.prototype_statistics == "trained":
        return _features(job, model)
    with with_site_statistics(
        model,
        job.loaded.train,
        job.config,
        should_stop=job.should_stop,
        on_share=lambda share: job.on_activity(ClientActivity.SUMMARISING, share / 2),
    ):
        return _features(job, model, begin=0.5)


def _features(job: Job, model: nn.Module, *, begin: float = 0.0) -> tuple[FloatArray, IntArray]:
    """Return the features `[N, D]` and labels `[N]` of the client's training samples; leaves the model in eval mode.

    Args:
        job: The task.
        model: The model.
        begin: Fraction of the activity that is done already.
    """
    features_ND, labels_N = collect_features(
        model,
        job.loaded.train,
        job.config,
        should_stop=job.should_stop,
        on_share=lambda share: job.on_activity(ClientActivity.SUMMARISING, begin + (1 - begin) * share),
    )
    check_features(features_ND, client_id=job.site.client_id, round=job.task.round)
    return features_ND, labels_N


def _state_for_stage(
    job: Job, received: Callable[[], nn.Module], client_state: ClientState | None
) -> ClientState | None:
    """Return the client's state for the present stage, which is another one where the client first trains in it."""
    method, hyper, scalars = job.config.algorithm, job.config.method, job.task.payload.scalars
    if client_state is None or method.stage_state is None or not method.begins_stage(client_state, scalars, hyper):
        return client_state
    model = received()
    job.begin(ClientActivity.SUMMARISING)
    with job.timed("summarise_seconds"):
        features_ND, labels_N = _features(job, model)
        begin = StageBegin(
            features_ND=features_ND,
            labels_N=labels_N,
            num_classes=len(job.config.data.classes),
            state=client_state,
            scalars=scalars,
        )
        return method.stage_state(begin, hyper)


def _kept(job: Job, trained: LocalTraining, before: ClientState | None, summary: _Summary) -> ClientState | None:
    """Return the state that the client keeps if this update is committed."""
    method, hyper = job.config.algorithm, job.config.method
    if method.state_with_report is None:
        return trained.client_state
    kept, scalars = trained.client_state or {}, job.task.payload.scalars
    return method.state_with_report(kept, before, summary.prototypes, scalars, hyper) or None


def _blobs_of(groups: Mapping[str, ArrayGroup]) -> dict[BlobRef, bytes]:
    made = {name: to_bytes(groups[name]) for name in sorted(groups)}
    return {blob_ref(name, data): data for name, data in made.items()}


def _learned_from_public(
    job: Job, model: nn.Module, public: PublicImages, inputs: RoundInputs
) -> tuple[RoundInputs, Mapping[str, float]]:
    """Train the model in place on public images, where the round has targets; returns the loss terms' means too.

    The round's model is then no longer what training starts from, and is returned with the inputs.
    """
    targets = received_arrays(job, cast(FeatureModel, model).feature_dim, {PUBLIC}).get(PUBLIC)
    if targets is None:
        return inputs, {}
    if inputs.received is None:
        inputs = replace(inputs, received=state_arrays(model))
    job.begin(ClientActivity.TRAINING)
    with job.timed("train_seconds"):
        return inputs, learn_from_public(model, public, targets, inputs, should_stop=job.should_stop)


def _public_outputs(job: Job, model: nn.Module, public: PublicImages) -> dict[BlobRef, bytes]:
    """Return what the trained model makes of public images, as a blob of the update."""
    job.begin(ClientActivity.SUMMARISING)
    with job.timed("summarise_seconds"):
        outputs = public_outputs(model, public, job.config, should_stop=job.should_stop)
    if not all(np.isfinite(array).all() for array in outputs.values()):
        raise diverged(
            "the trained model's outputs for public images are not finite",
            client_id=job.site.client_id,
            round=job.task.round,
        )
    return _blobs_of({PUBLIC: outputs})


def _augmentations(job: Job) -> list[ImageChange]:
    """Return the run's augmentations that are code of other packages; `TaskInputs.config` has asked for consent."""
    return [import_factory(name, InvalidConfig)() for name in job.config.training.augmentation_code]


def _observer(job: Job) -> TrainingObserver:
    """Return the observer that turns steps into progress, readings and metrics."""
    watch = job.speed.watch()

    def on_progress(step: int, steps: int) -> None:
        if step == 0:
            watch.begin()
        else:
            done = watch.done()
            if job.metrics is not None:
                job.metrics.batch_done(done.num_examples, done.seconds, done.data_seconds)
        job.on_activity(ClientActivity.TRAINING, step / steps)

    return TrainingObserver(should_stop=job.should_stop, on_progress=on_progress, on_batch=watch.has_batch)


def _model_blobs(
    job: Job, model: nn.Module, kept: ClientState | None
) -> tuple[tuple[BlobRef, ...], BlobRef | None, dict[str, bytes]]:
    """Return the names of the model to send and of the client state to keep, with the bytes of both by SHA-256.

    Many methods keep the model that they send: the same bytes are hashed once and held once.
    """
    method, hyper = job.config.algorithm, job.config.method
    blobs: dict[str, bytes] = {}
    sent = None
    if method.shares_model(hyper):
        withheld = personal_names(model, method.withheld_part(hyper), job.config.model.name)
        data = to_bytes({name: array for name, array in state_arrays(model).items() if name not in withheld})
        sent = blob_ref(MODEL, data)
        blobs[sent.sha256] = data
    state = None
    if kept is not None:
        data = to_bytes(kept)
        is_sent = sent is not None and data == blobs[sent.sha256]
        state = replace(sent, role=CLIENT_STATE) if sent is not None and is_sent else blob_ref(CLIENT_STATE, data)
        blobs.setdefault(state.sha256, data)
    return () if sent is None else (sent,), state, blobs


def _summary(job: Job, model: nn.Module, trained: LocalTraining) -> _Summary:
    """Return the prototypes of the client's training samples under the trained model."""
    config, method, train = job.config, job.config.algorithm, job.loaded.train
    assert method.client_report is not None
    assert method.prototype_kind is not None
    num_classes = len(config.data.classes)
    job.begin(ClientActivity.SUMMARISING)
    with job.timed("summarise_seconds"):
        if trained.seen is None:
            features_ND, labels_N = _features_for_prototypes(job, model)
        else:
            features_ND, labels_N = trained.seen
            check_features(features_ND, client_id=job.site.client_id, round=job.task.round)
        report = method.client_report(features_ND, labels_N, num_classes, config.method)
    excess = excess_rows(report.prototypes, num_classes, config.max_prototypes_per_class)
    if excess is not None:
        raise TooManyPrototypes(
            f'the client\'s data give {excess} of an update; set partition = "last" or a larger '
            "min_cluster_size in the run's [method] section"
        )
    vectors = prototypes_to_bytes(report.prototypes)
    blob = blob_ref(method.prototype_kind, vectors)
    return _Summary(
        sets=(blob,),
        blobs={blob.sha256: vectors},
        num_excluded=report.num_excluded + len(train) - len(labels_N),
        num_prototypes=len(report.prototypes),
        prototypes=report.prototypes,
    )


def _uses_seen_features(config: RunConfig) -> bool:
    """Whether prototypes are made of the features that training saw, not of a pass after it."""
    return isinstance(config.method, PrototypeConfig) and config.method.proto_pass == "last_epoch"  # nosec B105
