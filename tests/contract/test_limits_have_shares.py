"""Every limit on what goes on at the same time is in a table here, with the share that one caller has of it.

Found in the code: pools of threads, semaphores, bounded queues, places, slots and turns, limits of gRPC servers, and
whatever refuses with Overloaded. One that is new fails until it is in the table, which is when its author thinks of shares.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.support import ROOT

FOLDERS = ("aggregator", "gateway", "shared")
NAMES = ("Semaphore", "PoolExecutor", "Slots", "Places", "Turns", "Threads", "Overloaded", "AddressShares")
"""Ends of the names of classes whose objects are limits, or the refusal of one."""
QUEUES = ("Queue", "LifoQueue", "PriorityQueue")
"""Classes whose objects are limits if they are given a size."""
GRPC_LIMITS = (
    "maximum_concurrent_rpcs",
    "grpc.max_concurrent_streams",
    "grpc.max_allowed_incoming_connections",
    "grpc.server.max_pending_requests",
)

LIMITS = {
    "aggregator/admin_socket.py AdminSocket.start maximum_concurrent_rpcs": "none needed: the state directory's owner alone",
    "aggregator/app.py _serve ThreadPoolExecutor": "decodes requests: 2 large ones of a caller",
    "aggregator/computation/reading_ahead.py read_ahead ThreadPoolExecutor": "none needed: of one fold, in its turn",
    "aggregator/incoming/commits.py Commits.__init__ Semaphore": "one at a time of a client",
    "aggregator/aggregating/round_work.py RoundWork.__init__ AggregationTurns": "runs take turns by the time they used",
    "aggregator/identity/sign_on/pending.py Pending.require_terminal Overloaded": "MOST_TERMINALS of an address",
    "aggregator/identity/sign_on/sign_ons.py SignOns.__init__ Semaphore": "MOST_OF_A_PERSON sessions of a person",
    "aggregator/identity/sign_on/sign_ons.py SignOns.__init__ Semaphore 2": "COMING_OF_AN_ADDRESS of an address",
    "aggregator/identity/sign_on/sign_ons.py SignOns._place_of Semaphore": "it is the share of an address",
    "aggregator/servicer/calls.py Threads": "CALLS_OF_A_CALLER of a caller",
    "aggregator/servicer/calls.py Threads 2": "CONTROL_CALLS_OF_A_CALLER of a caller",
    "aggregator/servicer/enrol_service.py EnrolServicer.__init__ Threads": "one at a time of an address",
    "aggregator/servicer/enrol_service.py EnrolServicer._call Overloaded": "16 of 64 of an address, and its rate",
    "aggregator/servicer/run_service.py RunServicer.CreateRun Overloaded": "2 of 16 of a caller: its large requests at once",
    "aggregator/servicer/run_service.py RunServicer.DeleteRun Overloaded": "16 of 32 of a caller",
    "aggregator/servicer/run_service.py RunServicer.GetPrototypeMap Overloaded": "16 of 32 of a caller",
    "aggregator/servicer/run_service.py RunServicer.__init__ Places": "2 of 4 uploads of a caller",
    "aggregator/servicer/run_service.py RunServicer.__init__ Threads": "creations: one at a time of a caller",
    "aggregator/servicer/run_service.py RunServicer.__init__ Threads 2": "maps: one at a time of a caller",
    "aggregator/servicer/run_service.py RunServicer.__init__ Threads 3": "deletions: one at a time of a caller",
    "aggregator/servicer/run_service.py RunServicer._place_for_model Overloaded": "2 of 4 of a caller",
    "gateway/http/guards/connections.py Listener.__init__ AddressShares": "MOST_OF_AN_ADDRESS of an address",
    "gateway/http/middleware.py BodyLimit.__init__ Slots": "MAX_LARGE_BODIES_OF_A_KEY of a key",
    "gateway/http/guards/slots.py Slots.taken Overloaded": "the share that each of the slots is given",
    "gateway/http/guards/slots.py Turns.__init__ Slots": "the share that the turns are given",
    "gateway/http/guards/slots.py Turns.__init__ Threads": "one at a time of a key",
    "gateway/messages/couriers.py Couriers.test Overloaded": "none needed: one test of a receiver, for administrators",
    "gateway/routes/dependencies.py _downloads Slots": "MAX_DOWNLOADS_OF_A_KEY of a key",
    "gateway/routes/dependencies.py _streams Slots": "MAX_EVENT_STREAMS_OF_A_KEY of a key",
    "gateway/routes/dependencies.py _turns Turns": "MAX_TURNS_OF_A_KEY of a key",
    "shared/methods/feddyn.py ServerSlots": "none needed: no limit, a part of a method",
    "shared/methods/fedopt.py ServerSlots": "none needed: no limit, a part of a method",
    "shared/process/metrics.py _Server.__init__ AddressShares": "MAX_OF_AN_ADDRESS of an address",
    "shared/wire/serving/caller.py Callers.admit Overloaded": "MOST_STREAMS of a caller",
    "shared/wire/serving/interceptor.py ErrorInterceptor.__init__ Places": "LARGE_AT_ONCE of a caller",
    "shared/wire/serving/places.py Places.take Overloaded": "of each caller by itself",
    "shared/wire/serving/places.py Places.take Semaphore": "of each caller by itself",
    "shared/wire/serving/server.py RpcServer.__init__ grpc.max_allowed_incoming_connections": "a quarter is for members",
    "shared/wire/serving/server.py RpcServer.__init__ grpc.max_concurrent_streams": "of each connection by itself",
    "shared/wire/serving/server.py RpcServer.__init__ grpc.server.max_pending_requests": "who calls in vain is cut off",
    "shared/wire/serving/server.py RpcServer.serve_health maximum_concurrent_rpcs": "none needed: this machine's own check",
    "shared/wire/serving/threads.py Threads.__init__ Places": "the share that each of the threads is given",
    "shared/wire/serving/threads.py Threads.__init__ ThreadPoolExecutor": "the share that each of the threads is given",
}
PLANTED = """
import asyncio, queue
from concurrent import futures

