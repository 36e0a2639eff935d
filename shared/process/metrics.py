"""Basics of every process's metrics: prefix, buckets, build information, HTTP port.

Names have the prefix `fedplcc_` and base units. Labels are few and bounded, and never hold exception text. The composition
root of a process makes one registry and passes it down, so that tests and simulations share no counters.
"""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, disable_created_metrics, start_http_server

from shared.errors import InvalidConfig
from shared.version import VERSION

PREFIX = "fedplcc"
RPC_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Histogram buckets of a call's duration, in seconds."""
PHASE_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
"""Histogram buckets of the duration of a round or a phase, in seconds."""
OTHER = "other"
"""Label of clients and domains beyond the bound."""


PAUSE_S = 0.2
"""Pause before a connection is accepted again when the process has too many files open."""


@dataclass(frozen=True, slots=True)
class MetricsServer:
    """HTTP server of /metrics."""

    server: WSGIServer

    @property
    def port(self) -> int:
        """Port that it listens at."""
        return int(self.server.server_port)

    def close(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.server.server_close()


def new_registry(service: str) -> CollectorRegistry:
    """Return a registry with the metrics of the service's build and, on Linux, of its process.

    It also switches off `_created` series for the whole process: they would add one for each counter and histogram.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # has no annotations
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    info = Gauge(
        f"{PREFIX}_build_info", "Version of this process; always 1.", ["service", "version"], registry=registry
    )
    info.labels(service=service, version=VERSION).set(1)
    return registry


def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> MetricsServer:
    """Serve /metrics from a thread; port 0 takes any free one.

    Raises:
        InvalidConfig: The port is taken.
    """
    try:
        server, _thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL):
            raise
        raise InvalidConfig(f"cannot serve metrics on {host}:{port}: {error.strerror}; choose another port") from error
    _pause_when_out_of_files(server)
    return MetricsServer(server)


def _pause_when_out_of_files(server: WSGIServer) -> None:
    """Let a server whose process has too many files open wait before it accepts again, instead of trying without a pause."""
    accept = server.get_request

    def get_request() -> Any:
        try:
            return accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(PAUSE_S)
            raise

    server.get_request = get_request  # type: ignore[method-assign]
