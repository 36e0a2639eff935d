"""Middleware: request ids, log lines, metrics, answers to unexpected errors, a limit on bodies.

Plain ASGI, because streams must pass through unbuffered.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Collection
from contextlib import ExitStack
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedplcc.gateway.http.bodies.streaming import StreamAborted
from fedplcc.gateway.http.guards.forwarded import caller_address
from fedplcc.gateway.http.guards.slots import Slots
from fedplcc.gateway.http.metrics import UNKNOWN_ROUTE, GatewayMetrics
from fedplcc.gateway.http.problem import respond, respond_http
from fedplcc.shared.errors import Internal, TransferIdle
from fedplcc.shared.process import traces
from fedplcc.shared.process.log import bind, get_logger
from fedplcc.shared.process.repeated_lines import CRASHES, RepeatedLines
from fedplcc.shared.wire.call_logs import as_name
from fedplcc.shared.wire.channels import IDLE_S

REQUEST_ID = "X-Request-ID"
READING = frozenset({"GET", "HEAD"})
"""Methods whose successes are logged at level debug: probes and pages repeat them every few seconds."""
FETCHED = ("/model", "/prototypes")
"""Ends of routes whose successes are logged at level info: trained models leave the gateway there."""
MAX_LARGE_BODIES = 16
"""Large bodies that are held at the same time."""
MAX_LARGE_BODIES_OF_A_KEY = 4
"""The same of one key."""

MAX_PATH = 256
"""Most characters of a path that are logged."""

_NAMED = re.compile(r"/v1/runs/(?P<run_id>[!-.0-~]{1,128})(?:/clients/(?P<client_id>[!-.0-~]{1,128}))?(?:/|\Z)")
_ACCEPTED_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")

log = get_logger("fedplcc.gateway.http")


class RequestContext:
    """Outermost middleware: a request id, an answer to unexpected errors, one log line and the metrics of each request."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._repeated = RepeatedLines(log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        asked_for = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = asked_for if _ACCEPTED_ID.fullmatch(asked_for) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        with bind(request_id=request_id, **_named(scope)):
            await _Exchange(self.app, scope, receive, send, request_id, self._repeated).run()


class _Exchange:
    """One request and its response."""

    def __init__(
        self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, request_id: str, repeated: RepeatedLines
    ) -> None:
        self._repeated = repeated
        self._app, self._scope, self._receive, self._send = app, scope, receive, send
        self._request_id = request_id
        self._metrics: GatewayMetrics = scope["app"].state.services.metrics
        self._begin = time.perf_counter()
        self._status = 0
        self._received_bytes = self._sent_bytes = 0
        self._is_complete = False

    async def run(self) -> None:
        """Serve the request; no exception but a cancellation leaves this."""
        self._metrics.in_flight.inc()
        try:
            await self._app(self._scope, self._counted, self._note)
        except (StreamAborted, ClientDisconnect):
            pass
        except Exception as error:
            kind = type(error).__name__
            level = self._repeated.level(logging.ERROR, CRASHES, self._route, kind)
            log.log(level, "request_crashed", path=self._path, error=kind, exc_info=True)
            if not self._status:
                await respond(Internal(""), self._scope)(self._scope, self._receive, self._note)
        finally:
            self._metrics.in_flight.dec()
            self._write_line()

    async def _counted(self) -> Message:
        message = await self._receive()
        self._received_bytes += len(message.get("body", b""))
        return message

    async def _note(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)[REQUEST_ID] = self._request_id
            self._status = message["status"]
            seconds = time.perf_counter() - self._begin
            self._metrics.answered(
                route=self._route, method=self._scope["method"], status=self._status, seconds=seconds
            )
        elif message["type"] == "http.response.body":
            num_bytes = len(message.get("body", b""))
            self._sent_bytes += num_bytes
            self._is_complete = not message.get("more_body", False)
        await self._send(message)

    @property
    def _route(self) -> str:
        return getattr(self._scope.get("route"), "path", UNKNOWN_ROUTE)

    @property
    def _path(self) -> str:
        path: str = self._scope["path"]
        return path if len(path) <= MAX_PATH else f"{path[:MAX_PATH]}... ({len(path)} characters)"

    def _write_line(self) -> None:
        client = self._scope.get("client")
        problem = self._scope.get("state", {}).get("problem")
        why = {} if problem is None else {"reason": problem.code, "detail": problem.detail}
        level = self._level("" if problem is None else problem.code)
        if problem is None and level == logging.INFO:
            self._trace()
        log.log(
            level,
            "request",
            method=self._scope["method"],
            path=self._path,
            route=self._route,
            status=self._status,
            is_complete=self._is_complete,
            received_bytes=self._received_bytes,
            sent_bytes=self._sent_bytes,
            duration_s=round(time.perf_counter() - self._begin, 6),
            peer=client[0] if client else None,
            **why,
            **{name: as_name(str(value)) for name, value in self._scope.get("path_params", {}).items()},
        )

    def _trace(self) -> None:
        """Record what changed a run as a span of the trace that has its start."""
        run_id = self._scope["state"].get("run_id") or _named(self._scope).get("run_id")
        if run_id is not None:
            span = traces.ended(f"{self._scope['method']} {self._route}", time.perf_counter() - self._begin)
            traces.record(span, str(run_id), 0)

    def _level(self, reason: str) -> int:
        level = self._level_of_one()
        if 0 < self._status < 400 and self._is_complete:
            self._repeated.say_what_was_left_out()
            return level
        return self._repeated.level(level, caller_address(self._scope), self._route, reason or str(self._status))

    def _level_of_one(self) -> int:
        if self._status >= 500:
            return logging.ERROR
        if self._status >= 400 and self._status != HTTPStatus.NOT_FOUND:
            return logging.WARNING
        is_quiet = self._scope["method"] in READING and not self._route.endswith(FETCHED)
        return logging.DEBUG if is_quiet and self._status < 400 else logging.INFO


