"""A gateway on a real port in front of a real aggregator service on another, in one background thread of this process.

The test's own thread speaks HTTP and drives the federation's numpy clients; nothing is faked, so streams, disconnections
and restarts are what they are in production.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
from fastapi import FastAPI

from fedplcc.aggregator.identity.audit import Audit
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.servicer.audit_calls import AuditServicer
from fedplcc.aggregator.servicer.run_service import RunServicer
from fedplcc.aggregator.servicer.wakeups import Wakeups
from fedplcc.gateway.app import serve
from fedplcc.gateway.http.server import Server
from fedplcc.gateway.routes.dependencies import Services
from fedplcc.gateway_client.gateway_tls import context_for
from fedplcc.shared.config.settings import GatewaySettings
from fedplcc.shared.gen.fedplcc.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
)
from fedplcc.shared.wire.serving.server import RpcServer
from tests.support.federation.in_process import Clock, LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document

Result = TypeVar("Result")
WAIT_S = None
"""Time that anything may take here: as long as the test. On a busy machine nothing else is certain, and a server that has
died answers at once."""


class ServedGateway:
    """Use it as a context manager; `http` is a client of the gateway, `federation` what the aggregator serves."""

    def __init__(
        self,
        folder: Path,
        clients: Iterable[str | NumpyClient] = ("ann", "bob"),
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        made = [NumpyClient(client) if isinstance(client, str) else client for client in clients]
        self.federation = LocalFederation(folder, made, limits, clock)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway under test", daemon=True)
        self._aggregator_port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.start_aggregator()
        self.settings = GatewaySettings(port=0, insecure=True, aggregator=f"127.0.0.1:{self._aggregator_port}")
        self.start()
        self.http = httpx.Client(base_url=self.url, timeout=None, verify=context_for(self.url))
        return self

    def __exit__(self, *_exception: object) -> None:
        self.http.close()
        self.stop()
        self.stop_aggregator()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()
        self.federation.store.close()

    @property
    def services(self) -> Services:
        """Services of the gateway's handlers."""
        services: Services = self.app.state.services
        return services

    @property
    def app(self) -> FastAPI:
        """The gateway's application."""
        app: FastAPI = self._server.config.app  # type: ignore[assignment]
        return app

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the gateway's event loop."""
        return self._await(coroutine)

    def start(self) -> None:
        """Serve the gateway, again at the same port if it was served before."""
        ready: asyncio.Future[tuple[Server, str]] = self._loop.create_future()
        self._serving = asyncio.run_coroutine_threadsafe(
            serve(self.settings, lambda server, url: ready.set_result((server, url))), self._loop
        )
        self._server, self.url = self._await(_result(ready))
        self.settings = self.settings.model_copy(update={"port": httpx.URL(self.url).port})

    def stop(self) -> None:
        """Stop the gateway the way a signal does, and wait for its end."""
        self._server.should_exit = True
        self._serving.result(WAIT_S)

    def start_aggregator(self) -> None:
        """Serve the federation's coordinator, again at the same port if it was served before."""
        self._await(self._start_aggregator())

    def stop_aggregator(self) -> None:
        """End the service as the aggregator's process does, open streams included."""
        self._await(self._stop_aggregator())

    async def report(self, serves: bool) -> None:
        """Say whether the aggregator serves, as its process does."""
        await self._aggregator.report(serves=serves)

    def create(self, *, key: str | None = None, **sections: Any) -> str:
        """Create a run by REST; returns its id."""
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = self.http.post("/v1/runs", json=a_document(**sections), headers=headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["run_id"])

    def create_and_finish(self, **sections: Any) -> str:
        """Create a run by REST and let the clients take it to its end."""
        run_id = self.create(**sections)
        self.federation.join()
        self.federation.run_to_end(run_id)
        return run_id

    async def _start_aggregator(self) -> None:
        self._wakeups = Wakeups(asyncio.get_running_loop())
        self.federation.coordinator.subscribe(self._wakeups.notify)
        self._aggregator = RpcServer("127.0.0.1", self._aggregator_port)
        self._aggregator.add(
            run_service_pb2_grpc.add_RunServiceServicer_to_server,
            RunServicer(self.federation.coordinator, self._wakeups),
            run_service_pb2.DESCRIPTOR.services_by_name["RunService"],
        )
        self._aggregator.add(
            admin_service_pb2_grpc.add_AdminServiceServicer_to_server,
            AuditServicer(Audit(self.federation.store)),
            admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"],
        )
        self._aggregator_port = await self._aggregator.start()

    async def _stop_aggregator(self) -> None:
        self._wakeups.close()
        await self._aggregator.stop(1.0)

    def _await(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WAIT_S)


async def _result(future: asyncio.Future[Result]) -> Result:
    return await future