class Servicer:
    def __init__(self):
        self._pool, self._lines = futures.ThreadPoolExecutor(1), queue.Queue(maxsize=8)
        self._free: object = asyncio.BoundedSemaphore(3)

    async def serve(self):
        grpc.aio.server(maximum_concurrent_rpcs=4, options=[("grpc.max_concurrent_streams", 5)])
        if self.num > 7:
            raise errors.Overloaded("too many")

unbounded, sized = queue.Queue(), queue.Queue(9)
"""


def limits_in(tree: ast.AST, where: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield each limit by the class and function that it is in, and its kind."""
    for node in ast.iter_child_nodes(tree):
        inside = where
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inside = (*where, node.name)
        place = [".".join(where)] if where else []
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name.endswith(NAMES) or (name in QUEUES and (node.args or node.keywords)):
                yield " ".join((*place, name))
            yield from (" ".join((*place, each.arg)) for each in node.keywords if each.arg in GRPC_LIMITS)
        elif isinstance(node, ast.Constant) and node.value in GRPC_LIMITS:
            yield " ".join((*place, str(node.value)))
        yield from limits_in(node, inside)


def numbered(limits: Iterator[str]) -> Iterator[str]:
    """Yield the second of a kind at one place with a 2, and so on: each has a row of its own."""
    seen = Counter[str]()
    for limit in limits:
        seen[limit] += 1
        yield limit if seen[limit] == 1 else f"{limit} {seen[limit]}"


def test_every_limit_has_a_share_or_a_reason_why_it_needs_none(covered: Callable[[str], None]) -> None:
    found = {
        f"{path.relative_to(ROOT)} {limit}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for limit in numbered(limits_in(ast.parse(path.read_text())))
    }
    covered(f"{len(found)} limits")
    assert sorted(found - LIMITS.keys()) == [], "limits that are not in the table"
    assert sorted(LIMITS.keys() - found) == [], "rows of the table without a limit"


@pytest.mark.parametrize(
    "limit",
    [
        "Servicer.__init__ ThreadPoolExecutor",
        "Servicer.__init__ Queue",
        "Servicer.__init__ BoundedSemaphore",
        "Servicer.serve maximum_concurrent_rpcs",
        "Servicer.serve grpc.max_concurrent_streams",
        "Servicer.serve Overloaded",
        "Queue",
    ],
)
def test_a_planted_limit_is_found(limit: str) -> None:
    assert list(limits_in(ast.parse(PLANTED))).count(limit) == 1
