"""A client's update of one round: each part of the method before the training, the training, each part after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.methods import add_methods
from fedplcc.shared.methods.arrays import ClientState, ModelArrays
from fedplcc.shared.tensors import blob_ref, to_bytes
from fedplcc.shared.types import (
    ENCODED,
    FEATURE_DIM,
    MODEL,
    STAGE_DATA,
    STREAM_PLACE,
    BlobRef,
    ClientActivity,
    Payload,
    PrototypeSet,
    Update,
)
from fedplcc.trainer.learning.augmenting.augmentation import of_packages
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.site_statistics import check_layers
from fedplcc.trainer.learning.training import LocalTraining, RoundInputs, TrainingObserver, local_train
from fedplcc.trainer.models import FeatureModel, load_arrays, personal_names, state_arrays, tensor_lists
from fedplcc.trainer.owner.policy import NO_POLICY
from fedplcc.trainer.task.delivery import Finished
from fedplcc.trainer.task.encoding import encoded_update, without_errors
from fedplcc.trainer.task.inputs import TaskInputs, model_with
from fedplcc.trainer.task.job import Job
from fedplcc.trainer.task.manifest import CLIENT_STATE
from fedplcc.trainer.task.models.first_model_check import begins_with_first_model
from fedplcc.trainer.task.parts.arrays import make_groups
from fedplcc.trainer.task.parts.kept_state import begin_stage, keep
from fedplcc.trainer.task.parts.prototypes import summarise, uses_seen_features
from fedplcc.trainer.task.parts.public_images import learn, tell
from fedplcc.trainer.task.received import received_arrays, received_prototypes
from fedplcc.trainer.task.site import ClientSite
from fedplcc.trainer.task.withholding import without_counts
from fedplcc.trainer.task.work import Work

if TYPE_CHECKING:  # one device needs nothing of torch's distributed part
    from fedplcc.trainer.devices.group import Group


GIVEN = (
    *("config", "round", "client_id", "prototypes", "client_state"),
    *("scalars", "arrays", "received", "keeps_seen"),
)
"""Inputs of a training that further devices need."""


def _nothing(work: Work) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """Trainer's half of a part: what it does before the training and after it; nothing in a method without the part."""

    before: Callable[[Work], None] = _nothing
    after: Callable[[Work], None] = _nothing


HALVES: tuple[Half, ...] = (
    Half(before=begin_stage, after=keep),
    Half(before=make_groups),
    Half(before=learn, after=tell),
    Half(after=summarise),
)
"""In the order of a round before the training, and from the last to the first after it."""


def trained_update(job: Job, inputs: TaskInputs, identity: str, client_state: ClientState | None) -> Finished:
    """Train on the client's data, from the round's model or the client's own, and return the update.

    Args:
        client_state: The state that the client kept from its last committed update; None where there is none.

    Raises:
        TooManyPrototypes: The prototypes do not fit into an update.
        TrainingDiverged: A loss, a gradient or a feature is not finite.
        InvalidModel: The run computes statistics of the site, and the model has no BatchNorm layer.
        Cancelled: `job.should_stop()` held.
        FedplccError: The model cannot be made or fetched.
    """
    work = _begun(job, inputs, without_errors(client_state))
    with job.site.turns.taken(job.should_stop):
        for half in HALVES:
            half.before(work)
        work.trained = _trained(job, work.model, work.inputs)
    for half in reversed(HALVES):
        half.after(work)
    return _finished(work, identity, inputs, client_state)


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


def _begun(job: Job, inputs: TaskInputs, client_state: ClientState | None) -> Work:
    """Return the work with the model that training starts from, and with all that came for the parts of the method.

    Where that is the round's model, the round's arrays are not kept beside it, so that their memory is free during training.
    In the round that begins with the first model the update has lists of it: those of round 0's as this site makes them.
    """
    config, first = job.config, inputs.first_model(job)
    own = config.algorithm.start_of(first, client_state, config.method)
    model = model_with(job, first if own is None else own)
    check_layers(model, (job.site.model or config.model).name, config.site_statistics_key)
    dim = cast(FeatureModel, model).feature_dim
    is_first = own is None and begins_with_first_model(job)
    return Work(
        job=job,
        model=model,
        inputs=RoundInputs(
            config=config,
            method=config.algorithm,
            round=job.task.round,
            client_id=job.site.client_id,
            prototypes=received_prototypes(job) if config.algorithm.has_prototypes else PrototypeSet.empty(),
            client_state=client_state,
            scalars=job.task.payload.scalars,
            arrays=received_arrays(job, dim),
            received=None if own is None else first,
            keeps_seen=uses_seen_features(config),
            augmentations=of_packages(config.training),
        ),
        public=inputs.public_images(config),
        int_lists={
            **_stage_lists(job),
            **({FEATURE_DIM: (dim,), **tensor_lists(model, list(first))} if is_first else {}),
        },
    )


