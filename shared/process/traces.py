"""Traces of rounds, for a collector that the owner of a process names by OpenTelemetry's own variables.

A trace is a round of a run; that of round 0 also holds the run's start and whatever steers it. Its id follows from the run
and the round: command, gateway, aggregator and trainers agree on it without a word on the wire, a process that was killed
goes on in the same trace, and no caller chooses an id. Sampling by it keeps the same rounds everywhere, so the hash stays
between versions. Spans name runs, rounds, clients and calls, as log lines do.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables of which one names the collector, as OTLP over HTTP; without them there are no traces."""
EXPORT_S = 2.0
"""Longest attempt to reach the collector, unless OTEL_EXPORTER_OTLP_TIMEOUT is set; a process that ends waits for it."""
LINE_S = 60.0
"""Shortest time between two lines about a collector that cannot be reached."""
MAX_PARTS = 64
"""Most parts of a span."""

_tracer: Tracer | None = None
_ids: ContextVar[tuple[int, int] | None] = ContextVar("ids", default=None)


class Part(NamedTuple):
    """A named time within a span; seconds since the epoch."""

    name: str
    begin: float
    end: float


def is_on() -> bool:
    """Whether this process records spans."""
    return _tracer is not None


def trace_id(run_id: str, number: int) -> str:
    """Return the id of a round's trace, 32 hexadecimal digits."""
    return _digest(run_id, number)[:32]


def set_up(service: str) -> None:
    """Record spans from now on, if the environment names a collector.

    Raises:
        InvalidConfig: It does, and the packages of the extra `traces` are missing.
    """
    global _tracer
    named = next(filter(os.environ.get, ENDPOINTS), None)
    if named is None or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    except ImportError as error:
        raise InvalidConfig(f"{named} needs the package {error.name}: pip install 'fedplcc[traces]'") from error

    class Ids(RandomIdGenerator):
        """The ids of a round's own span, and random ones of all others."""

        def generate_trace_id(self) -> int:
            found = _ids.get()
            return super().generate_trace_id() if found is None else found[0]

        def generate_span_id(self) -> int:
            found = _ids.get()
            return super().generate_span_id() if found is None else found[1]

    name = os.environ.get("OTEL_SERVICE_NAME") or f"fedplcc-{service}"
    resource = Resource.create({"service.name": name, "service.version": VERSION})
    provider = TracerProvider(resource=resource, id_generator=Ids())
    timeout_s = None if os.environ.get("OTEL_EXPORTER_OTLP_TIMEOUT") else EXPORT_S
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=timeout_s)))
    for told in (OTLPSpanExporter.__module__, "opentelemetry.sdk._shared_internal"):
        logging.getLogger(told).addFilter(_Rarely())
    _tracer = provider.get_tracer("fedplcc", VERSION)


class _Rarely(logging.Filter):
    """A line a minute of a library that has one for each attempt to reach a collector, or for each span that it drops."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written."""
        if record.levelno < logging.ERROR or time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + LINE_S
        return True


def record(
    span: Part,
    run_id: str,
    number: int,
    *,
    parts: Iterable[Part] = (),
    is_round: bool = False,
    facts: Mapping[str, str | int] = MappingProxyType({}),
) -> None:
    """Record a span that has ended, if this process records any.

    Args:
        number: The round; 0 for what concerns the run as a whole.
        parts: Spans within it, `MAX_PARTS` at most.
        is_round: Whether it is the round itself, which all others of the trace are within.
        facts: Attributes, by name without the prefix `fedplcc.`.
    """
    tracer = _tracer
    if tracer is None:
        return
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    digest = _digest(run_id, number)
    ids = int(digest[:32], 16), int(digest[32:48], 16)
    attributes = {f"fedplcc.{name}": fact for name, fact in {"run_id": run_id, "round": number, **facts}.items()}
    if is_round:
        token = _ids.set(ids)
        try:
            made = tracer.start_span(span.name, Context(), start_time=_ns(span.begin), attributes=attributes)
        finally:
            _ids.reset(token)
    else:
        round_span = NonRecordingSpan(SpanContext(*ids, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)))
        within = set_span_in_context(round_span, Context())
        made = tracer.start_span(span.name, within, start_time=_ns(span.begin), attributes=attributes)
    inside = set_span_in_context(made, Context())
    for part in list(parts)[:MAX_PARTS]:
        child = tracer.start_span(part.name, inside, start_time=_ns(part.begin))
        child.end(end_time=_ns(part.end))
    made.end(end_time=_ns(span.end))


def ended(name: str, seconds: float) -> Part:
    """Return what has ended just now."""
    now = time.time()
    return Part(name, now - seconds, now)


def _digest(run_id: str, number: int) -> str:
    return hashlib.sha256(f"trace\0{run_id}\0{number}".encode()).hexdigest()


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
