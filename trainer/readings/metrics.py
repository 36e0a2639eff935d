"""Prometheus metrics of the trainer. Every known combination of labels has a value from the start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fedplcc.shared.process.certificate_metrics import CertificateMetrics
from fedplcc.shared.process.metrics import PHASE_SECONDS, PREFIX
from fedplcc.shared.readings import DEVICE_MEMORY_BYTES, DEVICE_UTILISATION_RATIO, SAMPLES_PER_SECOND
from fedplcc.shared.types import TaskKind

BATCH_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Buckets of a mini-batch's duration."""
DATA_SECONDS = (0.0001, 0.00025, 0.0005, *BATCH_SECONDS)
"""Buckets of the part of it that is spent waiting for images; short where loading keeps up."""
WORK = (TaskKind.INIT, TaskKind.TRAIN, TaskKind.EVALUATE)
"""Kinds of tasks that are work."""
OUTCOMES = ("done", "cancelled", "failed")
DIRECTIONS = ("sent", "received")
KINDS = ("model", "prototypes")
OPERATIONS = ("join", "download", "upload", "commit", "report")
"""Operations that are retried."""


class TrainerMetrics:
    """Counters, gauges and histograms of one trainer."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{PREFIX}_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"{PREFIX}_{name}", text, registry=registry)

        self.samples = counter("training_samples_total", "Samples that went through local training.")
        self.clipped_steps = counter(
            "training_clipped_steps_total", "Steps of local training whose gradient was longer than clip_norm."
        )
        self.batch_seconds = Histogram(
            f"{PREFIX}_training_batch_seconds",
            "Duration of a mini-batch of local training.",
            registry=registry,
            buckets=BATCH_SECONDS,
        )
        self.data_seconds = Histogram(
            f"{PREFIX}_training_data_seconds",
            "What of a mini-batch's duration training waited for its images.",
            registry=registry,
            buckets=DATA_SECONDS,
        )
        self.task_seconds = Histogram(
            f"{PREFIX}_task_duration_seconds",
            "Duration of a task from its start to its acknowledged end.",
            ["kind"],
            registry=registry,
            buckets=PHASE_SECONDS,
        )
        self.tasks = counter("tasks_total", "Tasks by kind and outcome.", "kind", "outcome")
        self.transfer_bytes = counter("transfer_bytes_total", "Payload bytes moved.", "direction", "kind")
        self.transfers_resumed = counter(
            "transfers_resumed_total", "Transfers that went on from an offset.", "direction"
        )
        self.resent_bytes = counter(
            "transfer_resent_bytes_total",
            "Payload bytes that were moved before, by a transfer that broke.",
            "direction",
        )
        self.retries = counter("retries_total", "Attempts after the first.", "operation")
        self.prototypes = gauge("local_prototypes", "Prototypes of the last local training.")
        self.unreadable_files = gauge("unreadable_files", "Files of the data set that could not be read.")
        self.epsilon_spent = gauge(
            "privacy_epsilon_spent", "Epsilon of all releases of this client over all runs, with its delta."
        )
        self.is_connected = gauge("aggregator_connected", "Whether the aggregator answers: 1 or 0.")
        self._latest = _Latest()
        registry.register(self._latest)
        self.certificates = CertificateMetrics(registry)
        for kind in WORK:
            self.task_seconds.labels(kind.value)
            for outcome in OUTCOMES:
                self.tasks.labels(kind.value, outcome)
        for direction in DIRECTIONS:
            self.transfers_resumed.labels(direction)
            self.resent_bytes.labels(direction)
            for what in KINDS:
                self.transfer_bytes.labels(direction, what)
        for operation in OPERATIONS:
            self.retries.labels(operation)

    @contextmanager
    def task(self, kind: TaskKind) -> Iterator[None]:
        """Measure the duration of a task; one that raises is only counted, by its outcome."""
        begin = perf_counter()
        yield
        self.task_seconds.labels(kind.value).observe(perf_counter() - begin)

    def batch_done(self, num_examples: int, seconds: float, data_seconds: float | None) -> None:
        """Record one mini-batch of training."""
        self.samples.inc(num_examples)
        self.batch_seconds.observe(seconds)
        if data_seconds is not None:
            self.data_seconds.observe(data_seconds)

    def follow(self, readings: Callable[[], Mapping[str, float]]) -> None:
        """Show these readings, read anew at every scrape."""
        self._latest.readings = readings


class _Latest(Collector):
    """Present readings as series. A missing reading has no series, except the speed, which is 0 for an idle trainer."""

    def __init__(self) -> None:
        self.readings: Callable[[], Mapping[str, float]] = dict

    def collect(self) -> Iterator[Metric]:
        readings = self.readings()
        speed = readings.get(SAMPLES_PER_SECOND.name, 0.0)
        text = f"{SAMPLES_PER_SECOND.text} 0 where it has not trained for a while."
        yield GaugeMetricFamily(f"{PREFIX}_training_samples_per_second", text, value=speed)
        for reading in (DEVICE_MEMORY_BYTES, DEVICE_UTILISATION_RATIO):
            yield GaugeMetricFamily(f"{PREFIX}_{reading.name}", reading.text, value=readings.get(reading.name))
