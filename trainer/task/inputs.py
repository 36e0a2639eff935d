"""Inputs of a client's tasks: the run's configuration, the client's data, and the model and prototypes of the round."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import cast

import numpy as np
from torch import nn

from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.config.tables.stream import FIRST, PASS, STAGE, Place
from fedplcc.shared.errors import CodeNotAllowed, MalformedRequest
from fedplcc.shared.methods import refusal
from fedplcc.shared.methods.arrays import ModelArrays
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.tensors import from_bytes
from fedplcc.shared.types import (
    MODEL,
    PUBLIC_DATA,
    BlobRef,
    ClientActivity,
    ClientProblem,
    RunSpec,
    Task,
    TaskKind,
)
from fedplcc.trainer.cancellation import ShouldStop, never
from fedplcc.trainer.data import ClientData, ImageSet, StreamData, load_dataset, read_stream
from fedplcc.trainer.data.images.store import IMAGES, ImageStore
from fedplcc.trainer.data.names import listed
from fedplcc.trainer.data.reading import OnShare, Reader
from fedplcc.trainer.data.record import TEST, TRAIN, VALIDATION, DataRecord
from fedplcc.trainer.features.cache import FeatureCache
from fedplcc.trainer.features.extraction import Extraction, features_facts, view_facts
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.public_images import PublicImages
from fedplcc.trainer.models import TimmModel, load_arrays, state_arrays
from fedplcc.trainer.owner.approval.asked import document_of
from fedplcc.trainer.readings.metrics import TrainerMetrics
from fedplcc.trainer.reproducibility.randomness import derive_seed
from fedplcc.trainer.task.job import Job, Loaded, OnActivity, OnProblem, StageFacts
from fedplcc.trainer.task.models.fetched_model import FetchedModel
from fedplcc.trainer.task.models.first_model_check import check_first_model, comes_with_first_model
from fedplcc.trainer.task.models.latest_model import LatestModel
from fedplcc.trainer.task.received import fetched_for_all, fetched_model
from fedplcc.trainer.task.site import ClientSite

log = get_logger("fedplcc.trainer.task.inputs")

FEATURES = "features.sqlite"
"""Features of this host's images, beside the backbones that they were computed with."""


@dataclass(frozen=True, slots=True)
class HeldModel:
    """A model that the client has: that of the latest task; with the run and the round that begins with it."""

    blob: BlobRef
    data: bytes
    begins: tuple[str, int]


