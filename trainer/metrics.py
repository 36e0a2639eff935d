"""The trainer's Prometheus metrics. Every known label combination is there from the start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from shared.metrics import PHASE_SECONDS, PREFIX
from shared.types import TaskKind

BATCH_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Buckets of a mini-batch's duration."""
WORK = (TaskKind.INIT, TaskKind.TRAIN, TaskKind.EVALUATE)
"""Tasks that are work."""
OUTCOMES = ("done", "cancelled", "failed")
DIRECTIONS = ("sent", "received")
KINDS = ("model", "prototypes")
OPERATIONS = ("join", "download", "upload", "commit", "report")
"""What is retried when the aggregator is away."""


class TrainerMetrics:
    """What a trainer counts and measures."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{PREFIX}_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"{PREFIX}_{name}", text, registry=registry)

        self.samples = counter("training_samples_total", "Samples that went through local training.")
        self.clipped_steps = counter(
            "training_clipped_steps_total", "Steps of local training whose gradient was longer than clip_norm."
        )
        self.samples_per_second = gauge("training_samples_per_second", "Speed of the last mini-batches of training.")
        self.batch_seconds = Histogram(
            f"{PREFIX}_training_batch_seconds",
            "Duration of a mini-batch of local training.",
            registry=registry,
            buckets=BATCH_SECONDS,
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
        self.retries = counter("retries_total", "Attempts after the first.", "operation")
        self.prototypes = gauge("local_prototypes", "Prototypes of the last local training.")
        self.unreadable_files = gauge("unreadable_files", "Files of the data set that could not be read.")
        self.is_connected = gauge("aggregator_connected", "Whether the aggregator answers: 1 or 0.")
        for kind in WORK:
            self.task_seconds.labels(kind.value)
            for outcome in OUTCOMES:
                self.tasks.labels(kind.value, outcome)
        for direction in DIRECTIONS:
            self.transfers_resumed.labels(direction)
            for what in KINDS:
                self.transfer_bytes.labels(direction, what)
        for operation in OPERATIONS:
            self.retries.labels(operation)

    @contextmanager
    def task(self, kind: TaskKind) -> Iterator[None]:
        """Measure a task; one that raises is not observed here but counted by its outcome."""
        begin = perf_counter()
        yield
        self.task_seconds.labels(kind.value).observe(perf_counter() - begin)

    def batch_done(self, num_examples: int, seconds: float) -> None:
        """Record one mini-batch of training."""
        self.samples.inc(num_examples)
        self.batch_seconds.observe(seconds)
        if seconds > 0:
            self.samples_per_second.set(num_examples / seconds)
