"""Search: every refusal of the gateway's middleware, again and again from one address, where a good key is served after it.

Refusals are found in the code; one that is new fails until it has a row. Each is met where rates have no bound, which shows
that it costs nobody else, and with rates that have one, where it counts.
"""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.middleware import Middleware

from fedplcc.gateway.app import MAX_BODY_BYTES, MIDDLEWARE, SMALL_BODY_BYTES
from fedplcc.gateway.caller_key import caller_key
from fedplcc.gateway.http import middleware, problem
from fedplcc.gateway.http.guards.key_guard import SESSIONS_PATH, cookie_name
from fedplcc.gateway.http.guards.rate_limits import AddressLimit, RateLimits
from fedplcc.gateway.http.metrics import GatewayMetrics
from fedplcc.gateway.http.middleware import MAX_LARGE_BODIES_OF_A_KEY
from fedplcc.gateway.routes.dependencies import Services
from fedplcc.gateway.routes.runs import RUNS_PATH
from fedplcc.shared.errors import KeyInvalid
from fedplcc.shared.identity.api_keys import api_key_text
from fedplcc.shared.wire.channels import IDLE_S
from fedplcc.shared.wire.serving.token_buckets import TokenBuckets
from tests.support import ROOT
from tests.support.asgi_requests import status_of
from tests.support.records.captured_logs import logged
from tests.support.searches import amount

TIMES = amount(60, 5000)
MOST_COUNTED = 20
"""Requests of an address, of a key, and guesses that are taken where rates have a bound."""
MOST_LOG_BYTES = 8000
"""Most bytes of log that one kind of refusal leaves in a minute."""
FILES = (
    "gateway/http/middleware.py",
    *(str(path.relative_to(ROOT)) for path in (ROOT / "gateway/http/guards").glob("*.py")),
)
REFUSING = ("respond", "respond_http", "_refuse")
RAISED = ("HTTPException", "TransferIdle", "Overloaded", "KeyInvalid")
OPEN_PATH = "/console/app.js"
OPERATOR, GREEDY, ENDED = (api_key_text(f"{number:012x}", bytes(32)) for number in range(3))


def bearer(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"}


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that is refused."""

    status: int
    headers: Mapping[str, str]
    method: str = "POST"
    path: str = RUNS_PATH
    body: bytes = b""
    is_whole: bool = True
    idle_s: float = IDLE_S
    num_held: int = 0
    """Large bodies of the greedy key that do not go on meanwhile."""
    before: int = 429
    """Status of those before a rate's refusal."""


LARGE = b"x" * (SMALL_BODY_BYTES + 1)
COOKIE = {"Cookie": f"{cookie_name('', is_secure=False)}={GREEDY}"}
IN_OTHER_ROWS = "none: says what a rule of another row refused"
ROWS: Mapping[str, str | Sequence[Refused]] = {
    "gateway/http/middleware.py _Exchange.run respond": "none: a bug, no refusal",
    "gateway/http/middleware.py BodyLimit.__call__ respond_http": [
        Refused(413, {**bearer(GREEDY), "Content-Length": f"{MAX_BODY_BYTES + 1}"}),
        Refused(413, {**bearer(GREEDY), "Content-Length": f"{SMALL_BODY_BYTES + 1}"}, path=f"{RUNS_PATH}/a/pause"),
    ],
    "gateway/http/middleware.py BodyLimit.__call__.counted TransferIdle": [
        Refused(504, bearer(GREEDY), body=b"{", is_whole=False, idle_s=0.0),
    ],
    "gateway/http/middleware.py BodyLimit.__call__.counted HTTPException": [
        Refused(413, bearer(GREEDY), body=b"x" * (MAX_BODY_BYTES + 1)),
    ],
    "gateway/http/guards/slots.py Slots.taken Overloaded": [
        Refused(429, bearer(GREEDY), body=LARGE, num_held=MAX_LARGE_BODIES_OF_A_KEY),
    ],
    "gateway/http/guards/cross_site_guard.py CrossSiteGuard.__call__ respond_http": [
        Refused(421, {"Host": "evil.example"}, "GET"),
    ],
    "gateway/http/guards/cross_site_guard.py CrossSiteGuard.__call__ respond_http 2": [
        Refused(403, {"Origin": "https://evil.example"}),
        Refused(403, {**bearer(GREEDY), "Origin": "https://evil.example"}),
        Refused(403, {"Origin": "http://["}),
        Refused(403, {"Sec-Fetch-Site": "cross-site"}),
        Refused(403, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}, "GET"),
    ],
    "gateway/http/guards/key_guard.py KeyGuard.__call__ KeyInvalid": [Refused(401, {}, "GET"), Refused(401, {})],
    "gateway/http/guards/key_guard.py KeyGuard.__call__ respond": [Refused(401, bearer("no key"), "GET")],
    "gateway/http/guards/key_guard.py KeyGuard.__call__ respond_http": [Refused(403, COOKIE)],
    "gateway/http/guards/rate_limits.py AddressLimit.__call__ _refuse": [
        Refused(429, {}, "GET", OPEN_PATH, before=200),
    ],
    "gateway/http/guards/rate_limits.py KeyLimit.__call__ _refuse": [
        Refused(429, {}, path=SESSIONS_PATH, before=401),
        Refused(429, bearer(ENDED), "GET", before=401),
    ],
    "gateway/http/guards/rate_limits.py KeyLimit.__call__ respond": [Refused(401, bearer(ENDED), body=LARGE)],
    "gateway/http/guards/rate_limits.py KeyLimit.__call__ _refuse 2": [
        Refused(429, bearer(GREEDY), "GET", before=200),
        Refused(429, bearer(GREEDY), "GET", OPEN_PATH, before=200),
    ],
    "gateway/http/guards/rate_limits.py _refuse respond": IN_OTHER_ROWS,
}


