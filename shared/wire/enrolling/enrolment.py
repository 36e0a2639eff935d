"""Calls of a site that has no certificate, or one that has ended: it joins by an invitation, or recovers.

An invitation names the certificate at the port of EnrolService. It is compared before anything is sent, and the channel then
trusts that certificate alone: who ends TLS on the way learns no secret.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from fedplcc.shared.errors import AggregatorUnavailable, MalformedRequest, PinMismatch, TlsFailed, Unauthenticated
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2 as admin_pb2
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2_grpc as admin_grpc
from fedplcc.shared.gen.fedplcc.v1 import enrol_service_pb2 as enrol_pb2
from fedplcc.shared.gen.fedplcc.v1 import enrol_service_pb2_grpc as enrol_grpc
from fedplcc.shared.identity.certificates import (
    AGGREGATOR_DNS,
    issuer_of,
    key_from_pem,
    key_to_pem,
    load_certificate,
    load_roots,
    request_for,
)
from fedplcc.shared.identity.credentials import Credentials
from fedplcc.shared.identity.invitation_codes import InvitationCode
from fedplcc.shared.identity.recovery import sign_recovery
from fedplcc.shared.wire.addresses import join_address, split_address
from fedplcc.shared.wire.channels import channel_options
from fedplcc.shared.wire.statuses import translated
from fedplcc.shared.wire.trouble.dialling import ProxyRefused, dialled

CALL_S = 20.0
"""Longest wait for an answer."""


def join(
    code: InvitationCode, key: ec.EllipticCurvePrivateKey, *, http_proxy: str = "", timeout_s: float = CALL_S
) -> Credentials:
    """Return the credentials that an invitation gives; the same key again gets the same certificate.

    Args:
        key: A key of this site, which does not leave it.
        http_proxy: HOST:PORT of an HTTP proxy that is asked to CONNECT; none if empty.
        timeout_s: Longest wait for each answer.

    Raises:
        PinMismatch: What answers is not the aggregator of the invitation; the secret was not sent.
        InvitationInvalid, InvitationUsed, TooManyCalls: See EnrolService.
        TlsFailed, AggregatorUnavailable, Unavailable: Nobody answers, or no TLS.
        Unauthenticated: The answer is no certificate of this key.
    """
    served = served_certificate(code.address, http_proxy, timeout_s=timeout_s)
    require_pin(served, code.certificate_sha256, code.address)
    with (
        _enrol_stub(code.address, served.public_bytes(Encoding.PEM), http_proxy) as stub,
        translated(code.address),
    ):
        request = enrol_pb2.EnrolRequest(
            invitation_id=code.invitation_id, secret=code.secret, certificate_request=request_for(key)
        )
        issued = stub.Enrol(request, timeout=timeout_s).issued
    host, _port = split_address(code.address)
    address = join_address(host, issued.port) if issued.port else ""
    return issued_credentials(issued, key, domain=issued.domain, address=address, enrolment=code.address)


def recover(held: Credentials, key: ec.EllipticCurvePrivateKey, *, http_proxy: str = "") -> Credentials:
    """Return credentials for a new key in place of those that have ended.

    Args:
        http_proxy: HOST:PORT of an HTTP proxy that is asked to CONNECT; none if empty.

    Raises:
        CertificateRevoked: Only another invitation helps.
        CertificateExpired: They ended too long ago; only another invitation helps.
        FailedPrecondition, TooManyCalls, AggregatorUnavailable, Unavailable: Try again.
        Unauthenticated: The answer is no certificate of this key.
    """
    certificate = x509.load_pem_x509_certificate(held.chain_pem).public_bytes(Encoding.DER)
    request, address = request_for(key), held.enrolment
    with _enrol_stub(address, held.roots_pem, http_proxy) as stub, translated(address):
        begun = stub.BeginRecovery(enrol_pb2.BeginRecoveryRequest(certificate=certificate), timeout=CALL_S)
        signature = sign_recovery(key_from_pem(held.key_pem), begun.challenge, request)
        finished = enrol_pb2.FinishRecoveryRequest(
            certificate=certificate,
            challenge=begun.challenge,
            signature=signature,
            certificate_request=request,
        )
        issued = stub.FinishRecovery(finished, timeout=CALL_S).issued
    return renewed_credentials(issued, key, held)


def renew(
    held: Credentials,
    key: ec.EllipticCurvePrivateKey,
    address: str,
    *,
    http_proxy: str = "",
) -> Credentials:
    """Return credentials for a new key in place of those that still hold.

    Args:
        address: HOST:PORT of the services that demand certificates.
        http_proxy: HOST:PORT of an HTTP proxy that is asked to CONNECT; none if empty.

    Raises:
        CertificateRevoked: Only another invitation helps.
        CertificateExpired: They have ended; see `recover`.
        AggregatorUnavailable, Unavailable: Try again.
        Unauthenticated: The answer is no certificate of this key.
    """
    credentials = grpc.ssl_channel_credentials(held.roots_pem, held.key_pem, held.chain_pem)
    with _channel(address, credentials, http_proxy) as channel, translated(address):
        request = admin_pb2.RenewCertificateRequest(certificate_request=request_for(key))
        issued = admin_grpc.AdminServiceStub(channel).RenewCertificate(request, timeout=CALL_S).issued
    return renewed_credentials(issued, key, held)


def served_certificate(address: str, http_proxy: str = "", *, timeout_s: float = CALL_S) -> x509.Certificate:
    """Return the certificate that is served at HOST:PORT, whoever issued it. Nothing but the handshake is sent.

    Raises:
        InvalidConfig: It is no address.
        AggregatorUnavailable: Nobody answers.
        TlsFailed: What answers does not speak TLS, or the proxy opens no tunnel.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with (
            dialled(address, http_proxy, timeout_s) as connection,
            context.wrap_socket(connection, server_hostname=AGGREGATOR_DNS) as secured,
        ):
            data = secured.getpeercert(binary_form=True)
    except ProxyRefused as error:
        raise TlsFailed(str(error)) from error
    except ssl.SSLError as error:
        raise TlsFailed(f"what answers at {address} does not speak TLS; is it the port of invitations?") from error
    except OSError as error:
        raise AggregatorUnavailable(f"nobody answers at {address}: {error.strerror or error}") from error
    assert data is not None, "a server has a certificate"
    try:
        return x509.load_der_x509_certificate(data)
    except ValueError as error:
        raise TlsFailed(f"what answers at {address} has a certificate that cannot be read") from error