class TaskInputs:
    """Inputs of one client's tasks; keeps those that the next task needs again. For one thread."""

    def __init__(
        self,
        site: ClientSite,
        metrics: TrainerMetrics | None,
        *,
        keeps_evaluated: bool,
        latest_model: LatestModel | None,
    ) -> None:
        """Prepare; nothing is read or fetched. See `TaskRunner` for the arguments."""
        self._site, self._metrics = site, metrics
        self._keeps_evaluated, self._latest_model = keeps_evaluated, latest_model
        self._known_models = latest_model or LatestModel()
        self._configs: dict[str, RunConfig] = {}
        self._loaded: Loaded | None = None
        self._stream: StreamData | None = None
        self._public: PublicImages | None = None
        self._features = FeatureCache(site.consent.weights.folder / FEATURES)
        self._images = ImageStore(site.consent.weights.folder / IMAGES)
        self._held: HeldModel | None = None
        self.num_unreadable: int | None = None
        """Files of the data set that could not be read; None before any was tried."""

    def config(self, run: RunSpec) -> RunConfig:
        """Return the run's configuration; the latest is kept, because it is the same for every round.

        Raises:
            MalformedRequest: The configuration does not have its SHA-256, or is no document of a run.
            CodeNotAllowed: Its method or an augmentation is of another package that the owner of this site has not listed.
            InvalidConfig: It is no configuration of a run.
        """
        # First: the owner's yes is to the text, and one hash beside another text would bring back another configuration.
        if hashlib.sha256(run.config_json.encode()).hexdigest() != run.config_hash:
            raise MalformedRequest("the run's configuration does not have its SHA-256", field="config_json")
        known = self._configs.get(run.config_hash)
        if known is not None:
            return known
        document = document_of(run.config_json)
        refused = refusal(document["run"]["method"])
        if refused is not None:
            raise CodeNotAllowed(refused)
        config = parse_run_config(document)
        for name in config.training.augmentation_code:
            self._site.consent.check_code(name)
        self._configs = {run.config_hash: config}
        return config

    def data(
        self,
        config: RunConfig,
        on_problem: OnProblem | None,
        place: Place | None = None,
        began: DataRecord | None = None,
        should_stop: ShouldStop = never,
        on_share: OnShare = lambda done: None,
        *,
        anew: bool = False,
    ) -> Loaded:
        """Return the client's data under the run's data contract; the latest are kept.

        Args:
            on_problem: Told of files that cannot be read.
            place: The stage, in a run that has stages.
            began: The images that a run began with which goes on in a process of its own, where it has no stages.
            should_stop: Asked while images are read, many images a second.
            on_share: Told of the fraction of them that is read.
            anew: Whether to read the folders as they are now, as a new run does.

        Raises:
            InvalidData: The data set cannot be read or does not fit the contract.
            DiskFull, StoreUnavailable: Its images are more than memory is to hold, and cannot be kept on the disk.
            Cancelled: `should_stop()` held.
        """
        if anew:
            self._loaded = self._stream = self._public = None
        known = self._loaded
        if known is not None and known.is_damaged:
            known = self._stream = None
        if known is not None and (known.contract, known.seed) == (config.data, config.run.seed):
            of = None if known.stage is None else (known.stage.stream, known.stage.place)
            is_of_run = began is None or known.record.sha256 == began.sha256
            is_of_run &= known.features in (None, self._features_of(config))
            if is_of_run and of == (None if place is None else (config.stream, place)):
                return known
        self._loaded = None  # frees the images before others are read
        begin, reader = perf_counter(), Reader(store=self._images, should_stop=should_stop, on_share=on_share)
        if place is None:
            data: ClientData | StreamData
            data, loaded = _loaded(self._site, config, began, reader)
        else:
            data = self._of_stages(config, range(1, place.seen(config.stream.stages) + 1), reader)
            loaded = _loaded_at(place, data, self._site, config)
        log.info(
            "data_loaded",
            client_id=self._site.client_id,
            num_examples=len(loaded.train),
            num_test_examples=len(loaded.test),
            num_validation_examples=len(loaded.validation),
            num_unreadable=len(data.unreadable),
            image_bytes=sum(part.nbytes for part in (loaded.train, loaded.test, loaded.validation)),
            train_images_on=loaded.train.place,
            test_images_on=loaded.test.place,
            note=data.note,
            duration_s=round(perf_counter() - begin, 3),
        )
        self._report_unreadable(data, config.data.classes, on_problem)
        for key, why in data.idle.items():
            log.warning("data_remark", client_id=self._site.client_id, remark=f"{why}: {key} does nothing here")
        if isinstance(data, ClientData) and data.arrived:
            self._report_arrived(data.arrived, on_problem)
        self._loaded = loaded
        return loaded

    def on_features(
        self, config: RunConfig, loaded: Loaded, should_stop: ShouldStop, on_activity: OnActivity
    ) -> Loaded:
        """Return the client's data with features of the frozen backbone in place of images, where the run trains on such.

        The images are then freed, and the features kept for the next task.

        Raises:
            WeightsMissing: The site has not the backbone.
            InvalidModel: It cannot be made, or gives features that are not finite.
            Cancelled: `should_stop()` held.
        """
        if not config.training.on_features or loaded.features is not None:
            return loaded
        extraction, stage = self._extraction(config), loaded.stage
        sets = [loaded.train, loaded.test, loaded.validation, *([] if stage is None else [stage.balanced_test])]
        views = [config.training.views, *(0 for _ in sets[1:])]
        rows = [len(images) * (num + 1) for images, num in zip(sets, views, strict=True)]
        num_rows, made = max(1, sum(rows)), list[DeviceImages]()
        for images, num_views in zip(sets, views, strict=True):
            begin, share = sum(rows[: len(made)]) / num_rows, rows[len(made)] / num_rows

            def on_share(done: float, begin: float = begin, share: float = share) -> None:
                on_activity(ClientActivity.EXTRACTING, begin + share * done)

            made.append(extraction.features(images, should_stop, on_share, num_views=num_views))
        train, test, validation, *balanced = made
        self._loaded = replace(
            loaded,
            train=train,
            test=test,
            validation=validation,
            features=self._features_of(config),
            stage=None if stage is None else replace(stage, balanced_test=balanced[0]),
        )
        return self._loaded

    def _extraction(self, config: RunConfig) -> Extraction:
        model = cast(TimmModel, self._site.new_model(config, with_weights=False))
        assert model.frozen is not None, "the run trains above a frozen backbone"
        facts = features_facts(config, self._site.environment)
        return Extraction(backbone=model.frozen, facts=facts, config=config, cache=self._features)

    def _features_of(self, config: RunConfig) -> bytes | None:
        """All that decides the features of an image and of its copies; None where the run trains on images."""
        if not config.training.on_features:
            return None
        return features_facts(config, self._site.environment) + view_facts(config, config.training.views)

    def class_counts(self, config: RunConfig, on_problem: OnProblem | None) -> tuple[int, ...]:
        """Return the client's training images of each class, in all stages of the run.

        Raises:
            InvalidData: See `data`.
        """
        if not config.stream.is_stream:
            return self.data(config, on_problem).class_counts
        found = self._of_stages(config, range(1, config.stream.stages + 1), Reader(store=self._images))
        self._report_unreadable(found, config.data.classes, on_problem)
        return found.of_large_classes(self._site.policy.thresholds.class_images).class_counts()

    def _of_stages(self, config: RunConfig, stages: Iterable[int], reader: Reader) -> StreamData:
        """Return the data of some stages; those of all stages are read once and kept where the run never reads anew."""
        section, site = config.stream, self._site
        known = self._stream
        if known is not None and (known.stream, known.contract, known.seed) == (section, config.data, config.run.seed):
            return known
        self._stream = None
        is_kept = section.reload == "never"
        found = read_stream(
            site.data,
            range(1, section.stages + 1) if is_kept else stages,
            stream=section,
            contract=config.data,
            samples_per_class=site.samples_per_class,
            fraction=site.fraction,
            validation_per_class=site.validation_per_class,
            evaluate_only=site.evaluate_only,
            client_id=site.client_id,
            seed=config.run.seed,
            reader=reader,
        )
        self._stream = found if is_kept else None
        return found

    def public_images(self, config: RunConfig) -> PublicImages | None:
        """Return the run's public images at this site; the latest are kept. None where the run uses none.

        Raises:
            DataNotAllowed: The owner of the site named none.
            InvalidData: They cannot be read.
        """
        if not config.algorithm.uses_public(config.method):
            return None
        known = self._public
        is_of_run = known is not None and (known.section, known.contract) == (config.public, config.data)
        if known is None or not is_of_run or known.images.is_damaged:
            spec = self._site.consent.public_images(config.public.data)
            known = PublicImages.load(spec, config.public, config.data, self._site.device, Reader(store=self._images))
            self._public = known
        return known

    def public_lists(self, config: RunConfig) -> dict[str, tuple[int, ...]]:
        """Return the integer list of an update that says which public images the client has; none where the run uses none.

        Raises:
            DataNotAllowed, InvalidData: See `public_images`.
        """
        public = self.public_images(config)
        return {} if public is None else {PUBLIC_DATA: tuple(public.sha256)}

    def received_model(self, job: Job) -> FetchedModel:
        """Return the model that the task comes with; it is fetched at the first look into it.

        The first model of a run is then also made here, and compared: see first_model_check.py.
        """
        return FetchedModel(lambda: self._received(job))

    def made_first_model(self, job: Job, model: BlobRef) -> None:
        """Remember a first model that this site made, or found to be as it would make it."""
        self._known_models.made_here(job.run.config_hash, model)

    def _received(self, job: Job) -> ModelArrays:
        blob = job.task.payload.tensor_group(MODEL)
        if blob is None:
            raise MalformedRequest(f"a task {job.task.kind} comes with a model", field="payload")
        arrays = from_bytes(self._model_bytes(job, blob))
        if comes_with_first_model(job) and not self._known_models.is_made_here(job.run.config_hash, blob):
            check_first_model(job, arrays)
            self.made_first_model(job, blob)
        return arrays

    def first_model(self, job: Job) -> FetchedModel:
        """Return the model that training starts from where the client keeps none of its own yet.

        It is the model that the task comes with; for a client with its own kind it is made of specification and seed, in
        every round the same, as the round's model is where models are not shared.
        """
        if job.site.model is None:
            return self.received_model(job)
        return FetchedModel(lambda: state_arrays(job.site.new_own_model(job.config, with_weights=True)))

    def round_start(self, job: Job) -> ModelArrays:
        """Return the model that the round's training began with, which the client holds where models travel encoded."""
        blob = job.task.payload.tensor_group(MODEL)
        assert blob is not None, "the client has trained from it"
        held, data = self._held, None
        if held is not None and held.blob == blob:
            data = held.data or self._known_models.get(blob)
        return from_bytes(data or self._model_bytes(job, blob))

    def _model_bytes(self, job: Job, blob: BlobRef) -> bytes:
        job.begin(ClientActivity.DOWNLOADING)
        held, self._held = self._held, None
        is_held = held is not None and held.blob == blob
        base = held if held is not None and held.begins == _base_of(job) else None
        if self._latest_model is not None:
            of = None if base is None else base.blob
            data = fetched_for_all(job, blob, self._latest_model, counts=not is_held, base=of)
        elif held is not None and is_held:
            data = held.data
        else:
            data = fetched_model(job, blob, None if base is None else base.data)
        is_evaluated = job.task.kind is TaskKind.EVALUATE
        if is_evaluated or job.config.wire.is_encoded:
            begins = (job.run.run_id, job.task.round + is_evaluated)
            if self._latest_model is not None:
                self._held = HeldModel(blob, b"", begins)  # its bytes are kept once for all clients of the process
            elif self._keeps_evaluated:
                self._held = HeldModel(blob, data, begins)
        return data

    def _report_unreadable(
        self, data: ClientData | StreamData, classes: Sequence[str], on_problem: OnProblem | None
    ) -> None:
        count = len(data.unreadable)
        self.num_unreadable = count
        if self._metrics is not None:
            self._metrics.unreadable_files.set(count)
        if count:
            names = {side: listed([classes[i] for i in sorted(of)]) for side, of in data.lost.items() if of}
            lost = "".join(f"; no {side} image of {of} is left" for side, of in names.items())
            first, policy = data.unreadable[0], self._site.policy
            log.warning("unreadable_files", client_id=self._site.client_id, count=count, first=first, lost=names)
            if on_problem is not None:
                on_problem(
                    ClientProblem(
                        reason="UNREADABLE_FILES",
                        detail=f"{count} of the data set's files could not be read and are left out"
                        + (lost if policy.leaves.class_counts and policy.thresholds.class_images == 1 else ""),
                        hint="the log of this trainer names the first one, and `fedplcc data describe SPEC --check` all; "
                        "mend or remove them",
                    )
                )

    def _report_arrived(self, names: Sequence[str], on_problem: OnProblem | None) -> None:
        log.warning("data_changed", client_id=self._site.client_id, num_arrived=len(names), first=names[0])
        if on_problem is not None:
            on_problem(
                ClientProblem(
                    reason="DATA_CHANGED",
                    detail=f"the data have changed: {len(names)} images arrived after the run began and are left out",
                    hint="a new run trains on them, or stages that read anew do (stream.reload); the log names the first",
                )
            )


