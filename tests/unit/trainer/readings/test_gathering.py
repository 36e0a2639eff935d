"""Readings of a trainer: those of all sources, and never a failure or an impossible number."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

import pytest

from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.readings import why_impossible
from fedplcc.trainer.readings.gathering import Readings, process_readings
from fedplcc.trainer.readings.metrics import TrainerMetrics


def test_the_readings_of_all_sources_are_told_as_they_are_at_the_moment() -> None:
    speed = {"samples_per_second": 3.0}
    readings = Readings(training=lambda: speed, device=lambda: {"device_memory_bytes": 1e9})
    assert readings() == {"samples_per_second": 3.0, "device_memory_bytes": 1e9}
    speed.clear()
    assert readings() == {"device_memory_bytes": 1e9}


def test_a_source_that_fails_is_left_out_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedplcc.trainer.readings.gathering")

    def broken() -> Mapping[str, float]:
        raise OSError("the driver is gone")

    readings = Readings(device=broken, training=lambda: {"batch_seconds": 0.5})
    assert [readings() for _ in range(3)] == [{"batch_seconds": 0.5}] * 3
    (record,) = caplog.records
    assert "device" in record.getMessage()
    assert "the driver is gone" in record.getMessage()


@pytest.mark.parametrize(
    ("name", "value"),
    [("batch_seconds", math.nan), ("batch_seconds", -1.0), ("device_utilisation_ratio", 1.01), ("battery_kelvin", 3.0)],
)
def test_what_the_aggregator_would_refuse_or_not_know_is_left_out(name: str, value: float) -> None:
    readings = Readings(training=lambda: {name: value, "unreadable_files": 0.0})
    assert readings() == {"unreadable_files": 0.0}


def test_this_process_has_memory_and_what_it_tells_is_possible() -> None:
    readings = process_readings()
    assert readings["process_resident_bytes"] > 10e6
    assert [why_impossible(name, value) for name, value in readings.items()] == [None] * len(readings)


def test_metrics_show_a_device_only_where_something_is_read_of_it_and_an_idle_trainer_at_zero() -> None:
    registry = new_registry("trainer")
    metrics = TrainerMetrics(registry)
    told: dict[str, float] = {}
    metrics.follow(lambda: told)

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"fedplcc_{name}")

    assert value("training_samples_per_second") == 0.0
    assert value("device_memory_bytes") is None
    assert value("device_utilisation_ratio") is None
    told.update(samples_per_second=64.0, device_memory_bytes=2e9, device_utilisation_ratio=0.75)
    assert value("training_samples_per_second") == 64.0
    assert value("device_memory_bytes") == 2e9
    assert value("device_utilisation_ratio") == 0.75


def test_every_series_of_a_trainer_is_there_from_the_start_and_they_are_few() -> None:
    registry = new_registry("trainer")
    TrainerMetrics(registry)
    series = [sample for family in registry.collect() for sample in family.samples]
    for kind in ("init", "train", "evaluate"):
        for outcome in ("done", "cancelled", "failed"):
            assert registry.get_sample_value("fedplcc_tasks_total", {"kind": kind, "outcome": outcome}) == 0
    for direction in ("sent", "received"):
        assert registry.get_sample_value("fedplcc_transfer_resent_bytes_total", {"direction": direction}) == 0
    for operation in ("join", "download", "upload", "commit", "report"):
        assert registry.get_sample_value("fedplcc_retries_total", {"operation": operation}) == 0
    assert len(series) < 250
