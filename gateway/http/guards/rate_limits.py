"""Limits on the requests of each address and of each key, and on keys that are tried out.

A refusal costs no call of the aggregator. `/livez` is not counted, and an event stream counts once, when it begins.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedplcc.gateway.caller_key import caller_key
from fedplcc.gateway.http.guards.cross_site_guard import SAFE_METHODS
from fedplcc.gateway.http.guards.forwarded import caller_address
from fedplcc.gateway.http.guards.key_guard import OPENING_PATHS, key_of
from fedplcc.gateway.http.metrics import BY_ADDRESS, BY_FAILED_KEYS, BY_KEY, GatewayMetrics
from fedplcc.gateway.http.problem import respond
from fedplcc.gateway.refused_requests import RefusedRequests
from fedplcc.shared.errors import FedplccError, KeyInvalid, ScopeMissing, TooManyRequests
from fedplcc.shared.wire.serving.token_buckets import MAX_BUCKETS, TokenBuckets

BURST_S = 10.0
"""Requests that may come at once, in seconds of the rate."""
FREE_PATHS = frozenset({"/livez"})
"""Paths that are not counted: what looks after the process must not be refused."""


class RateLimits:
    """What every caller may still do; one for an application."""

    def __init__(self, addresses_per_s: float, keys_per_s: float, guesses_per_min: float) -> None:
        """Begin with full buckets: requests a second of an address and of a key, new keys a minute of an address."""
        self.addresses = TokenBuckets(addresses_per_s, max(1.0, BURST_S * addresses_per_s))
        self.keys = TokenBuckets(keys_per_s, max(1.0, BURST_S * keys_per_s))
        self.failed_keys = TokenBuckets(guesses_per_min / 60, max(1.0, guesses_per_min))
        self._judged: OrderedDict[bytes, bool] = OrderedDict()
        """Whether a key was taken when it was used last, by its SHA-256."""

    def judge(self, key: bytes, *, is_good: bool) -> bool:
        """Keep whether a key was taken; returns whether it was not refused before."""
        is_new = self._judged.pop(key, True)
        self._judged[key] = is_good
        if len(self._judged) > MAX_BUCKETS:
            self._judged.popitem(last=False)
        return is_new

    def is_good(self, key: bytes) -> bool:
        """Whether a key was taken when it was used last."""
        return self._judged.get(key, False)

    def is_known(self, key: bytes) -> bool:
        """Whether a key was used before: it is no new guess."""
        return key in self._judged


class AddressLimit:
    """Middleware that limits the requests of an address.

    Those with a key that was taken before are counted by their key alone, whatever they ask: strangers at the address take
    nothing of theirs.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http" or scope["path"] in FREE_PATHS:
            await self.app(scope, receive, send)
            return
        limits: RateLimits = scope["app"].state.services.rate_limits
        key = _digest(key_of(scope))
        is_good = limits.is_good(key)
        wait_s = limits.keys.take(key) if is_good else limits.addresses.take(caller_address(scope))
        if wait_s:
            limit, whose = (BY_KEY, "come with this key") if is_good else (BY_ADDRESS, "come from this address")
            await _refuse(limit, f"too many requests {whose}", wait_s, scope, receive, send)
            return
        await self.app(scope, receive, send)


class KeyLimit:
    """Middleware, after the one that finds the key, that limits the requests of a key that is new and the guessing of keys.

    A guess is a key that was not used before and is refused. A session that has ended is one guess, however often an open
    page shows it. Who has guessed too often is refused with keys that are not known yet; known ones at the same address, as
    behind a proxy, go on.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        text = caller_key.get() if scope["type"] == "http" else ""
        opens_session = scope["type"] == "http" and scope["path"] in OPENING_PATHS
        if not text and not opens_session:
            await self.app(scope, receive, send)
            return
        limits: RateLimits = scope["app"].state.services.rate_limits
        address, key = caller_address(scope), _digest(text)
        if opens_session or not limits.is_known(key):
            wait_s = limits.failed_keys.wait_s(address)
            if wait_s:
                await _refuse(
                    BY_FAILED_KEYS, "too many keys were tried from this address", wait_s, scope, receive, send
                )
                return
        is_counted = not text or limits.is_good(key)  # by `AddressLimit`
        if not is_counted and scope["method"] not in SAFE_METHODS:
            refusal = await _refusal_of_key(scope)
            if refusal is not None:
                _judge(limits, address, key, HTTPStatus.UNAUTHORIZED, scope)
                await respond(refusal, scope)(scope, receive, send)
                return
        wait_s = 0.0 if is_counted else limits.keys.take(key)
        if wait_s:
            await _refuse(BY_KEY, "too many requests come with this key", wait_s, scope, receive, send)
            return

        async def judged(message: Message) -> None:
            if message["type"] == "http.response.start":
                _judge(limits, address, b"" if opens_session else key, message["status"], scope)
            await send(message)

        await self.app(scope, receive, judged)


async def _refusal_of_key(scope: Scope) -> KeyInvalid | None:
    """Ask the aggregator whether it takes a key, before a body that comes with it is read; an absent one says nothing."""
    aggregator = scope["app"].state.services.aggregator
    try:
        if aggregator is not None:
            await aggregator.get_caller()
    except KeyInvalid as error:
        scope["app"].state.services.metrics.refused(error)
        return error
    except FedplccError:
        pass
    return None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _judge(limits: RateLimits, address: str, key: bytes, status: int, scope: Scope) -> None:
    """Keep what the aggregator said to a key, where it was asked."""
    if status == HTTPStatus.UNAUTHORIZED:
        if not key or limits.judge(key, is_good=False):
            limits.failed_keys.take(address)
        return
    problem = scope.get("state", {}).get("problem")
    if key and (status < 400 or (problem is not None and problem.code == ScopeMissing.reason)):
        limits.judge(key, is_good=True)


async def _refuse(limit: str, sentence: str, wait_s: float, scope: Scope, receive: Receive, send: Send) -> None:
    metrics: GatewayMetrics = scope["app"].state.services.metrics
    metrics.rate_limited.labels(limit).inc()
    if limit == BY_FAILED_KEYS or scope["method"] not in SAFE_METHODS:
        waiting: RefusedRequests = scope["app"].state.services.refused_requests
        waiting.add(TooManyRequests.reason, limit, caller_address(scope))
    seconds = max(1, math.ceil(wait_s))
    error = TooManyRequests(f"{sentence}; try again in {seconds} s", retry_after_s=seconds, limit=limit)
    await respond(error, scope)(scope, receive, send)