def refusals_in(tree: ast.AST, where: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield each refusal by the class and function that it is in, and its kind; the second at a place with a 2."""
    seen = Counter[str]()
    for place in _places(tree, where):
        seen[place] += 1
        yield place if seen[place] == 1 else f"{place} {seen[place]}"


def _places(tree: ast.AST, where: tuple[str, ...]) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        is_named = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        called = node.exc if isinstance(node, ast.Raise) else node
        names = RAISED if isinstance(node, ast.Raise) else REFUSING
        if isinstance(called, ast.Call) and ast.unparse(called.func) in names:
            yield f"{'.'.join(where)} {ast.unparse(called.func)}"
        yield from _places(node, (*where, node.name) if is_named else where)  # type: ignore[attr-defined]


class Aggregator:
    """Knows the keys of the operator and of the greedy caller alone."""

    async def get_caller(self) -> None:
        if caller_key.get() not in (OPERATOR, GREEDY):
            raise KeyInvalid("no such key")


def an_app(chain: Sequence[Middleware], most: float) -> FastAPI:
    """The gateway's middleware before two handlers; rates refill a bucket in hours."""
    app = FastAPI(middleware=list(chain), exception_handlers=dict(problem.HANDLERS))

    async def served(request: Request) -> dict[str, int]:
        await Aggregator().get_caller()
        return {"size": len(await request.body())}

    for path in (RUNS_PATH, f"{RUNS_PATH}/a/pause", SESSIONS_PATH):
        app.add_api_route(path, served, methods=["GET", "POST"])
    app.add_api_route(OPEN_PATH, lambda: {})
    services = Services(metrics=GatewayMetrics(), host_names=frozenset(), asks_keys=True)
    aggregator: Any = Aggregator()
    services.aggregator, limits = aggregator, RateLimits(1e-6, 1e-6, 1e-6)
    limits.addresses, limits.keys, limits.failed_keys = (TokenBuckets(1e-6, most) for _ in range(3))
    services.rate_limits = limits
    app.state.services = services
    return app


async def faults_of(refused: Refused, most: float, chain: Sequence[Middleware] = MIDDLEWARE) -> list[str]:
    """What is wrong after so many such requests."""
    app, found = an_app(chain, most), list[str]()

    async def send(asked: Refused, **how: Any) -> int:
        headers = {"host": "localhost", **{name.lower(): text for name, text in asked.headers.items()}}
        return await status_of(
            app, asked.method, asked.path, headers, asked.body, address="192.0.2.7", is_whole=asked.is_whole, **how
        )

    good = Refused(200, bearer(OPERATOR), "GET")
    large = Refused(200, bearer(OPERATOR), body=LARGE)
    assert [await send(good), await send(Refused(200, bearer(GREEDY), "GET"))] == [200, 200]
    events = [asyncio.Event() for _ in range(refused.num_held)]
    half = Refused(0, bearer(GREEDY), body=LARGE, is_whole=False)
    held = [asyncio.create_task(send(half, waits=event)) for event in events]
    for event in events:
        await event.wait()
    statuses = Counter[int]()
    with logged("info") as lines, pytest.MonkeyPatch.context() as patch:
        patch.setattr(middleware, "IDLE_S", refused.idle_s)
        for _ in range(TIMES):
            statuses[await send(refused)] += 1
        num_bytes = len(lines.stream.getvalue())
    is_bounded = most < TIMES
    if not statuses[refused.status] or statuses.keys() - {refused.status, 429, refused.before}:
        found.append(f"{dict(statuses)}")
    if is_bounded and statuses[429] < TIMES - most - 1:
        found.append(f"{statuses.total() - statuses[429]} of {TIMES} are not counted")
    if num_bytes > MOST_LOG_BYTES:
        found.append(f"{num_bytes} bytes of log")
    if (answers := [await send(good), await send(large)]) != [200, 200]:
        found.append(f"a good key is answered {answers}")
    for task in held:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return found


@pytest.mark.parametrize(
    ("row", "refused"), [(row, each) for row, cases in ROWS.items() if not isinstance(cases, str) for each in cases]
)
async def test_a_refusal_counts_and_a_good_key_at_its_address_is_served(row: str, refused: Refused) -> None:
    assert refused.before != 429 or await faults_of(refused, 4.0 * TIMES) == []
    assert await faults_of(refused, MOST_COUNTED) == []


def test_every_refusal_has_a_row(covered: Callable[[str], None]) -> None:
    found = {f"{file} {each}" for file in FILES for each in refusals_in(ast.parse((ROOT / file).read_text()))}
    covered(f"{len(found)} refusals, {TIMES} requests of each kind")
    assert found == ROWS.keys()


async def test_a_refusal_that_counts_nothing_is_found() -> None:
    counted_last = sorted(MIDDLEWARE, key=lambda each: repr(each.cls) == repr(AddressLimit))
    found = await faults_of(Refused(421, {"Host": "evil.example"}, "GET"), MOST_COUNTED, counted_last)
    assert found == [f"{TIMES} of {TIMES} are not counted"]