def _trained(job: Job, model: nn.Module, inputs: RoundInputs) -> LocalTraining:
    """Train the model in place."""
    job.begin(ClientActivity.TRAINING)
    observer, data, site = _observer(job), job.loaded.train, job.site
    with job.timed("train_seconds"):
        if not site.further_devices or not inputs.method.phases(job.config.method):
            return local_train(model, data, inputs, observer)
        from fedplcc.trainer.devices.processes import group_of  # loads torch's distributed part

        # What a task of this site alone knows stays in this process.
        bare = replace(site, budget=None, policy=NO_POLICY)
        given = {name: getattr(inputs, name) for name in GIVEN}
        work = partial(train_part, bare, state_arrays(model), data.without_images(torch.device("cpu")), given)
        with group_of(
            [site.device, *site.further_devices], work, job.config.training.threads, job.should_stop
        ) as group:
            return local_train(model, data, inputs, observer, group)


def train_part(site: ClientSite, arrays: ModelArrays, data: DeviceImages, given: dict[str, Any], group: Group) -> None:
    """Train a copy of the model on a further device's parts of the mini-batches, in a process of its own.

    Args:
        given: Inputs of the training by name; see `GIVEN`.
    """
    config: RunConfig = given["config"]
    add_methods([config.run.method])
    model = site.new_own_model(config, with_weights=False)
    load_arrays(model, arrays)
    inputs = RoundInputs(**given, method=config.algorithm, rank=group.rank)
    local_train(model.to(group.device), data.without_images(group.device), inputs, group=group)


def _finished(work: Work, identity: str, inputs: TaskInputs, kept: ClientState | None) -> Finished:
    """Return the update with everything that it is to be sent with; `kept` is the client's state before it."""
    job, trained = work.job, work.trained
    assert trained is not None
    groups, encoded, state, blobs = _model_blobs(work, inputs, kept)
    if job.metrics is not None:
        job.metrics.clipped_steps.inc(trained.num_clipped_steps)
        job.metrics.prototypes.set(len(work.prototypes))
    steps = {"steps": float(trained.num_steps), "clipped_steps": float(trained.num_clipped_steps)}
    update = Update(
        client_id=job.site.client_id,
        payload=Payload(
            tensor_groups=(*groups, *sorted(work.uploads, key=lambda blob: blob.role)),
            prototype_sets=tuple(work.sets),
            int_lists=work.int_lists,
            encoded=encoded,
        ),
        num_examples=len(job.loaded.train),
        num_excluded=work.num_excluded,
        class_counts=job.loaded.class_counts,
        losses={**trained.losses, **work.losses},
        timings=dict(job.timings) | steps,
        num_prototypes=len(work.prototypes),
    )
    beside = {blob.sha256: data for blob, data in (work.uploads | work.sets).items()}
    if job.config.withholds:
        update = without_counts(update)
    keeps_state = job.config.keeps_client_state
    return Finished.of(job, identity, update, {**blobs, **beside}, keeps_state=keeps_state, state=state)


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
    work: Work, inputs: TaskInputs, kept: ClientState | None
) -> tuple[tuple[BlobRef, ...], BlobRef | None, BlobRef | None, dict[str, bytes]]:
    """Return the names of the model to send, of its encoding and of the client state to keep, and their bytes by SHA-256.

    Many methods keep the model that they send: the same bytes are hashed once and held once. Of a model that travels encoded
    only the encoding is held.
    """
    job, state = work.job, work.client_state
    method, hyper, section = job.config.algorithm, job.config.method, job.config.wire
    blobs: dict[str, bytes] = {}
    sent = encoded = None
    if method.shares_model(hyper):
        withheld = personal_names(work.model, method.withheld_part(hyper), job.config.model.name)
        arrays = {name: array for name, array in state_arrays(work.model).items() if name not in withheld}
        if section.is_encoded:
            data, encoding, left_out = encoded_update(arrays, inputs.round_start(job), kept, section)
            encoded, state = blob_ref(ENCODED, encoding), {**(state or {}), **left_out}
            blobs[encoded.sha256] = encoding
        else:
            data = to_bytes(arrays)
        sent = blob_ref(MODEL, data)
        if encoded is None:
            blobs[sent.sha256] = data
    named = None
    if state:
        data = to_bytes(state)
        is_sent = sent is not None and data == blobs.get(sent.sha256)
        named = replace(sent, role=CLIENT_STATE) if sent is not None and is_sent else blob_ref(CLIENT_STATE, data)
        blobs.setdefault(named.sha256, data)
    return () if sent is None else (sent,), encoded, named, blobs
