"""A server with mutual TLS in a process of its own: `python -m tests.support.federation.member_server`.

It reads one line of JSON: its key and chain, the roots and the revoked serial numbers; prints its port; answers heartbeats,
joins and commits, which it converts, with nothing; and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from fedplcc.aggregator.servicer.calls import call
from fedplcc.shared.convert.updates import inline_blobs_of, update_from_commit
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, round_service_pb2_grpc
from fedplcc.shared.process.allocator import keep_freed_memory
from fedplcc.shared.process.log import set_up
from fedplcc.shared.wire.serving.caller import Callers, Certificates
from fedplcc.shared.wire.serving.server import RpcServer
from fedplcc.shared.wire.tls import ServerTls
from tests.support.federation.certificates import standing_by


class Servicer(round_service_pb2_grpc.RoundServiceServicer):
    """Servicer whose answers are empty; a planted one keeps the commits."""

    def __init__(self, *, keeps: bool) -> None:
        self._keeps, self._kept = keeps, list[Any]()

    async def Heartbeat(self, request: Any, context: Any) -> Any:
        """See RoundService.Heartbeat."""
        return round_service_pb2.HeartbeatResponse()

    async def Join(self, request: Any, context: Any) -> Any:
        """See RoundService.Join."""
        return round_service_pb2.JoinResponse()

    async def CommitUpdate(self, request: Any, context: Any) -> Any:
        """See RoundService.CommitUpdate."""
        if self._keeps:
            self._kept.append(request)
        await call(lambda: (update_from_commit(request), inline_blobs_of(request)))
        return round_service_pb2.CommitUpdateResponse()


async def serve(given: dict[str, Any]) -> None:
    """Serve until standard input ends."""
    key, chain, roots = (given[name].encode() for name in ("key", "chain", "roots"))
    callers = Callers(Certificates(lambda: roots, standing_by(set(given["revoked"]))))
    server = RpcServer("127.0.0.1", 0, tls=ServerTls(lambda: (key, chain), lambda: roots), callers=callers)
    service = round_service_pb2.DESCRIPTOR.services_by_name["RoundService"]
    server.add(
        round_service_pb2_grpc.add_RoundServiceServicer_to_server, Servicer(keeps=bool(given.get("keeps"))), service
    )
    print(await server.start(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)


if __name__ == "__main__":
    keep_freed_memory()
    set_up("debug")
    asyncio.run(serve(json.loads(sys.stdin.readline())))
