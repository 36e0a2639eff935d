"""What honest callers see meanwhile: a member's heartbeats, another key's requests, members that come anew."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from fedplcc.shared.errors import FedplccError
from fedplcc.shared.wire.tls import ClientTls
from tests.chaos.siege.foe import HOST
from tests.support.federation.grpc_client import GrpcClient
from tests.support.federation.numpy_client import NumpyClient

BEAT_S, ASK_S, COME_S = 0.1, 0.1, 1.0
"""Time between two calls of each."""
ANSWER_S = 60.0


@dataclass
class Felt:
    """What one honest caller felt."""

    name: str
    seconds: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    def quantile(self, fraction: float) -> float:
        """Seconds in which this part of the calls was answered; 0 without calls."""
        return (
            sorted(self.seconds)[min(len(self.seconds) - 1, int(fraction * len(self.seconds)))] if self.seconds else 0.0
        )

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {self.quantile(part):.3f} s" for name, part in QUANTILES.items())
        failed = "".join(f"; {count} x {reason}" for reason, count in self.failures.items())
        return f"{self.name}: {len(self.seconds)} calls, {parts}{failed}"


QUANTILES = {"p50": 0.5, "p99": 0.99, "max": 1.0}


class Caller:
    """A thread that calls at times, within its block, and keeps how long each answer took."""

    def __init__(self, name: str, call: Callable[[], object], between_s: float) -> None:
        self.felt = Felt(name)
        self._call, self._between_s = call, between_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Felt:
        self._thread.start()
        return self.felt

    def __exit__(self, *_exception: object) -> None:
        self._is_over.set()
        self._thread.join(2 * ANSWER_S)

    def _run(self) -> None:
        while not self._is_over.is_set():
            begin = time.monotonic()
            try:
                self._call()
            except FedplccError as error:
                self.felt.failures[error.reason] += 1
            except (OSError, http.client.HTTPException, RuntimeError) as error:
                self.felt.failures[f"{type(error).__name__}: {error}"[:100]] += 1
            self.felt.seconds.append(time.monotonic() - begin)
            self._is_over.wait(self._between_s)


def heartbeats(address: str, tls: ClientTls | None) -> Callable[[], object]:
    """An honest member's heartbeat, over one connection; it joins here and never again."""
    client = GrpcClient(address, NumpyClient("herald"), tls=tls)
    client.join()
    return client.heartbeat


def newcomers(address: str, tls: ClientTls | None) -> Callable[[], object]:
    """A join over a new connection."""

    def come() -> None:
        client = GrpcClient(address, NumpyClient("newcomer"), tls=tls)
        try:
            client.join()
        finally:
            client.close()

    return come


def requests(port: int, key: str, paths: Sequence[str]) -> Callable[[], object]:
    """A request of another key, over a new connection, of each path in turn."""
    following = cycle(paths)

    def ask() -> None:
        connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_S)
        try:
            connection.request("GET", next(following), headers={"Authorization": f"Bearer {key}"})
            answer: Any = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"status {answer.status}")
        finally:
            connection.close()

    return ask
