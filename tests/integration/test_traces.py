"""Traces of real processes: one for each round, from the command to the trainers, and through a kill."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple, Self

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from fedplcc.shared.process import traces
from tests.support.federation import tiny_federation
from tests.support.federation.forks import typed
from tests.support.federation.processes import Federation, eventually
from tests.support.federation.simulations import write_config

pytestmark = pytest.mark.slow

RUN_S = 120.0


class Collected(NamedTuple):
    """A span; ids as hexadecimal digits, the parent's empty for a round's own."""

    service: str
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    begin_ns: int
    end_ns: int
    facts: Mapping[str, str | int]


class TraceCollector:
    """The collector; it listens within its `with` block."""

    def __init__(self) -> None:
        self._lock, self._spans = threading.Lock(), list[Collected]()
        collector = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.take(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def spans(self) -> list[Collected]:
        """What came up to now."""
        with self._lock:
            return list(self._spans)

    def take(self, body: bytes) -> None:
        """Keep the spans of a request."""
        request = ExportTraceServiceRequest.FromString(body)
        found = [
            Collected(
                str(_facts(resource.resource.attributes)["service.name"]),
                span.trace_id.hex(),
                span.span_id.hex(),
                span.parent_span_id.hex(),
                span.name,
                span.start_time_unix_nano,
                span.end_time_unix_nano,
                _facts(span.attributes),
            )
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        with self._lock:
            self._spans += found


def _facts(attributes: object) -> dict[str, str | int]:
    return {each.key: _value(each.value) for each in attributes}  # type: ignore[attr-defined]


def _value(value: AnyValue) -> str | int:
    return value.int_value if value.HasField("int_value") else value.string_value


def test_a_round_is_followed_from_the_command_to_the_trainers_and_through_a_kill(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TraceCollector() as collector, Federation(tmp_path) as federation:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        federation.start_aggregator("--heartbeat-interval-s", "0.3")
        for name in tiny_federation.CLIENTS:
            federation.start_trainer(name, f"npz:{data / name}.npz")
        federation.start_gateway()
        config = write_config(tmp_path / "run.toml", tiny_federation.run_document(tiny_federation.document(data)))
        environment = {"XDG_CONFIG_HOME": str(federation.user_folder())}
        started = typed(
            *("run", "start", "--config", str(config), "--gateway", federation.gateway_url, "--json"),
            cwd=tmp_path,
            environment=environment,
        )
        assert started.returncode == 0, started.stderr
        run_id = json.loads(started.stdout)["run_id"]

        def spans(number: int) -> list[Collected]:
            return [span for span in collector.spans if span.trace_id == traces.trace_id(run_id, number)]

        eventually(lambda: any(span.name == "round" for span in spans(1)), "round 1 is traced", RUN_S)
        federation.processes["aggregator"].kill()
        federation.start_aggregator()
        eventually(lambda: federation.ask(f"/v1/runs/{run_id}")["status"] == "completed", "the run ends", RUN_S)
        eventually(lambda: any(span.name == "round" for span in spans(3)), "round 3 is traced", RUN_S)
        for process in federation.processes.values():
            process.end()
        by_number = {number: spans(number) for number in range(4)}

    of_start = {(span.service, span.name) for span in by_number[0] if span.parent_id}
    assert of_start >= {
        ("fedplcc-command", "fedplcc run start"),
        ("fedplcc-gateway", "POST /v1/runs"),
        ("fedplcc-aggregator", "fedplcc.v1.RunService/CreateRun"),
        ("fedplcc-trainer", "init"),
    }
    for number, found in by_number.items():
        (of_round,) = (span for span in found if not span.parent_id)
        assert of_round.name == ("round" if number else "run start")
        assert (of_round.facts["fedplcc.run_id"], of_round.facts["fedplcc.round"]) == (run_id, number)
        ids = {span.span_id for span in found}
        assert {span.parent_id for span in found} - {""} <= ids, "each span is within another of its trace"
        if not number:
            continue
        trained = [span for span in found if span.name == "train" and span.facts.get("fedplcc.outcome") == "done"]
        assert {span.facts["fedplcc.client_id"] for span in trained} == set(tiny_federation.CLIENTS)
        for span in trained:
            parts = Counter(part.name for part in found if part.parent_id == span.span_id)
            assert parts["training"]
            assert parts["uploading"]
            assert of_round.begin_ns <= span.begin_ns <= span.end_ns
    phases = [span for span in by_number[1] if span.service == "fedplcc-aggregator" and span.name == "aggregate"]
    assert len(phases) == 1
    lines = [
        json.loads(line) for line in federation.processes["trainer-" + tiny_federation.CLIENTS[0]].log().splitlines()
    ]
    ended = {
        line["round"]: line["trace_id"] for line in lines if line["event"] == "task_ended" and line["task"] == "train"
    }
    assert ended == {number: traces.trace_id(run_id, number) for number in (1, 2, 3)}