def _base_of(job: Job) -> tuple[str, int]:
    """Return the run and round that began with the model of which the task's encoded model is the difference."""
    return job.run.run_id, job.task.round - (job.task.kind is TaskKind.TRAIN)


def model_with(job: Job, arrays: ModelArrays, *, is_own: bool = True) -> nn.Module:
    """Return a model that holds these arrays, on the site's device.

    Args:
        is_own: Whether they are of the client's own kind, if it has one; else they are of the run's specification.
    """
    arrays = dict(arrays)  # a download happens here, before the clock runs
    with job.timed("build_seconds"):
        make = job.site.new_own_model if is_own else job.site.new_model
        model = make(job.config, with_weights=False)
        load_arrays(model, arrays)
        return model.to(job.site.device)


def _loaded(site: ClientSite, config: RunConfig, began: DataRecord | None, reader: Reader) -> tuple[ClientData, Loaded]:
    """Read the data set, and put its images where they are trained on."""
    data = load_dataset(
        site.data,
        contract=config.data,
        samples_per_class=site.samples_per_class,
        fraction=site.fraction,
        validation_per_class=site.validation_per_class,
        evaluate_only=site.evaluate_only,
        seed=derive_seed("subset", config.run.seed, site.client_id),
        began=began,
        reader=reader,
    )
    used = data.of_large_classes(site.policy.thresholds.class_images)
    loaded = Loaded(
        contract=config.data,
        seed=config.run.seed,
        class_counts=used.class_counts,
        train=DeviceImages.put(used.train, config.data, site.device),
        test=DeviceImages.put(data.test, config.data, site.device),
        validation=DeviceImages.put(data.validation, config.data, site.device),
        own_classes=tuple(label for label, count in enumerate(used.class_counts) if count),
        record=_record(data.train, data.validation, data.test),
        groups=used.train.groups,
    )
    return data, loaded


