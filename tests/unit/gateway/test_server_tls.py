"""The certificate of the gateway's port: which one is served, and what becomes of another one."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from fedplcc.aggregator.identity.authority import Authority
from fedplcc.gateway.http import server_tls
from fedplcc.gateway.http.server_tls import ServerTls
from fedplcc.shared.config.settings import GatewaySettings
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.identity.certificates import GATEWAY_DNS, key_from_pem, serial_of, serves_as
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.names import Role
from tests.support.federation.processes import eventually
from tests.support.identity.keyed_federation import issued


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    state = tmp_path / "aggregator"
    state.mkdir(mode=0o700)
    return Authority.open(state)


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> tuple[Path, Path]:
    return written(tmp_path, issued(authority, Role.GATEWAY, "console"))


def written(folder: Path, held: Credentials) -> tuple[Path, Path]:
    certificate, key = folder / "tls.crt", folder / "tls.key"
    certificate.write_bytes(held.chain_pem)
    key.write_bytes(held.key_pem)
    return certificate, key


def given(files: tuple[Path, Path], host: str = "127.0.0.1") -> GatewaySettings:
    return GatewaySettings(host=host, tls_cert=files[0], tls_key=files[1])


def used(settings: GatewaySettings) -> ServerTls:
    found = server_tls.server_tls(settings)
    assert found is not None
    return found


def shown(tls: ServerTls, version: ssl.TLSVersion | None = None) -> str:
    """Serial number of the certificate that a handshake shows."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    if version is not None:
        client.minimum_version = client.maximum_version = version
    there, here = socket.socketpair()
    with there, here:
        serving = threading.Thread(target=_serve, args=(tls, there))
        serving.start()
        try:
            with client.wrap_socket(here) as secure:
                found = secure.getpeercert(binary_form=True)
        finally:
            here.close()
            serving.join()
    assert found is not None
    return serial_of(x509.load_der_x509_certificate(found))


def _serve(tls: ServerTls, connection: socket.socket) -> None:
    try:
        tls.context.wrap_socket(connection, server_side=True).close()
    except OSError:
        connection.close()


@contextmanager
def followed(tls: ServerTls) -> Iterator[None]:
    loop = asyncio.new_event_loop()
    following = loop.create_task(tls.follow())

    def run() -> None:
        loop.run_until_complete(asyncio.gather(following, return_exceptions=True))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(following.cancel)
        thread.join()
        loop.close()


def test_the_given_certificate_is_served(authority: Authority, files: tuple[Path, Path]) -> None:
    tls = used(given(files))
    assert not tls.is_own
    assert shown(tls) == serial_of(x509.load_pem_x509_certificate(files[0].read_bytes()))


def test_off_loopback_the_federations_own_is_served(tmp_path: Path, authority: Authority) -> None:
    held = issued(authority, Role.GATEWAY, "console")
    state = tmp_path / "gateway"
    state.mkdir(mode=0o700)
    held.save(state / IDENTITY_FILE)
    tls = used(GatewaySettings(host="0.0.0.0", state_dir=state))
    assert tls.is_own
    assert shown(tls) == held.serial


def test_only_gateways_are_certified_under_their_name(authority: Authority) -> None:
    for role in (Role.CLIENT, Role.GATEWAY, Role.MONITOR):
        certificate = issued(authority, role, "north").certificate
        assert serves_as(certificate, GATEWAY_DNS) is (role is Role.GATEWAY)


@pytest.mark.parametrize(
    "settings", [{}, {"host": "::1"}, {"host": "0.0.0.0", "plain_http": True}, {"host": "0.0.0.0", "insecure": True}]
)
def test_http_is_served_on_loopback_and_where_it_was_asked_for(settings: dict[str, object]) -> None:
    assert server_tls.server_tls(GatewaySettings.model_validate(settings)) is None


def test_without_a_certificate_off_loopback_the_sentence_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"fedplcc join.*--tls-cert and --tls-key.*--plain-http"):
        server_tls.server_tls(GatewaySettings(host="0.0.0.0", state_dir=tmp_path))


def test_a_trainers_certificate_serves_nothing(tmp_path: Path, authority: Authority) -> None:
    issued(authority, Role.CLIENT, "north").save(tmp_path / IDENTITY_FILE)
    with pytest.raises(InvalidConfig, match=r"of client north.*gateway\.fedplcc"):
        server_tls.server_tls(GatewaySettings(host="0.0.0.0", state_dir=tmp_path))


@pytest.mark.parametrize(
    "settings",
    [
        {"tls_cert": "a"},
        {"tls_key": "a"},
        {"tls_cert": "a", "tls_key": "b", "plain_http": True},
        {"tls_cert": "a", "tls_key": "b", "insecure": True},
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match="tls_cert and"):
        GatewaySettings.model_validate(settings)


def of_another(files: tuple[Path, Path], authority: Authority) -> None:
    files[1].write_bytes(issued(authority, Role.GATEWAY, "other").key_pem)


def with_a_password(files: tuple[Path, Path], _authority: Authority) -> None:
    key = key_from_pem(files[1].read_bytes())
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))


def cut(files: tuple[Path, Path], _authority: Authority) -> None:
    files[0].write_bytes(files[0].read_bytes()[:100])


def removed(files: tuple[Path, Path], _authority: Authority) -> None:
    files[0].unlink()


BROKEN = [of_another, with_a_password, cut, removed]


@pytest.mark.parametrize("damage", BROKEN)
def test_a_pair_that_does_not_fit_is_refused_at_the_start(
    files: tuple[Path, Path], authority: Authority, damage: Callable[[tuple[Path, Path], Authority], None]
) -> None:
    damage(files, authority)
    with pytest.raises(InvalidConfig, match=r"tls\.(crt|key)"):
        used(given(files))


@pytest.mark.parametrize("damage", BROKEN)
def test_a_new_pair_is_served_without_a_restart_and_a_broken_one_never(
    tmp_path: Path,
    files: tuple[Path, Path],
    authority: Authority,
    damage: Callable[[tuple[Path, Path], Authority], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_tls, "LOOK_S", 0.01)
    tls = used(given(files))
    first = shown(tls)
    looks = Looks(tls)
    with followed(tls):
        damage(files, authority)
        looks.wait_for(3)
        assert shown(tls) == first
        newer = issued(authority, Role.GATEWAY, "console")
        written(tmp_path, newer)
        eventually(lambda: shown_at_last(tls) == newer.serial, "the new certificate is served")


def shown_at_last(tls: ServerTls) -> str | None:
    """The same while the pair may change: a handshake of this thread, unlike one of the event loop, may meet half of it."""
    try:
        return shown(tls)
    except ssl.SSLError:
        return None


class Looks:
    """Counts the looks at the files, so that a test waits for them and not for the clock."""

    def __init__(self, tls: ServerTls) -> None:
        self._looked = threading.Condition()
        self._count = 0
        look = tls._changed

        def counted() -> tuple[bytes, bytes] | None:
            found = look()
            with self._looked:
                self._count += 1
                self._looked.notify_all()
            return found

        tls._changed = counted  # type: ignore[method-assign]

    def wait_for(self, more: int) -> None:
        with self._looked:
            until = self._count + more
            assert self._looked.wait_for(lambda: self._count >= until, 60)


def test_tls_1_2_is_the_oldest_that_is_spoken(files: tuple[Path, Path]) -> None:
    tls = used(given(files))
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert shown(tls, ssl.TLSVersion.TLSv1_2)
