"""Certificates and a key for the processes of a benchmark: what they speak is what a deployment speaks.

The parent process makes the federation's authority in the aggregator's state directory before the aggregator starts, and
writes clients into its list: a thousand do not join by invitations. Whoever else gets `Members` is admitted as everybody is.
"""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
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
from tests.support.identity.enrolled import enlist, enrolled
from tests.support.identity.issued import OperatorTls, channel_of, issued

KEY_S = 86_400.0
CALL_S = 60.0


@dataclass(frozen=True, slots=True)
class Members:
    """Where certificates of a federation are issued; plain text is spoken if nowhere."""

    state: Path | None
    """State directory of the aggregator."""

    @classmethod
    def of(cls, state: Path, *, plain: bool, clients: Sequence[str] = ()) -> Members:
        """Make a federation's authority and clients in a state directory, unless they are there; nothing for plain text."""
        if plain:
            return cls(None)
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        members = cls(state)
        authority = members._authority()
        members._folder.mkdir(mode=0o700, exist_ok=True)
        files = {name: members._file(Role.CLIENT, name) for name in clients}
        listed = {file: issued(authority, Role.CLIENT, name) for name, file in files.items() if not file.exists()}
        if listed:
            enlist(state, listed.values())
        for file, held in listed.items():
            held.save(file)
        return members

    def credentials(self, role: Role, name: str) -> Credentials:
        """Return a member's certificate with its key: the same in every process."""
        assert self.state is not None
        with (self._folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            file = self._file(role, name)
            if not file.exists():
                enrolled(self.state, role, name).save(file)
            return Credentials.load(file)

    @property
    def _folder(self) -> Path:
        assert self.state is not None
        return self.state.parent / "members"

    def _file(self, role: Role, name: str) -> Path:
        return self._folder / f"{role}-{name}.pem"

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
