"""Certificates, judged by OpenSSL: the command, and the library behind Python's ssl."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from fedplcc.shared.errors import CertificateExpired, InvalidConfig, MalformedRequest, Unauthenticated
from fedplcc.shared.identity.certificates import (
    AGGREGATOR_DNS,
    MAX_REQUEST_BYTES,
    certificate_to_pem,
    check_chain,
    identity_of,
    issue,
    key_from_pem,
    key_of_request,
    key_to_pem,
    load_certificate,
    load_roots,
    make_root,
    new_key,
    public_key_sha256,
    request_for,
    serial_of,
)
from fedplcc.shared.identity.credentials import Credentials
from fedplcc.shared.identity.names import Identity, Role

NOW = 1_795_000_000.0
FEDERATION = "f0123456789abcde"
NORTH = Identity(FEDERATION, Role.CLIENT, "north")
ROOT_KEY = new_key()
ROOT = make_root(ROOT_KEY, FEDERATION, NOW)
ROOT_PEM = certificate_to_pem(ROOT)


def credentials(
    identity: Identity = NORTH, *, now: float = NOW, valid_s: float = 3600.0, dns_names: tuple[str, ...] = ()
) -> Credentials:
    """A member's key and certificate."""
    key = new_key()
    certificate = issue(ROOT, ROOT_KEY, key.public_key(), identity, now=now, valid_s=valid_s, dns_names=dns_names)
    return Credentials(key_to_pem(key), certificate_to_pem(certificate), ROOT_PEM, domain="mri", address="fl:50051")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