def _named(scope: Scope) -> dict[str, object]:
    """Return the run, client and round that a request's address names."""
    found = _NAMED.match(scope["path"])
    named: dict[str, object] = (
        {} if found is None else {name: value for name, value in found.groupdict().items() if value}
    )
    number = QueryParams(scope.get("query_string", b"")).get("round", "")
    return {**named, "round": int(number)} if re.fullmatch(r"[0-9]{1,9}", number) else named


class BodyLimit:
    """Middleware that refuses a body over a limit: unread by its Content-Length, else at the first byte too many.

    All bodies together have a limit too. Bodies of up to `small_bytes` do not count towards it, so that runs can be paused
    and stopped whatever else arrives. A body that does not go on for `IDLE_S` is given up.
    """

    def __init__(
        self,
        app: ASGIApp,
        small_bytes: int,
        max_bytes: int = 0,
        large: Collection[str] = (),
        streamed: tuple[str, ...] = (),
    ) -> None:
        """Limit bodies.

        Args:
            small_bytes: Largest body at most paths.
            max_bytes: Largest body at the paths in `large`.
            large: Paths with larger bodies.
            streamed: Beginnings of paths without a limit here: their handlers pass bodies on piece by piece to the
                aggregator, which limits them.
        """
        self.app, self.small_bytes, self.max_bytes, self.large, self.streamed = (
            app,
            small_bytes,
            max_bytes,
            frozenset(large),
            streamed,
        )
        self._places = Slots(
            MAX_LARGE_BODIES,
            f"{MAX_LARGE_BODIES} large requests are being read; try again in a moment",
            MAX_LARGE_BODIES_OF_A_KEY,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request with a body within the limits."""
        if scope["type"] != "http" or scope["path"].startswith(self.streamed):
            await self.app(scope, receive, send)
            return
        most = self.max_bytes if scope["path"] in self.large else self.small_bytes
        detail = f"the body has more than {most} bytes"
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isascii() and announced.isdigit() and int(announced[:20]) > most:
            await respond_http(413, detail, scope)(scope, receive, send)
            return
        received = 0
        is_whole = False
        held = ExitStack()

        async def counted() -> Message:
            nonlocal received, is_whole
            was_small = received <= self.small_bytes
            try:
                async with asyncio.timeout(None if is_whole else IDLE_S):
                    message = await receive()
            except TimeoutError as error:
                raise TransferIdle(f"the request's body did not go on for {IDLE_S:g} s") from error
            received += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if received > most:
                raise HTTPException(413, detail)
            if received > self.small_bytes and was_small:
                held.enter_context(self._places.taken())
            return message

        with held:
            await self.app(scope, counted, send)
