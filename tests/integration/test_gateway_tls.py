"""HTTPS of the gateway with real processes: the federation's own certificate, renewed live, and commands that check it."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fedplcc.gateway_client.gateway_tls import context_for
from fedplcc.shared.identity.names import Role
from tests.support.federation.processes import Process, eventually, free_port
from tests.support.identity.keyed_federation import Keyed, issued

STALLED = 50


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


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OverHttps]:
    with OverHttps(tmp_path_factory.mktemp("https")) as federation:
        federation.begin()
        yield federation


@pytest.fixture
def http(served: OverHttps) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def kept(served: OverHttps) -> Path:
    return served.folder / "user" / "fedplcc"


def serial_shown(served: OverHttps) -> str:
    context = ssl.create_default_context(cadata=served.authority.roots_pem.decode())
    with (
        socket.create_connection(("127.0.0.1", served.gateway_port)) as connection,
        context.wrap_socket(connection, server_hostname="gateway.fedplcc") as secure,
    ):
        found = secure.getpeercert()
    assert found is not None
    return str(found["serialNumber"]).lower().lstrip("0")


def test_a_client_that_knows_the_roots_checks_the_fixed_name(served: OverHttps, http: httpx.Client) -> None:
    assert http.get("/readyz").status_code == 200
    with (
        httpx.Client(trust_env=False) as stranger,
        pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        stranger.get(f"{served.gateway_url}/readyz")


def test_the_own_certificate_asks_no_browser_to_remember_https(http: httpx.Client) -> None:
    assert "strict-transport-security" not in http.get("/livez").headers


def test_the_session_cookie_is_secure(served: OverHttps, http: httpx.Client) -> None:
    answer = http.post("/v1/console/sessions", json={"code": served.code()})
    assert answer.status_code == 204
    named, *attributes = answer.headers["set-cookie"].split("; ")
    name, _, value = named.partition("=")
    assert {"Secure", "HttpOnly", "SameSite=strict", "Path=/"} <= set(attributes)
    assert name == f"__Host-fedplcc-{served.authority.federation}"
    asked = {shown: http.get("/v1/me", headers={"Cookie": f"{shown}={value}"}) for shown in (name, name[7:])}
    assert [answer.status_code for answer in asked.values()] == [
        200,
        401,
    ]  # what plain text may have set does not count


def test_commands_check_the_gateway_by_the_roots_that_login_kept(served: OverHttps) -> None:
    arguments = ("run", "list", "--gateway", served.gateway_url)
    refused = served.command(*arguments)
    assert refused.returncode != 0
    assert "fedplcc login" in refused.stderr
    assert "not trusted" in refused.stderr
    served.owner("login", "--gateway", served.gateway_url)
    assert served.command(*arguments).returncode == 0
    by_name = served.gateway_url.replace("127.0.0.1", "localhost")
    assert served.command("run", "list", "--gateway", by_name).returncode != 0
    served.owner("login", "--gateway", by_name)
    assert served.command("run", "list", "--gateway", by_name).returncode == 0
    for file in ("keys.json", "gateway-roots.json"):
        (kept(served) / file).unlink()


def test_a_command_takes_the_roots_from_a_file(served: OverHttps, tmp_path: Path) -> None:
    text = served.owner("key", "create", "elsewhere", "--scope", "read")
    roots, others = tmp_path / "roots.pem", tmp_path / "empty.pem"
    roots.write_bytes(served.authority.roots_pem)
    others.write_text("nothing")
    arguments = ("run", "list", "--gateway", served.gateway_url)
    done = served.command("login", "--stdin", "--gateway", served.gateway_url, given=text + "\n")
    assert done.returncode == 0, done.stderr
    assert served.command(*arguments).returncode != 0
    assert served.command(*arguments, "--gateway-ca", str(roots)).returncode == 0
    assert "no certificates" in served.command(*arguments, "--gateway-ca", str(others)).stderr
    identity = str(served.gateway_identity)
    assert served.command("doctor", "--serves", served.gateway_url, "--identity", identity).returncode == 0
    (kept(served) / "keys.json").unlink()


def test_http_at_the_port_of_https_is_named(served: OverHttps) -> None:
    found = served.command("run", "list", "--gateway", served.gateway_url.replace("https", "http"))
    assert "speaks TLS; write https://" in found.stderr


def test_handshakes_that_stall_hold_nobody_up(served: OverHttps, http: httpx.Client) -> None:
    stalled = [socket.create_connection(("127.0.0.1", served.gateway_port)) for _ in range(STALLED)]
    try:
        for connection in stalled[::2]:
            connection.sendall(b"\x16\x03\x01\x02\x00")  # the beginning of a greeting
        with served.client() as client:
            assert client.get("/livez").status_code == 200
    finally:
        for connection in stalled:
            connection.close()


def test_a_renewed_certificate_is_served_live_while_a_stream_goes_on(served: OverHttps, http: httpx.Client) -> None:
    before = serial_shown(served)
    assert http.get("/livez").status_code == 200  # over a connection that stays open
    newer = issued(served.authority, Role.GATEWAY, "console")
    newer.save(served.gateway_identity)
    eventually(lambda: serial_shown(served) == newer.serial, "the new certificate is served")
    assert before != newer.serial
    assert http.get("/readyz").status_code == 200
    started = [json.loads(line) for line in served.processes["gateway"].log().splitlines() if "gateway_ready" in line]
    assert len(started) == 1