@pytest.mark.parametrize("purpose", ["sslclient", "sslserver"])
def test_openssl_finds_a_chain_good_for_both_ends_of_tls(tmp_path: Path, purpose: str) -> None:
    (tmp_path / "root.pem").write_bytes(ROOT_PEM)
    (tmp_path / "leaf.pem").write_bytes(credentials().chain_pem)
    command = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-attime", str(int(NOW))]
    done = subprocess.run(
        [*command, "-CAfile", tmp_path / "root.pem", tmp_path / "leaf.pem"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = subprocess.run(
        ["openssl", "x509", "-in", tmp_path / "leaf.pem", "-noout", "-ext", "subjectAltName,keyUsage,basicConstraints"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"URI:spiffe://{FEDERATION}/client/north" in said
    assert "CA:FALSE" in said
    assert "Digital Signature" in said


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
def test_openssl_finds_a_leaf_that_signs_another_no_authority(tmp_path: Path) -> None:
    key, leaf = new_key(), credentials()
    below = issue(leaf.certificate, key_from_pem(leaf.key_pem), key.public_key(), NORTH, now=NOW, valid_s=3600.0)
    (tmp_path / "root.pem").write_bytes(ROOT_PEM)
    (tmp_path / "leaf.pem").write_bytes(leaf.chain_pem)
    (tmp_path / "below.pem").write_bytes(certificate_to_pem(below))
    files = [str(tmp_path / f"{name}.pem") for name in ("root", "leaf", "below")]
    command = ["openssl", "verify", "-attime", str(int(NOW)), "-CAfile", files[0], "-untrusted", *files[1:]]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode != 0
    with pytest.raises(Unauthenticated, match="another authority"):
        check_chain(certificate_to_pem(below), ROOT_PEM, NOW)


def test_both_ends_shake_hands_under_the_one_dns_name(tmp_path: Path) -> None:
    now = time.time()
    key = new_key()
    root = make_root(key, FEDERATION, now)
    files = {}
    for name, dns_names in (("server", (AGGREGATOR_DNS,)), ("client", ())):
        own = new_key()
        identity = Identity(FEDERATION, Role.CLIENT, name)
        leaf = issue(root, key, own.public_key(), identity, now=now, valid_s=3600.0, dns_names=dns_names)
        files[name] = tmp_path / f"{name}.pem"
        files[name].write_bytes(key_to_pem(own) + certificate_to_pem(leaf))
    (tmp_path / "root.pem").write_bytes(certificate_to_pem(root))
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "root.pem"))
    serving.verify_mode = ssl.CERT_REQUIRED
    serving.load_cert_chain(files["server"])
    dialling = ssl.create_default_context(cafile=str(tmp_path / "root.pem"))
    dialling.load_cert_chain(files["client"])
    here, there = socket.socketpair()
    seen: list[Any] = []

    def serve() -> None:
        with serving.wrap_socket(there, server_side=True) as served:
            seen.append(served.getpeercert())
            served.sendall(b"hello")

    thread = threading.Thread(target=serve)
    thread.start()
    with dialling.wrap_socket(here, server_hostname=AGGREGATOR_DNS) as dialled:
        assert dialled.recv(5) == b"hello"
    thread.join()
    assert ("URI", f"spiffe://{FEDERATION}/client/client") in seen[0]["subjectAltName"]


def test_a_certificate_says_who_and_until_when() -> None:
    found = credentials()
    assert found.identity == NORTH == identity_of(found.certificate)
    assert found.serial == serial_of(found.certificate)
    assert found.not_after == NOW + 3600
    assert found.issued_at == NOW - 7200
    assert check_chain(found.chain_pem, ROOT_PEM, NOW) == found.certificate


def test_a_certificate_of_another_time_is_refused_with_the_time() -> None:
    found = credentials()
    with pytest.raises(CertificateExpired, match=r"'north' ended at 2026-11-18 .* UTC"):
        check_chain(found.chain_pem, ROOT_PEM, NOW + 3601)
    check_chain(found.chain_pem, ROOT_PEM, NOW - 3600)  # a clock that is an hour slow
    with pytest.raises(Unauthenticated, match="a clock may be wrong"):
        check_chain(found.chain_pem, ROOT_PEM, NOW - 7201)


def test_a_certificate_of_another_authority_is_refused() -> None:
    other_key = new_key()
    other = make_root(other_key, FEDERATION, NOW)
    leaf = issue(other, other_key, new_key().public_key(), NORTH, now=NOW, valid_s=3600.0)
    with pytest.raises(Unauthenticated, match="another authority"):
        check_chain(certificate_to_pem(leaf), ROOT_PEM, NOW)
    check_chain(certificate_to_pem(leaf), ROOT_PEM + certificate_to_pem(other), NOW)  # while roots are rotated
    with pytest.raises(MalformedRequest, match="names no member"):
        check_chain(ROOT_PEM, ROOT_PEM, NOW)


def test_a_certificate_that_names_another_federation_than_its_root_is_refused() -> None:
    elsewhere = Identity("f000000000000000", Role.CLIENT, "north")
    with pytest.raises(Unauthenticated, match="another authority"):
        check_chain(credentials(elsewhere).chain_pem, ROOT_PEM, NOW)


def test_keys_and_roots_have_bounds() -> None:
    with pytest.raises(MalformedRequest, match="a key has"):
        key_from_pem(b"-----BEGIN PRIVATE KEY-----" + b"A" * 10_000)
    assert load_roots(2 * ROOT_PEM) == [ROOT, ROOT]
    for wrong in (5 * ROOT_PEM, ROOT_PEM + b"#" * 40_000, b"", b"hello"):
        with pytest.raises(MalformedRequest, match="root"):
            load_roots(wrong)


def test_a_certificate_with_two_names_is_refused() -> None:
    names = [x509.UniformResourceIdentifier(f"spiffe://{FEDERATION}/client/{name}") for name in ("north", "south")]
    key = new_key()
    built = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(ROOT.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(ROOT.not_valid_before_utc)
        .not_valid_after(ROOT.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(ROOT_KEY, hashes.SHA256())
    )
    with pytest.raises(MalformedRequest, match="2 names"):
        identity_of(built)


def test_the_key_of_a_request_is_taken_and_nothing_else_of_it() -> None:
    key = new_key()
    assert public_key_sha256(key_of_request(request_for(key))) == public_key_sha256(key.public_key())


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (b"", "no request"),
        (b"x" * 100, "no request"),
        (b"x" * (MAX_REQUEST_BYTES + 1), "are the limit"),
        (request_for(new_key())[:-1], "no request"),
    ],
)
def test_what_is_no_request_is_refused(request_: bytes, said: str) -> None:
    with pytest.raises(MalformedRequest, match=said):
        key_of_request(request_)


def test_a_request_of_another_kind_of_key_or_with_a_broken_signature_is_refused() -> None:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    for key in (rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())):
        with pytest.raises(MalformedRequest, match="P-256"):
            key_of_request(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER))
    one, other = request_for(new_key()), request_for(new_key())
    spki = slice(len(one) - 160, len(one) - 90)
    with pytest.raises(MalformedRequest):
        key_of_request(one[: spki.start] + other[spki] + one[spki.stop :])


def test_credentials_are_read_as_they_were_written_and_only_their_owner_may_read_them(tmp_path: Path) -> None:
    file, found = tmp_path / "identity.pem", credentials()
    before = os.umask(0)
    try:
        found.save(file)
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    assert Credentials.load(file) == found
    load_certificate(found.chain_pem)
    os.chmod(file, 0o640)
    with pytest.raises(InvalidConfig, match=r"others may read the key in .*chmod 600"):
        Credentials.load(file)


def test_damaged_credentials_are_refused(tmp_path: Path) -> None:
    file, found = tmp_path / "identity.pem", credentials()
    with pytest.raises(InvalidConfig, match=r"cannot read the identity .*No such file"):
        Credentials.load(file)
    found.save(file)
    whole = file.read_bytes()
    another = credentials()
    damaged = [whole[:length] for length in range(0, len(whole) - 200, 97)]
    damaged += [whole.replace(found.key_pem, another.key_pem), b"x" * 100_000, whole + b"x" * 100_000]
    for data in damaged:
        file.write_bytes(data)
        with pytest.raises(InvalidConfig, match="is no identity of a federation"):
            Credentials.load(file)