def _record(train: ImageSet, validation: ImageSet, test: ImageSet) -> DataRecord:
    return DataRecord.of(
        {
            side: (images.marks, images.labels_N.tolist())
            for side, images in ((TRAIN, train), (VALIDATION, validation), (TEST, test))
        }
    )


def _loaded_at(place: Place, data: StreamData, site: ClientSite, config: RunConfig) -> Loaded:
    """Return the client's data of a stage, with its images where they are trained on."""
    found = data.at(place)
    used = data.of_large_classes(site.policy.thresholds.class_images).at(place)

    def put(images: ImageSet) -> DeviceImages:
        return DeviceImages.put(images, config.data, site.device)

    return Loaded(
        contract=config.data,
        seed=config.run.seed,
        class_counts=tuple(np.bincount(used.train.labels_N, minlength=len(config.data.classes)).tolist()),
        train=put(used.train),
        test=put(found.test),
        validation=put(found.validation),
        own_classes=used.own_classes,
        record=_record(found.train, found.validation, found.test),
        stage=StageFacts(
            stream=config.stream,
            place=place,
            ends=found.ends,
            balanced_test=put(data.balanced_test),
            sha256=used.sha256,
        ),
    )


def place_of(task: Task, config: RunConfig) -> Place | None:
    """Return the place of a task in the run's stream, the first one for round 0; None where the run has no stages.

    Raises:
        MalformedRequest: The task does not say it, or says one that there is not.
    """
    stream, scalars = config.stream, task.payload.scalars
    if not stream.is_stream:
        return None
    if task.kind is TaskKind.INIT:
        return FIRST
    number, stage = scalars.get(PASS, 0), scalars.get(STAGE, 0)
    if not (1 <= number <= stream.passes and 1 <= stage <= stream.stages):
        raise MalformedRequest(
            f"the task is of pass {number:g}, stage {stage:g}, and the run has {stream.passes} of {stream.stages}",
            field="payload",
        )
    return Place(int(number), int(stage))
