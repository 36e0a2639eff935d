"""The gateway's Prometheus metrics. Labels are bounded: route templates, known methods and statuses."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fedplcc.shared.errors import FedplccError, KeyInvalid, ScopeMissing
from fedplcc.shared.process.certificate_metrics import CertificateMetrics
from fedplcc.shared.process.metrics import OTHER, PREFIX, RPC_SECONDS, new_registry

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BY_ADDRESS, BY_KEY, BY_FAILED_KEYS = RATE_LIMITS = ("address", "key", "failed_keys")
"""Limits of requests."""
REFUSALS = (KeyInvalid, ScopeMissing)
"""What the gateway refuses itself."""
OUTCOMES = ("delivered", "failed", "given_up")
"""Outcomes of attempts to deliver a message."""
UNKNOWN_ROUTE = "unknown"
"""Route label of requests to unknown paths."""


class GatewayMetrics:
    """Metrics of one gateway."""

    def __init__(self, routes: Iterable[tuple[str, str, Iterable[int]]] = ()) -> None:
        """Create the metrics, with series of these routes (method, template, statuses) from the start."""
        self.registry: CollectorRegistry = new_registry("gateway")
        self.requests = Counter(
            f"{PREFIX}_http_requests_total",
            "Requests answered, by route, method and status.",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            f"{PREFIX}_http_request_duration_seconds",
            "From a request to the beginning of its response; streams and downloads go on after it.",
            ["route", "method"],
            registry=self.registry,
            buckets=RPC_SECONDS,
        )
        self.event_streams = Gauge(
            f"{PREFIX}_event_streams", "Streams of server-sent events that are open.", registry=self.registry
        )
        self.in_flight = Gauge(
            f"{PREFIX}_http_requests_in_flight",
            "Requests that have come and whose responses have not ended, streams and downloads among them.",
            registry=self.registry,
        )
        self.messages = Counter(
            f"{PREFIX}_messages_total",
            "Attempts to deliver messages to people, by outcome: delivered, failed, given_up (too old to be tried again).",
            ["outcome"],
            registry=self.registry,
        )
        for outcome in OUTCOMES:
            self.messages.labels(outcome)
        self.rate_limited = Counter(
            f"{PREFIX}_http_rate_limited_total",
            "Requests refused with TOO_MANY_REQUESTS, by limit: address, key, failed_keys.",
            ["limit"],
            registry=self.registry,
        )
        for limit in RATE_LIMITS:
            self.rate_limited.labels(limit)
        self.refusals = Counter(
            f"{PREFIX}_refusals_total",
            "Requests that the gateway itself refused for their key, by reason; the aggregator counts its own.",
            ["reason"],
            registry=self.registry,
        )
        self.certificates = CertificateMetrics(self.registry)
        for refusal in REFUSALS:
            self.refusals.labels(refusal.reason.lower())
        for method, route, statuses in routes:
            self.seconds.labels(route, method)
            for status in statuses:
                self.requests.labels(route, method, str(status))

    def refused(self, error: FedplccError) -> None:
        """Count a request that was refused here for its key."""
        self.refusals.labels(error.reason.lower() if isinstance(error, REFUSALS) else OTHER).inc()

    def answered(self, *, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request whose response has begun."""
        known = method if method in METHODS else OTHER
        self.requests.labels(route, known, str(status)).inc()
        self.seconds.labels(route, known).observe(seconds)

    def delivered(self, outcome: str) -> None:
        """Count an attempt to deliver a message."""
        self.messages.labels(outcome).inc()
