"""Every port that speaks TLS takes its versions 1.2 and 1.3, and ciphers with forward secrecy and authentication alone."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from fedplcc.shared.identity.names import Role
from fedplcc.shared.wire.serving.server import RpcServer
from fedplcc.shared.wire.tls import server_context
from tests.support.federation.certificates import TestAuthority

PORTS = ("member", "admission", "gateway and metrics")
TLS = ssl.TLSVersion
OLD = "ECDHE-ECDSA-AES128-SHA256"
"""A cipher of TLS 1.2 whose encryption and authentication are apart."""


@pytest.fixture(scope="module")
def authority() -> TestAuthority:
    return TestAuthority()


@asynccontextmanager
async def served(port: str, authority: TestAuthority, folder: Path) -> AsyncIterator[int]:
    """Serve as the port's process does; yields its number."""
    if port == "gateway and metrics":
        with _of_server_context(authority, folder) as number:
            yield number
        return
    server = RpcServer("127.0.0.1", 0, tls=authority.server_tls(demands_client=port == "member"))
    number = await server.start()
    try:
        yield number
    finally:
        await server.stop(0)


@contextmanager
def _of_server_context(authority: TestAuthority, folder: Path) -> Iterator[int]:
    context = server_context()
    (folder / "pair.pem").write_bytes(authority.server.key_pem + authority.server.chain_pem)
    context.load_cert_chain(folder / "pair.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as connection, suppress(OSError):
                context.wrap_socket(connection, server_side=True).close()

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield listening.getsockname()[1]
        finally:
            serving.join()


def agreed(number: int, pair: Path, lowest: TLS, highest: TLS, ciphers: str) -> str:
    """Version and cipher of a member's handshake."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.load_cert_chain(pair)
    client.set_ciphers(f"{ciphers}:@SECLEVEL=0")
    client.minimum_version, client.maximum_version = lowest, highest
    client.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", number), timeout=10) as connection,
        client.wrap_socket(connection) as secure,
    ):
        found = secure.cipher()
        assert found is not None
        return f"{secure.version()} {found[0]}"


def shaken(port: str, authority: TestAuthority, folder: Path, lowest: TLS, highest: TLS, ciphers: str = "ALL") -> str:
    member, pair = authority.issue(Role.CLIENT, "north"), folder / "member.pem"
    pair.write_bytes(member.key_pem + member.chain_pem)

    async def exchange() -> str:
        async with served(port, authority, folder) as number:
            return await asyncio.to_thread(agreed, number, pair, lowest, highest, ciphers)

    return asyncio.run(exchange())


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("port", PORTS)
def test_older_versions_and_ciphers_are_refused(port: str, authority: TestAuthority, tmp_path: Path) -> None:
    for version in (TLS.TLSv1, TLS.TLSv1_1):
        with pytest.raises(ssl.SSLError, match=r"(?i)version|EOF"):
            shaken(port, authority, tmp_path, version, version)
    with pytest.raises(ssl.SSLError, match=r"(?i)handshake_failure|EOF"):
        shaken(port, authority, tmp_path, TLS.TLSv1_2, TLS.TLSv1_2, OLD)


@pytest.mark.parametrize("port", PORTS)
def test_the_newest_version_is_agreed_where_both_sides_have_it(
    port: str, authority: TestAuthority, tmp_path: Path
) -> None:
    assert shaken(port, authority, tmp_path, TLS.TLSv1_2, TLS.TLSv1_3).startswith("TLSv1.3 TLS_")


@pytest.mark.parametrize("port", PORTS)
def test_tls_1_2_has_forward_secrecy_and_authenticated_encryption(
    port: str, authority: TestAuthority, tmp_path: Path
) -> None:
    version, cipher = shaken(port, authority, tmp_path, TLS.TLSv1_2, TLS.TLSv1_2).split()
    assert version == "TLSv1.2"
    assert cipher.startswith("ECDHE-ECDSA-")
    assert cipher.endswith(("-GCM-SHA256", "-GCM-SHA384", "-POLY1305"))
