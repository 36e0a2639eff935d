"""Search: every role with every name that means something, dialled as each of the project's clients dials a server."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import grpc
import pytest

from fedplcc.aggregator.identity.admissions import Admissions
from fedplcc.aggregator.identity.authority import Authority
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.gateway_client.gateway_tls import context_for
from fedplcc.shared.errors import MalformedRequest
from fedplcc.shared.identity import certificates
from fedplcc.shared.identity.certificates import (
    AGGREGATOR_DNS,
    DNS_NAMES,
    GATEWAY_DNS,
    RESERVED_NAMES,
    is_reserved_name,
    key_to_pem,
    new_key,
)
from fedplcc.shared.identity.names import INVITED_ROLES, Identity, Role
from fedplcc.shared.wire.channels import open_channel
from tests.support.federation.certificates import Held, TestAuthority

METHOD = "/fedplcc.v1.RunService/ListRuns"
NAMES = sorted({*RESERVED_NAMES, *(value for name, value in vars(certificates).items() if name.endswith("_DNS"))})
SPELLINGS = (str.lower, str.upper, lambda name: f"{name}.")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.open(tmp_path_factory.mktemp("authority"))


def issued(authority: Authority, role: Role, name: str) -> Held:
    key = new_key()
    certificate = authority.issue_client(Identity(authority.federation, role, name), key.public_key(), 3600.0)
    return Held(key_to_pem(key), certificate.chain_pem, authority.roots_pem)


def answers_as_aggregator(held: Held, caller: Held) -> bool:
    """Whether a client's channel gets an answer from a server with this certificate."""
    handler = grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"mine")
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("fedplcc.v1.RunService", {"ListRuns": handler}),)
    )
    credentials = grpc.ssl_server_credentials([(held.key_pem, held.chain_pem)], held.roots_pem, True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        with open_channel(f"127.0.0.1:{port}", tls=caller.tls) as opened:
            channel: Any = opened
            return bool(channel.unary_unary(METHOD)(b"", timeout=20.0) == b"mine")
    except grpc.RpcError as error:
        if "Hostname Verification Check failed" not in (error.details() or ""):
            raise
        return False
    finally:
        server.stop(None)


def answers_as_gateway(held: Held, folder: Path) -> bool:
    """Whether a command's TLS takes a server with this certificate for the gateway."""
    for name, data in (("served.pem", held.key_pem + held.chain_pem), ("roots.pem", held.roots_pem)):
        (folder / name).write_bytes(data)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "served.pem")
    here, there = socket.socketpair()

    def serve() -> None:
        with suppress(OSError), serving.wrap_socket(there, server_side=True) as served:
            served.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with context_for("https://127.0.0.1:1", folder / "roots.pem").wrap_socket(here):
            return True
    except ssl.SSLCertVerificationError:
        return False
    finally:
        here.close()
        thread.join()
        there.close()


def test_a_role_decides_who_is_dialled_whatever_the_name(
    authority: Authority, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    covered(f"{len(INVITED_ROLES)} roles, each with {len(NAMES)} names, dialled as aggregator and as gateway")
    own = authority.own
    aggregator = Held(own.key_pem, own.chain_pem, authority.roots_pem)
    caller = issued(authority, Role.CLIENT, "north")
    assert answers_as_aggregator(aggregator, caller)
    assert answers_as_gateway(issued(authority, Role.GATEWAY, "console"), tmp_path)
    assert {AGGREGATOR_DNS, GATEWAY_DNS, "owner", "localhost"} <= set(NAMES)
    for role, name in product(sorted(INVITED_ROLES), NAMES):
        held = issued(authority, role, name)
        assert not answers_as_aggregator(held, caller), (role, name)
        assert answers_as_gateway(held, tmp_path) == (role is Role.GATEWAY), (role, name)


def test_each_role_has_a_name_of_its_own() -> None:
    assert set(DNS_NAMES) == set(Role), "a certificate without a DNS name is dialled by its common name"
    names = [name for names in DNS_NAMES.values() for name in names]
    assert len(names) == len(set(names))


def test_the_search_finds_a_certificate_without_the_name_of_its_role() -> None:
    """The planted member: as monitors' certificates were before, with a common name alone."""
    planted = TestAuthority()
    caller = planted.issue(Role.CLIENT, "north")
    assert answers_as_aggregator(planted.issue(Role.MONITOR, AGGREGATOR_DNS), caller)
    assert not answers_as_aggregator(
        planted.issue(Role.MONITOR, AGGREGATOR_DNS, dns_names=DNS_NAMES[Role.MONITOR]), caller
    )


def test_a_command_takes_no_common_name_for_the_gateway(tmp_path: Path) -> None:
    planted = TestAuthority()
    assert not answers_as_gateway(planted.issue(Role.MONITOR, GATEWAY_DNS), tmp_path)


def test_names_that_mean_a_role_are_not_invited(authority: Authority, tmp_path: Path) -> None:
    store = SqlStore.in_folder(tmp_path)
    admissions = Admissions(store, authority)
    for role, name, spell in product(sorted(INVITED_ROLES), NAMES, SPELLINGS):
        with pytest.raises(MalformedRequest, match="means another part of the federation"):
            admissions.invite(role, spell(name))
    for role in sorted(INVITED_ROLES):
        admissions.invite(role, f"{role}-of-fedplcc")
    assert not is_reserved_name("north.example")
    store.close()
