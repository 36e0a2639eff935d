"""Certificates and a key for the processes of a benchmark: what they speak is what a deployment speaks.

The parent process makes the federation's authority in the aggregator's state directory before the aggregator starts. Each
process that gets `Members` reads it there and certifies itself, so no benchmark joins by invitation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import grpc

from fedplcc.aggregator.identity.authority import Authority
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2, admin_service_pb2_grpc
from fedplcc.shared.identity.credentials import Credentials
from fedplcc.shared.identity.names import Role
from fedplcc.shared.wire.channels import CHANNEL_OPTIONS, open_channel
from fedplcc.shared.wire.tls import ClientTls, ServerTls
from tests.support.identity.issued import OperatorTls, channel_of, issued

KEY_S = 86_400.0
CALL_S = 60.0


@dataclass(frozen=True, slots=True)
class Members:
    """Where certificates of a federation are issued; plain text is spoken if nowhere."""

    state: Path | None
    """State directory of the aggregator."""

    @classmethod
    def of(cls, state: Path, *, plain: bool) -> Members:
        """Make a federation's authority in a state directory, unless plain text is asked for or there is one."""
        if plain:
            return cls(None)
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        members = cls(state)
        members._authority()
        return members

    def credentials(self, role: Role, name: str) -> Credentials:
        """Return a new certificate with its key."""
        return issued(self._authority(), role, name)

    def tls(self, name: str, role: Role = Role.CLIENT) -> ClientTls | None:
        """Return the TLS of a member, by default of a client; None for plain text."""
        if self.state is None:
            return None
        held = self.credentials(role, name)
        return ClientTls(lambda: held)

    def server_tls(self) -> ServerTls | None:
        """Return the aggregator's TLS, for the yardstick; None for plain text."""
        if self.state is None:
            return None
        authority = self._authority()
        return ServerTls(authority.server_credentials, lambda: authority.roots_pem)

    def open_bare_channel(self, address: str, name: str) -> grpc.Channel:
        """Return a channel of the yardstick, which any address may be given."""
        tls = self.tls(name)
        return open_channel(address, tls=tls) if tls else grpc.insecure_channel(address, options=CHANNEL_OPTIONS)

    def _authority(self) -> Authority:
        assert self.state is not None
        return _opened(self.state)


@lru_cache(maxsize=8)
def _opened(state: Path) -> Authority:
    return Authority.open(state)


@dataclass(frozen=True, slots=True)
class Served:
    """A running aggregator, for whoever calls it."""

    address: str
    members: Members
    admin_socket: str | None = None
    """Path of the socket of its owner; None for plain text."""

    def open_channel(self) -> grpc.Channel:
        """Return a channel of who steers runs: a gateway's, with a new key."""
        tls = self.members.tls("steering", Role.GATEWAY)
        return channel_of(self.address, None if tls is None else OperatorTls(tls.held, self._new_key()))

    def new_headers(self) -> dict[str, str]:
        """Return headers of requests to a gateway: a new key."""
        return {} if self.admin_socket is None else {"Authorization": f"Bearer {self._new_key()}"}

    def _new_key(self) -> str:
        with grpc.insecure_channel(f"unix:{self.admin_socket}") as channel:
            request = admin_service_pb2.CreateKeyRequest(label="bench", scopes=["admin", "metrics"], valid_s=KEY_S)
            stub: Any = admin_service_pb2_grpc.AdminServiceStub(channel)
            return str(stub.CreateKey(request, timeout=CALL_S).text)
