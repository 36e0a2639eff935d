"""A collector of traces on loopback, which keeps the spans that come by OTLP over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
