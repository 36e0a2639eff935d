"""A gateway off loopback beside an aggregator over TLS: it serves HTTPS with the federation's own certificate."""

from __future__ import annotations

from pathlib import Path

import httpx

from fedplcc.gateway_client.gateway_tls import context_for
from fedplcc.shared.identity.names import Role
from tests.support.federation.processes import Process, eventually, free_port
from tests.support.identity.keyed_federation import Keyed


class OverHttps(Keyed):
    """A federation whose gateway listens at every address of this machine."""

    @property
    def gateway_url(self) -> str:
        return f"https://127.0.0.1:{self.gateway_port}"

    @property
    def gateway_identity(self) -> Path:
        """File with the gateway's certificate."""
        return self.identity_file(Role.GATEWAY, "console", self.folder / "gateway")

    def client(self) -> httpx.Client:
        """A client that checks the gateway by the federation's roots."""
        return httpx.Client(
            base_url=self.gateway_url,
            timeout=None,
            trust_env=False,
            verify=context_for(self.gateway_url, self.gateway_identity),
        )

    def start_gateway(self, *flags: str) -> Process:
        self.gateway_port = self.gateway_port or free_port()
        arguments = ["gateway", "--host", "0.0.0.0", "--port", str(self.gateway_port), "--aggregator", self.address]
        arguments += ["--state-dir", str(self.gateway_identity.parent)]
        process = self.processes["gateway"] = Process("gateway", self.folder, [*arguments, *flags])
        process.start()

        def is_ready() -> bool:
            assert process.is_running, process.log()
            try:
                with self.client() as client:
                    return client.get("/readyz").status_code == 200
            except httpx.TransportError:
                return False

        eventually(is_ready, "the gateway is ready")
        return process
