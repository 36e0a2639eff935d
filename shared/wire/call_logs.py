"""Log fields of RPCs: who called what (server), why a call failed (client).

The server writes one line, event "rpc", when a call has ended. The run, round, client and request that a call names are
bound as soon as they are known, so that other lines logged during the call carry them too. The client writes one line,
event "call_failed", for each call that fails. The stack trace that gRPC logs of its own for a caller that leaves while its
answer is sent, or whose call is cancelled before it begins, becomes one line at debug, event "answer_not_sent".
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from fedplcc.shared.codes import Code
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.process import traces
from fedplcc.shared.process.log import bind_task, bound, get_logger

REQUEST_ID_KEY = "x-request-id"
"""Metadata key for the id of the HTTP request behind a call; it joins the logs of gateway and aggregator."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_NAME = re.compile(r"[!-~]{1,128}")
"""Form of every id, and of every method."""

OURS = (Code.INTERNAL, Code.DATA_LOSS, Code.UNAVAILABLE)
"""Codes of the server's own failures; all others refuse the request."""


class Call:
    """Log record of one call on the server: the facts known so far, messages and bytes.

    Attributes:
        is_request_stream: Whether the request is a stream of messages.
        is_response_stream: Whether the answer is one.
        metadata: Metadata of the call; it may hold a key, so it never reaches a log.
        peer: HOST:PORT of the other end.
        reads: Told of the size of each received message.
    """

    def __init__(
        self,
        method: str,
        *,
        is_request_stream: bool = False,
        is_response_stream: bool = False,
        metadata: Iterable[tuple[str, str | bytes]] = (),
    ) -> None:
        """Start a record.

        Args:
            method: As on the wire: "/fedplcc.v1.RoundService/Join".
            is_request_stream: Whether the request is a stream of messages.
            is_response_stream: Whether the answer is a stream of messages.
            metadata: Metadata of the call; a request id in it is kept and bound.
        """
        self.method = method
        self.is_request_stream, self.is_response_stream = is_request_stream, is_response_stream
        self.peer = ""
        self.facts: dict[str, object] = {}
        self.reads: Callable[[int], None] = _nothing
        self.received_messages = self.received_bytes = self.sent_messages = self.sent_bytes = 0
        self.metadata = dict(metadata)
        request_id = self.metadata.get(REQUEST_ID_KEY)
        if isinstance(request_id, str) and _REQUEST_ID.fullmatch(request_id):
            self._know({"request_id": request_id})

    def set_peer(self, peer: str) -> None:
        """Record the peer, as gRPC names it: "ipv4:127.0.0.1:40312"."""
        self.peer = unquote(peer).partition(":")[2]

    def received(self, data: bytes) -> None:
        """Count a received message."""
        self.received_messages += 1
        self.received_bytes += len(data)
        self.reads(len(data))

    def decoded(self, message: Any) -> None:
        """Record the facts that a message names."""
        self._know(_named(message))

    def sent(self, message: Any, data: bytes) -> None:
        """Count a message that is sent, and record the run that it names."""
        self.sent_messages += 1
        self.sent_bytes += len(data)
        run = getattr(message, "run", None)
        if run is not None:
            self._know(_named(run))  # the request of CreateRun does not name it

    def line(self, code: str, error: FedplccError | None, seconds: float, caller: str) -> Mapping[str, object]:
        """Return the fields of the call's log line; `caller` is who it is for the audit."""
        why = {} if error is None else {"reason": error.reason, "detail": error.detail, **error.metadata}
        return {
            **why,
            **self.facts,
            "method": as_name(self.method),
            "code": code,
            "duration_s": round(seconds, 6),
            "received_messages": self.received_messages,
            "received_bytes": self.received_bytes,
            "sent_messages": self.sent_messages,
            "sent_bytes": self.sent_bytes,
            "peer": self.peer,
            "caller": caller,
        }

    def trace(self, seconds: float) -> None:
        """Record the call as a span of the round that it names, or of the run."""
        run_id, number = self.facts.get("run_id"), self.facts.get("round")
        if isinstance(run_id, str):
            named = {name: str(fact) for name, fact in self.facts.items() if name == "client_id"}
            span = traces.ended(as_name(self.method).removeprefix("/"), seconds)
            traces.record(span, run_id, number if isinstance(number, int) else 0, facts=named)

    def _know(self, facts: Mapping[str, object]) -> None:
        new = {name: value for name, value in facts.items() if name not in self.facts}
        if new:
            self.facts |= new
            bind_task(**new)


