from __future__ import annotations

import logging
import sys

import pytest

from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.process import traces


@pytest.fixture(autouse=True)
def _off_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_tracer", None)
    for name in traces.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)


def test_the_id_follows_from_run_and_round() -> None:
    # The first 16 bytes of SHA-256; trainers and aggregators of other versions must make the same.
    assert traces.trace_id("run-1", 3) == "3a62e8b25eb4c70dd71b7b0b7b6d3d57"
    assert len({traces.trace_id(run, number) for run in ("a", "b", "a1") for number in (0, 1, 11)}) == 9


def test_nothing_is_recorded_unless_a_collector_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    traces.set_up("aggregator")
    assert not traces.is_on()
    traces.record(traces.ended("a call", 1.0), "run-1", 1)
    monkeypatch.setenv(traces.ENDPOINTS[1], "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    traces.set_up("aggregator")
    assert not traces.is_on()


def test_a_collector_without_the_packages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(traces.ENDPOINTS[0], "http://127.0.0.1:9/v1/traces")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(InvalidConfig, match=r"pip install 'fedplcc\[traces\]'"):
        traces.set_up("trainer")


def test_a_collector_that_is_away_costs_a_line_a_minute_and_nobody_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(traces.ENDPOINTS[1], "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "16")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    traces.set_up("aggregator")
    with caplog.at_level(logging.WARNING):
        for number in range(500):
            traces.record(traces.ended("a call", 1.0), "run-1", number, parts=[traces.ended("a part", 0.5)])
        traces._tracer.span_processor.shutdown()  # type: ignore[union-attr]
    assert [record.levelno for record in caplog.records] in ([], [logging.ERROR])
