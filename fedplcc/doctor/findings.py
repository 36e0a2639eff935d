"""Findings of a check, and its access to the machine."""

from __future__ import annotations

import importlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias


class Status(StrEnum):
    """Severity of a finding: fine, worth knowing, or will not work."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. Unless it is fine, the sentence says what to do."""

    check: str
    status: Status
    sentence: str


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Access to the machine; tests replace it."""

    version_of: Callable[[str], str | None] = _version_of
    """Version of an installed package, or None."""
    is_installed: Callable[[str], bool] = lambda module: find_spec(module) is not None
    load: Callable[[str], Any] = importlib.import_module
    read: Callable[[str], str] = _read
    """Text of a file of the system; empty if it is not there."""
    exists: Callable[[str], bool] = os.path.exists
    disk_usage: Callable[[Path], Any] = shutil.disk_usage
    connect: Callable[[tuple[str, int], float], socket.socket] = socket.create_connection
    resolve: Callable[..., Any] = socket.getaddrinfo
    clock: Callable[[], float] = time.perf_counter
    wall_clock: Callable[[], float] = time.time
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of an examination."""

    state: Path
    """Folder of the state; need not be there yet."""
    host: str = "127.0.0.1"
    """Address at which ports are tried."""
    ports: Mapping[int, str] = field(default_factory=dict)
    """Ports that services will listen at, and the flag that chooses another."""
    aggregator: str | None = None
    """HOST:PORT of an aggregator to reach."""
    gateway: str | None = None
    """URL of a gateway to reach."""
    insecure: bool = False
    """Whether plain text to other machines is accepted."""
    database_url: str | None = field(default=None, repr=False)
    """Of the PostgreSQL database of an aggregator; holds a password."""
    probes: Probes = Probes()


Check: TypeAlias = Callable[[Subject], Iterable[Finding]]


def ok(check: str, sentence: str) -> Finding:
    """A finding that is fine."""
    return Finding(check, Status.OK, sentence)


def warning(check: str, sentence: str) -> Finding:
    """A finding worth knowing."""
    return Finding(check, Status.WARNING, sentence)


def problem(check: str, sentence: str) -> Finding:
    """A finding that will not work."""
    return Finding(check, Status.PROBLEM, sentence)


def in_bytes(count: float) -> str:
    """A size in the unit that fits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