class OutgoingCalls:
    """Logger of this process's calls to another: one line for each call that fails.

    The first failure of a kind is logged at warning, its repetitions at debug until the method succeeds again: a peer that
    is away for an hour does not fill the log.
    """

    def __init__(self, address: str, *, quiet: Iterable[str] = (), refusals_are_quiet: bool = False) -> None:
        """Create the logger of one peer.

        Args:
            quiet: Methods whose failures are always at debug, because their caller logs the consequence.
            refusals_are_quiet: Whether refusals by the peer are at debug, because the requester is told.
        """
        self._address, self._quiet, self._refusals_are_quiet = address, frozenset(quiet), refusals_are_quiet
        self._failing: dict[str, str] = {}
        self._log = get_logger("rpc")

    @contextmanager
    def logged(self, method: str, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Log an error of shared/errors.py that leaves the block, which calls `method` (its short name).

        No line is written when `is_wanted` returns false: this side ended the call itself.
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
                # The peer chooses the names of its facts; these two belong to the line itself.
                **{name: fact for name, fact in error.metadata.items() if name not in ("event", "level")},
                "method": method,
                "code": error.code.name,
                "reason": error.reason,
                "detail": error.detail,
                "address": self._address,
                "duration_s": round(seconds, 6),
            },
        )


def is_of_a_caller_that_left(error: BaseException | None) -> bool:
    """Whether gRPC could not send a message because the call, or the server, has ended; the errors' types are not public."""
    return type(error).__name__ in ("ExecuteBatchError", "_ServerStoppedError")


class _AnswersNotSent(logging.Filter):
    """Filter of grpc.aio's lines: an answer that its caller did not wait for is no error of ours."""

    def __init__(self) -> None:
        super().__init__()
        self._log = get_logger("rpc")

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether gRPC's own line is written."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, asyncio.CancelledError) and not is_of_a_caller_that_left(error):
            return True
        self._log.debug("answer_not_sent", detail=record.getMessage())
        return False


_ANSWERS_NOT_SENT = _AnswersNotSent()


def expect_callers_to_leave() -> None:
    """Have gRPC log no stack trace for a caller that leaves while its answer is sent; a second call changes nothing.

    The server's operation fails then (`ExecuteBatchError`, which no caller can catch) where a moment earlier or later it
    would have been cancelled or done. The call's line "rpc" is written all the same.
    """
    logging.getLogger("grpc._cython.cygrpc").addFilter(_ANSWERS_NOT_SENT)


def request_metadata() -> tuple[tuple[str, str], ...]:
    """Return the metadata that carries the bound request id, or none if no id is bound."""
    request_id = bound().get("request_id")
    return ((REQUEST_ID_KEY, request_id),) if isinstance(request_id, str) else ()


def level_of(error: FedplccError | None, *, is_quiet: bool) -> int:
    """Return a call's log level: error for a server failure, warning for a refusal, info for success and NOT_FOUND.

    A quiet method's success is at debug.
    """
    if error is not None and error.code is not Code.NOT_FOUND:
        return logging.ERROR if error.code in OURS else logging.WARNING
    if error is not None:
        return logging.INFO
    return logging.DEBUG if is_quiet else logging.INFO


def as_name(text: str) -> str:
    """Return a name that a caller gave, or its length if it cannot be one."""
    return text if _NAME.fullmatch(text) else f"<{len(text)} characters>"


def _nothing(_num_bytes: int) -> None:
    """Note nothing of a message."""


def _verb(message: Any) -> str:
    """Return the verb of a message that steers a run; empty for others."""
    descriptor = getattr(message, "DESCRIPTOR", None)
    return "" if descriptor is None or "verb" not in descriptor.oneofs_by_name else message.WhichOneof("verb") or ""


def _named(message: Any) -> dict[str, object]:
    """Return the run, round, client, blob, verb and request id that a message names, and no other field."""
    named = getattr(message, "header", message)
    facts = {name: getattr(named, name, "") for name in ("run_id", "client_id", "sha256")}
    verb = _verb(message)
    if verb:
        facts |= {"verb": verb, "client_id": getattr(getattr(message, verb), "client_id", "")}
    facts["sha256"] = facts["sha256"] or getattr(getattr(named, "blob", None), "sha256", "")
    facts["idempotency_key"] = getattr(named, "request_id", "")
    known: dict[str, object] = {name: as_name(value) for name, value in facts.items() if value}
    number = getattr(named, "round", None)
    if "run_id" in known and isinstance(number, int) and number >= 0:
        known["round"] = number
    return known
