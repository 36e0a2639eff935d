"""The record of one task in progress: what is asked, at which site, with which data, and whom to tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import perf_counter

from fedplcc.shared.config.run import DataSection, RunConfig, canonical_json
from fedplcc.shared.config.tables.stream import Place, StreamSection
from fedplcc.shared.tensors import sha256_hex
from fedplcc.shared.types import Client, ClientActivity, ClientProblem, RunSpec, Task, TaskKind
from fedplcc.shared.version import VERSION
from fedplcc.trainer.aggregator.port import AggregatorPort
from fedplcc.trainer.cancellation import ShouldStop, check
from fedplcc.trainer.data.record import DataRecord
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.owner.policy import NO_POLICY
from fedplcc.trainer.readings.metrics import TrainerMetrics
from fedplcc.trainer.readings.speed import Speed
from fedplcc.trainer.task.site import ClientSite

OnActivity = Callable[[ClientActivity, float], None]
"""Called with the part of the task that is in progress and the fraction of it that is done."""
OnProblem = Callable[[ClientProblem], None]
"""Called with a problem that the operator of the data should know although the task goes on."""
FIRST_ACTIVITY: Mapping[TaskKind, ClientActivity] = {
    TaskKind.INIT: ClientActivity.INITIALISING,
    TaskKind.TRAIN: ClientActivity.DOWNLOADING,
    TaskKind.EVALUATE: ClientActivity.DOWNLOADING,
}
"""First activity of a task; the data are read during it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageFacts:
    """The stage of a stream that a client's data are of.

    Attributes:
        ends: Number of test images up to the end of each stage seen so far.
        balanced_test: The client's part of the whole test set, where its data are a part of a larger set; may be empty.
        sha256: SHA-256 of the training images and their labels.
    """

    stream: StreamSection
    place: Place
    ends: tuple[int, ...]
    balanced_test: DeviceImages
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loaded:
    """The client's data under one run's data contract.

    Attributes:
        contract: The run's `[data]`.
        class_counts: Training images per class, in the contract's order.
        test: Test images; may be empty.
        validation: Training images that are set aside and never trained on; may be empty.
        own_classes: Classes that the client has training images of; with stages, in those seen so far.
        groups: The patient, lesion or camera of each training image; none where none are named.
        features: SHA-256 of what decides the features that stand for the images; None where the images are there.
    """

    contract: DataSection
    seed: int
    class_counts: tuple[int, ...]
    train: DeviceImages
    test: DeviceImages
    validation: DeviceImages
    own_classes: tuple[int, ...]
    record: DataRecord
    groups: tuple[str, ...] = ()
    features: bytes | None = None
    stage: StageFacts | None = None

    @property
    def is_damaged(self) -> bool:
        """Whether images in files were found to be damaged: the data are to be read again."""
        sets = [self.train, self.test, self.validation, *([] if self.stage is None else [self.stage.balanced_test])]
        return any(images.is_damaged for images in sets)

    @property
    def counts_by_name(self) -> dict[str, int]:
        """Training images by class name."""
        return dict(zip(self.contract.classes, self.class_counts, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """One task with everything that it needs besides its model and prototypes, which inputs.py fetches.

    Attributes:
        client: The client as it takes part in the run.
        aggregator: Where blobs come from and results go.
        metrics: Where to count; None for nowhere.
        should_stop: Asked before every batch and between the parts of the task.
        timings: Measurements of the task by name, in seconds, bytes and counts.
    """

    task: Task
    run: RunSpec
    config: RunConfig
    site: ClientSite
    client: Client
    loaded: Loaded
    aggregator: AggregatorPort
    speed: Speed
    metrics: TrainerMetrics | None
    should_stop: ShouldStop
    on_activity: OnActivity
    on_problem: OnProblem
    timings: dict[str, float] = field(default_factory=dict)

    @property
    def withholds_times(self) -> bool:
        """Whether the times of passes over images stay at the site."""
        return self.config.withholds or not self.site.policy.leaves.readings

    def begin(self, activity: ClientActivity) -> None:
        """Report the next part of the task.

        Raises:
            Cancelled: `should_stop()` holds.
        """
        check(self.should_stop)
        self.on_activity(activity, 0.0)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the block's seconds to the task's timings."""
        begin = perf_counter()
        yield
        self.add(name, perf_counter() - begin)

    def add(self, name: str, value: float) -> None:
        """Add to one of the task's timings."""
        self.timings[name] = self.timings.get(name, 0.0) + value

    def identity(self) -> str:
        """Return the SHA-256 of the facts that decide the update: equal identities mean the same work on the same data."""
        site = self.site
        stage = self.loaded.stage
        least = site.policy.thresholds
        aside = [] if site.validation_per_class is None else [site.validation_per_class]
        facts = {
            "client": site.client_id,
            "task": [*self.task.key[:3], self.run.config_hash],
            "blobs": [blob.sha256 for blob in self.task.payload.blobs],
            "data": [site.data, site.samples_per_class, *aside, *self.loaded.class_counts],
            **({"public": site.consent.public_data} if self.config.algorithm.uses_public(self.config.method) else {}),
            **({} if site.model is None else {"model": site.kind}),
            **({} if stage is None else {"stage": [stage.place.number, stage.place.stage, stage.sha256]}),
            **({} if least == NO_POLICY.thresholds else {"thresholds": least.model_dump()}),
            "environment": asdict(site.environment),
            "version": VERSION,
        }
        scalars = dict(self.task.payload.scalars)
        return sha256_hex(canonical_json({**facts, "scalars": scalars} if scalars else facts).encode())
