"""What is said of calls: of one that is answered what it asks for and of whom, of one that is made why it failed.

On the side that answers exactly one line, event "rpc", is written for each call, when it has ended. What the call names (its
run, round, client, request) is bound from the moment that it is known, so that what else is logged on the way says it too.
On the side that calls, each call that fails is a line, event "call_failed".
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from shared.errors import Code, FedplccError
from shared.process.log import bind_task, bound, get_logger

REQUEST_ID_KEY = "x-request-id"
"""Metadata of a call that is made for an HTTP request: its id, so that the logs of both processes can be laid together."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")

OURS = (Code.INTERNAL, Code.DATA_LOSS, Code.UNAVAILABLE)
"""Failures of the side that answers; all others are refusals of what was asked for."""


class Call:
    """A call: what is known of it so far, and what has moved."""

    def __init__(
        self,
        method: str,
        *,
        is_request_stream: bool = False,
        is_response_stream: bool = False,
        metadata: Iterable[tuple[str, str | bytes]] = (),
    ) -> None:
        """Begin to record.

        Args:
            method: As on the wire: "/fedplcc.v1.RoundService/Join".
            is_request_stream: Whether the caller sends a stream of messages.
            is_response_stream: Whether it is answered by one.
            metadata: What came with the call; an id of a request among it is kept and bound.
        """
        self.method = method
        self.is_request_stream, self.is_response_stream = is_request_stream, is_response_stream
        self.peer = ""
        self.facts: dict[str, object] = {}
        self.received_messages = self.received_bytes = self.sent_messages = self.sent_bytes = 0
        request_id = dict(metadata).get(REQUEST_ID_KEY)
        if isinstance(request_id, str) and _REQUEST_ID.fullmatch(request_id):
            self._know({"request_id": request_id})

    def came_from(self, peer: str) -> None:
        """Note the other end, as gRPC names it: "ipv4:127.0.0.1:40312"."""
        self.peer = unquote(peer).partition(":")[2]

    def decoder(self, decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """The function that reads messages of this call, counting them and learning what they name."""

        def counted(data: bytes) -> Any:
            self.received_messages += 1
            self.received_bytes += len(data)
            message = decode(data)
            self._know(_named(message))
            return message

        return counted

    def encoder(self, encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        """The function that writes messages of this call, counting them."""

        def counted(message: Any) -> bytes:
            data = encode(message)
            self.sent_messages += 1
            self.sent_bytes += len(data)
            run = getattr(message, "run", None)
            self._know(_named(run))  # of a call that creates one, or finds it
            return data

        return counted

    def line(self, code: str, error: FedplccError | None, seconds: float) -> Mapping[str, object]:
        """The fields of its log line."""
        why = {} if error is None else {"reason": error.reason, "detail": error.detail, **error.metadata}
        return {
            **why,
            **self.facts,
            "method": self.method,
            "code": code,
            "duration_s": round(seconds, 6),
            "received_messages": self.received_messages,
            "received_bytes": self.received_bytes,
            "sent_messages": self.sent_messages,
            "sent_bytes": self.sent_bytes,
            "peer": self.peer,
        }

    def _know(self, facts: Mapping[str, object]) -> None:
        new = {name: value for name, value in facts.items() if name not in self.facts}
        if new:
            self.facts |= new
            bind_task(**new)


class CallsMade:
    """The calls that this process makes of another: those that work say nothing, each one that fails is a line.

    The first failure of a kind is said at level warning, those that follow until the method works again at level debug: a
    peer that is away for an hour fills no log.
    """

    def __init__(self, address: str, *, quiet: Iterable[str] = (), refusals_are_quiet: bool = False) -> None:
        """Begin to listen.

        Args:
            address: Of the peer.
            quiet: Methods whose failures are all at level debug, because somebody else says what they amount to.
            refusals_are_quiet: Whether what the peer refuses is at level debug, because it is said to whoever asked.
        """
        self._address, self._quiet, self._refusals_are_quiet = address, frozenset(quiet), refusals_are_quiet
        self._failing: dict[str, str] = {}
        self._log = get_logger("rpc")

    @contextmanager
    def telling(self, method: str, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Within the block a call of the method, by its short name, is made; it fails with an error of shared/errors.py.

        One that fails when it is not wanted any more was ended by this side and says nothing.
        """
        begin = time.perf_counter()
        try:
            yield
        except FedplccError as error:
            if is_wanted():
                self._failed(method, error, time.perf_counter() - begin)
            raise
        self._failing.pop(method, None)

    def _failed(self, method: str, error: FedplccError, seconds: float) -> None:
        is_known = self._failing.get(method) == error.reason
        self._failing[method] = error.reason
        is_quiet = is_known or method in self._quiet or (self._refusals_are_quiet and error.code not in OURS)
        self._log.log(
            logging.DEBUG if is_quiet else logging.WARNING,
            "call_failed",
            **{
                # A peer names its facts as it likes; these two are what the line itself has.
                **{name: fact for name, fact in error.metadata.items() if name not in ("event", "level")},
                "method": method,
                "code": error.code.name,
                "reason": error.reason,
                "detail": error.detail,
                "address": self._address,
                "duration_s": round(seconds, 6),
            },
        )


def request_metadata() -> tuple[tuple[str, str], ...]:
    """Metadata for a call that is made for the request at hand: its id, where one is bound."""
    request_id = bound().get("request_id")
    return ((REQUEST_ID_KEY, request_id),) if isinstance(request_id, str) else ()


def level_of(error: FedplccError | None, *, is_quiet: bool) -> int:
    """The level of the line about a call: a person is needed, it was refused, it worked or asked for what is not there."""
    if error is not None and error.code is not Code.NOT_FOUND:
        return logging.ERROR if error.code in OURS else logging.WARNING
    if error is not None:
        return logging.INFO
    return logging.DEBUG if is_quiet else logging.INFO


def _named(message: Any) -> dict[str, object]:
    """What a message names: run, round, client and blob, never anything else of it."""
    named = getattr(message, "header", message)
    facts = {name: getattr(named, name, "") for name in ("run_id", "client_id", "sha256")}
    facts["sha256"] = facts["sha256"] or getattr(getattr(named, "blob", None), "sha256", "")
    facts["idempotency_key"] = getattr(named, "request_id", "")
    known: dict[str, object] = {name: value for name, value in facts.items() if value}
    number = getattr(named, "round", None)
    if "run_id" in known and isinstance(number, int) and number >= 0:
        known["round"] = number
    return known
