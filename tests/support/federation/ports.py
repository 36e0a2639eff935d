"""Ports that a service gets back when it starts again, whatever else the machine does meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
from pathlib import Path

FIRST = 15_000
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
OTHERWISE = 32_768

_taken = itertools.count(random.SystemRandom().randrange(OTHERWISE))


def free_port() -> int:
    """A free port of 127.0.0.1, below those that the system gives to connections and to services that take any.

    Each worker of the tests takes from a span of its own: nobody gets the port of a service that is about to restart.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    span = (_first_given() - FIRST) // workers
    for _ in range(span):
        port = FIRST + worker * span + next(_taken) % span
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def _first_given() -> int:
    try:
        return int(RANGE.read_text().split()[0])
    except OSError:
        return OTHERWISE