def require_pin(served: x509.Certificate, certificate_sha256: bytes, address: str) -> None:
    """Check that this certificate is the one of the invitation.

    Raises:
        PinMismatch: It is another; the sentence names it.
    """
    found = served.fingerprint(hashes.SHA256())
    if found != certificate_sha256:
        subject, issuer = (_printable(name.rfc4514_string()) for name in (served.subject, served.issuer))
        raise PinMismatch(
            f"{address} is not the aggregator of this invitation: a certificate for {subject} answers, issued by {issuer}, "
            f"SHA-256 {found.hex()[:16]}...; TLS may be intercepted on the way, so nothing was sent. Ask for an exception "
            "for this address, or for another invitation",
            subject=subject,
            issuer=issuer,
        )


def issued_credentials(
    issued: enrol_pb2.IssuedCertificate,
    key: ec.EllipticCurvePrivateKey,
    *,
    domain: str,
    address: str,
    enrolment: str,
) -> Credentials:
    """Return the credentials of a certificate just issued.

    Raises:
        Unauthenticated: It is no certificate for this key, or of none of the roots that came with it.
    """
    try:
        leaf, roots = load_certificate(issued.chain_pem.encode()), load_roots(issued.roots_pem.encode())
    except MalformedRequest as error:
        raise Unauthenticated("the answer is no certificate") from error
    if leaf.public_key() != key.public_key() or issuer_of(leaf, roots) is None:
        raise Unauthenticated("the answer is no certificate for this key, or of another federation")
    return Credentials(
        key_pem=key_to_pem(key),
        chain_pem=issued.chain_pem.encode(),
        roots_pem=issued.roots_pem.encode(),
        domain=domain,
        address=address,
        enrolment=enrolment,
    )


def renewed_credentials(
    issued: enrol_pb2.IssuedCertificate, key: ec.EllipticCurvePrivateKey, held: Credentials
) -> Credentials:
    """Return the credentials of a certificate that takes the place of another.

    Raises:
        Unauthenticated: It is no certificate for this key, or for another holder.
    """
    renewed = issued_credentials(issued, key, domain=held.domain, address=held.address, enrolment=held.enrolment)
    if renewed.identity != held.identity:
        raise Unauthenticated("the answer is a certificate for another holder")
    return renewed


@contextmanager
def _enrol_stub(address: str, trusted_pem: bytes, http_proxy: str) -> Iterator[Any]:
    """Yield EnrolService at HOST:PORT, which must show one of these certificates or one issued by them."""
    with _channel(address, grpc.ssl_channel_credentials(trusted_pem), http_proxy) as channel:
        yield enrol_grpc.EnrolServiceStub(channel)


def _channel(address: str, credentials: grpc.ChannelCredentials, http_proxy: str) -> grpc.Channel:
    options = channel_options(is_tls=True, http_proxy=http_proxy)
    return grpc.secure_channel(join_address(*split_address(address, "address")), credentials, options=options)


def _printable(name: str) -> str:
    """Return the name in a certificate for a sentence: a stranger wrote it."""
    return "".join(character if character.isprintable() else "?" for character in name)[:200] or "nobody"
