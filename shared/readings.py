"""Readings: a trainer's measurements of itself in its heartbeats, with their units, meanings and bounds.

The trainer sends them, the aggregator checks them on arrival and exports them in its /metrics by client, gateway and command
show them. On the wire they are a map from name to number, so that a trainer of a later version may send more. A reading that
is not listed here is shown with its client, but becomes no metric and no label.

A reading that cannot be taken, or means nothing at the moment, is left out, never sent as zero: the speed of a client that
has not trained for a while, GPU readings without a GPU. An impossible number (from a faulty driver) is left out too, by the
aggregator at the latest; the rest of the heartbeat counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedplcc.shared.bounds import MAX_VALUE, is_bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Kind of measurement; its values are finite, from 0 to `most`."""

    name: str
    """Name in the heartbeat, with its unit."""
    text: str
    """Meaning, as a sentence."""
    metric: str
    """Name of the aggregator's metric, without the prefix."""
    most: float = MAX_VALUE
    """Largest value."""

    def is_possible(self, value: float) -> bool:
        """Whether the value is within the bounds."""
        return math.isfinite(value) and 0.0 <= value <= self.most


SAMPLES_PER_SECOND = Reading(
    name="samples_per_second",
    text="Samples that go through local training in a second, over its latest mini-batches.",
    metric="client_training_samples_per_second",
)
BATCH_SECONDS = Reading(
    name="batch_seconds",
    text="Seconds that a mini-batch of local training takes, over the latest ones.",
    metric="client_batch_seconds",
)
DATA_SECONDS = Reading(
    name="data_seconds",
    text="Seconds of a mini-batch in which training waits for its images, over the latest ones.",
    metric="client_data_seconds",
)
DEVICE_MEMORY_BYTES = Reading(
    name="device_memory_bytes",
    text="Memory in use on the GPU that the trainer computes on, whoever uses it.",
    metric="client_device_memory_bytes",
)
DEVICE_UTILISATION_RATIO = Reading(
    name="device_utilisation_ratio",
    text="Share of the time in which the GPU that the trainer computes on is at work, whoever uses it.",
    metric="client_device_utilisation_ratio",
    most=1.0,
)
PROCESS_RESIDENT_BYTES = Reading(
    name="process_resident_bytes",
    text="Memory of the trainer's process that is in use on its host.",
    metric="client_process_resident_bytes",
)
UNREADABLE_FILES = Reading(
    name="unreadable_files",
    text="Files of the client's data that could not be read.",
    metric="client_unreadable_files",
)

READINGS: Mapping[str, Reading] = {
    reading.name: reading
    for reading in (
        SAMPLES_PER_SECOND,
        BATCH_SECONDS,
        DATA_SECONDS,
        DEVICE_MEMORY_BYTES,
        DEVICE_UTILISATION_RATIO,
        PROCESS_RESIDENT_BYTES,
        UNREADABLE_FILES,
    )
}
"""Readings of this version, by name."""


def why_impossible(name: str, value: float) -> str | None:
    """Return why a reading cannot have this value, or None; an unknown reading may be any bounded number."""
    reading = READINGS.get(name)
    if math.isfinite(value) and not is_bounded(value):
        return f"{name} is {value!r}, and more than {MAX_VALUE:g} in magnitude"
    if reading is None:
        return None if math.isfinite(value) else f"{name} is {value:g}, and no finite number"
    if reading.is_possible(value):
        return None
    return f"{name} is {value:g}, and not {'at least 0' if reading.most == MAX_VALUE else f'0 to {reading.most:g}'}"
