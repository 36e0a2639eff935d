"""/metrics over TLS: monitors read it, nobody else does, and what changes counts from the next scrape on."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from cryptography import x509

from fedplcc.aggregator.identity.authority import Authority
from fedplcc.shared.identity.certificates import AGGREGATOR_DNS, CLIENT_DNS
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.principals import Principal
from fedplcc.shared.process.metrics import MAX_CONNECTIONS, REQUEST_S, MetricsServer, new_registry, serve_metrics
from fedplcc.shared.wire.serving.metrics_guard import MonitorGuard
from tests.support.federation.certificates import standing_by
from tests.support.identity.keyed_federation import issued

HOST = "127.0.0.1"


class Port:
    """An aggregator's /metrics, as it is served off loopback."""

    def __init__(self, folder: Path) -> None:
        (folder / "aggregator").mkdir()
        self.folder, self.authority = folder, Authority.open(folder / "aggregator")
        self.revoked: set[str] = set()
        self.refused: list[tuple[str, str]] = []
        self.now: Callable[[], float] = time.time

        def refused(caller: Principal, reason: str) -> None:
            self.refused.append((caller.caller, reason))

        guard = MonitorGuard(
            self.authority.own_file,
            lambda: self.authority.roots_pem,
            standing=standing_by(self.revoked),
            refused=refused,
            clock=lambda: self.now(),
        )
        self.server: MetricsServer = serve_metrics(new_registry("aggregator"), HOST, 0, guard)

    def member(self, role: Role, name: str = "watch") -> Credentials:
        return issued(self.authority, role, name)

    def scrape(self, held: Credentials | None, roots: bytes | None = None) -> tuple[int, str]:
        """Read /metrics as a Prometheus does whose three files are the one of the identity."""
        context = ssl.create_default_context(cadata=(roots or self.authority.roots_pem).decode())
        if held is not None:
            file = self.folder / IDENTITY_FILE
            held.save(file)
            context.load_cert_chain(file, file)
        with (
            socket.create_connection((HOST, self.server.port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=AGGREGATOR_DNS) as secured,
        ):
            secured.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            answer = http.client.HTTPResponse(secured)
            answer.begin()
            return answer.status, answer.read().decode()


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Port]:
    port = Port(tmp_path)
    yield port
    port.server.close()


def test_a_monitor_reads_the_metrics(port: Port) -> None:
    status, text = port.scrape(port.member(Role.MONITOR))
    assert status == 200
    assert "fedplcc_build_info" in text


@pytest.mark.parametrize("role", [Role.CLIENT, Role.GATEWAY])
def test_another_role_gets_no_metrics_and_the_audit_is_told(port: Port, role: Role) -> None:
    status, text = port.scrape(port.member(role))
    assert (status, text.partition(":")[0]) == (403, "ROLE_FORBIDDEN")
    assert port.refused == [(f"{role}:watch", "ROLE_FORBIDDEN")]


def test_without_a_certificate_or_with_one_of_another_federation_nothing_is_answered(
    port: Port, tmp_path: Path
) -> None:
    with pytest.raises((OSError, http.client.HTTPException)):
        port.scrape(None)
    (tmp_path / "other").mkdir()
    stranger = issued(Authority.open(tmp_path / "other"), Role.MONITOR, "watch")
    with pytest.raises((OSError, http.client.HTTPException)):
        port.scrape(stranger)
    with socket.create_connection((HOST, port.server.port), timeout=10) as plain:
        plain.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        with suppress(ConnectionError):
            assert plain.recv(1 << 16) == b""


def test_a_revoked_or_ended_monitor_is_refused_at_its_next_scrape(port: Port) -> None:
    monitor = port.member(Role.MONITOR)
    assert port.scrape(monitor)[0] == 200
    port.revoked.add(monitor.serial)
    assert port.scrape(monitor)[1].startswith("CERTIFICATE_REVOKED")
    port.revoked.clear()
    port.now = lambda: monitor.not_after + 1
    assert port.scrape(monitor)[1].startswith("CERTIFICATE_EXPIRED")


def test_a_new_certificate_and_a_new_root_count_from_the_next_scrape_on(port: Port) -> None:
    old_roots, old = port.authority.roots_pem, port.member(Role.MONITOR)
    port.authority.begin_rotation()
    new = port.member(Role.MONITOR)
    assert port.scrape(new, old_roots)[0] == port.scrape(old, old_roots)[0] == 200
    port.authority.finish_rotation()
    with pytest.raises(ssl.SSLCertVerificationError):
        port.scrape(new, old_roots)
    assert port.scrape(new)[0] == 200
    with pytest.raises((OSError, http.client.HTTPException)):
        port.scrape(old)


def test_callers_that_say_nothing_hold_nobody_up_and_are_bounded(port: Port) -> None:
    monitor = port.member(Role.MONITOR)
    with ExitStack() as opened:
        silent = [
            opened.enter_context(socket.create_connection((HOST, port.server.port), timeout=10))
            for _ in range(2 * MAX_CONNECTIONS)
        ]
        assert port.scrape(monitor)[0] == 200
        begun, late = silent[: MAX_CONNECTIONS + 1], silent[MAX_CONNECTIONS + 1 :]
        assert [each.recv(1) for each in begun] == [b""] * len(begun), "the oldest make way at once"
        at = time.monotonic()
        assert [each.recv(1) for each in late] == [b""] * len(late), "the others end by themselves"
        assert time.monotonic() < at + REQUEST_S + 2


def test_a_trainer_s_certificate_has_the_name_under_which_its_metrics_are_read(port: Port) -> None:
    names = port.member(Role.CLIENT).certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [CLIENT_DNS]
