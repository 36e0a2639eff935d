"""The table of readings: what the edge leaves out, what it lets through, and that names say their units."""

from __future__ import annotations

import math

import pytest
from prometheus_client import CollectorRegistry, Gauge

from fedplcc.shared.readings import READINGS, why_impossible

UNITS = ("_per_second", "_seconds", "_bytes", "_ratio", "_files")


@pytest.mark.parametrize("name", READINGS)
def test_a_reading_has_a_unit_in_its_name_a_sentence_and_a_metric_of_a_client(name: str) -> None:
    reading = READINGS[name]
    assert reading.name == name
    assert name.endswith(UNITS)
    assert reading.text.endswith(".")
    assert reading.metric.startswith("client_")
    assert reading.metric.endswith(name)
    Gauge(f"fedplcc_{reading.metric}", reading.text, ["client"], registry=CollectorRegistry())


@pytest.mark.parametrize("name", READINGS)
def test_a_reading_is_at_least_zero_and_finite(name: str) -> None:
    reading = READINGS[name]
    assert reading.is_possible(0.0)
    assert reading.is_possible(1.0)
    assert not any(map(reading.is_possible, (-0.001, math.nan, math.inf, -math.inf)))


def test_what_is_out_of_bounds_is_said_with_its_bounds() -> None:
    assert why_impossible("batch_seconds", 0.1) is None
    assert why_impossible("device_utilisation_ratio", 1.0) is None
    assert why_impossible("batch_seconds", -1.0) == "batch_seconds is -1, and not at least 0"
    assert why_impossible("device_utilisation_ratio", 1.5) == "device_utilisation_ratio is 1.5, and not 0 to 1"


def test_a_reading_of_a_later_version_may_be_any_finite_number() -> None:
    assert why_impossible("battery_kelvin", -5.0) is None
    assert why_impossible("battery_kelvin", math.nan) == "battery_kelvin is nan, and no finite number"
