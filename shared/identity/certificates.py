"""Keys and certificates of a federation: P-256, one root, leaves with one SPIFFE id each (RFC 5280, SPIFFE X.509-SVID)."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping, Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedplcc.shared.errors import CertificateExpired, MalformedRequest, Unauthenticated
from fedplcc.shared.identity.names import Identity, Role

AGGREGATOR_DNS = "aggregator.fedplcc"
"""DNS name of every aggregator's certificate: members check this name, whatever address they dial."""
GATEWAY_DNS = "gateway.fedplcc"
"""DNS name of every gateway's certificate: commands check this name, whatever address they dial."""
CLIENT_DNS = "client.fedplcc"
"""DNS name of every client's certificate, under which a Prometheus reads the metrics of its trainer."""
MONITOR_DNS = "monitor.fedplcc"
"""DNS name of every monitor's certificate, under which nobody is dialled: where a certificate has no DNS name at all, many
TLS libraries take its common name, which a member chooses."""
DNS_NAMES: Mapping[Role, tuple[str, ...]] = {
    Role.AGGREGATOR: (AGGREGATOR_DNS,),
    Role.CLIENT: (CLIENT_DNS,),
    Role.GATEWAY: (GATEWAY_DNS,),
    Role.MONITOR: (MONITOR_DNS,),
}
"""DNS names in the certificates of each role. Every role has one of its own, so that the role decides who is dialled."""
RESERVED_NAMES = frozenset({"localhost", "owner", "anyone", "nobody", "aggregator"})
"""Names that mean somebody else, which no invited member may have."""
RESERVED_DOMAIN = ".fedplcc"
"""End of the names that members are dialled by."""
BEGUN_S = 2 * 3600.0
"""Age of a new certificate, so that clocks that are an hour apart do no harm."""
ROOT_S = 3653 * 86400.0
"""Life of a root: ten years."""
MAX_REQUEST_BYTES = 4 << 10
"""Largest request for a certificate; one for P-256 has about 200 bytes."""
MAX_CERTIFICATE_BYTES = 8 << 10
"""Largest certificate in DER or PEM."""
MAX_KEY_BYTES = 4 << 10
"""Largest key in PEM; one of P-256 has about 240 bytes."""
MAX_ROOTS = 4
"""Most roots of a federation: two while they are rotated."""


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_to_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key as PKCS #8 in PEM, not encrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def key_from_pem(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Read a key.

    Raises:
        MalformedRequest: It is no P-256 key.
    """
    if len(pem) > MAX_KEY_BYTES:
        raise MalformedRequest(f"a key has {len(pem)} bytes; {MAX_KEY_BYTES} are the limit")
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise MalformedRequest("this is no key in PEM") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise MalformedRequest("the key is none of P-256")
    return key


def certificate_to_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate in PEM."""
    return certificate.public_bytes(Encoding.PEM)


def request_for(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a request for a certificate (PKCS #10, DER). It names nobody: the issuer knows whom it invited."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def key_of_request(request: bytes) -> ec.EllipticCurvePublicKey:
    """Return the public key of a request for a certificate; what else it says does not count.

    Raises:
        MalformedRequest: It is too large, no request, of another kind of key, or not signed by its key.
    """
    if len(request) > MAX_REQUEST_BYTES:
        raise MalformedRequest(f"certificate_request has {len(request)} bytes; {MAX_REQUEST_BYTES} are the limit")
    try:
        parsed = x509.load_der_x509_csr(request)
        key, is_signed = parsed.public_key(), parsed.is_signature_valid
    except Exception as error:  # the parser's errors have no common class
        raise MalformedRequest("certificate_request is no request for a certificate (PKCS #10, DER)") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise MalformedRequest("certificate_request: the key is none of P-256")
    if not is_signed:
        raise MalformedRequest("certificate_request is not signed by its own key")
    return key


def public_key_sha256(key: ec.EllipticCurvePublicKey) -> str:
    """Return the SHA-256 of a public key in DER, in hexadecimal."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def make_root(key: ec.EllipticCurvePrivateKey, federation: str, now: float) -> x509.Certificate:
    """Return a root that certifies itself, for leaves alone.

    Args:
        now: Seconds since the epoch.
    """
    name = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "fedplcc"), x509.NameAttribute(NameOID.COMMON_NAME, federation)]
    )
    usage = _usage(key_cert_sign=True, crl_sign=True)
    return (
        _builder(key.public_key(), now, ROOT_S)
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def issue(
    root: x509.Certificate,
    root_key: ec.EllipticCurvePrivateKey,
    public_key: ec.EllipticCurvePublicKey,
    identity: Identity,
    *,
    now: float,
    valid_s: float,
    dns_names: Sequence[str] = (),
) -> x509.Certificate:
    """Return a certificate of a member, for both ends of TLS.

    Args:
        now: Seconds since the epoch; the certificate began `BEGUN_S` before.
        valid_s: Seconds until its end.
    """
    names = [x509.UniformResourceIdentifier(identity.uri), *(x509.DNSName(name) for name in dns_names)]
    return (
        _builder(public_key, now, valid_s)
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.name)]))
        .issuer_name(root.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False)
        .sign(root_key, hashes.SHA256())
    )


def load_certificate(data: bytes) -> x509.Certificate:
    """Read the first certificate of PEM, or one in DER.

    Raises:
        MalformedRequest: It is too large, or none.
    """
    if len(data) > MAX_CERTIFICATE_BYTES:
        raise MalformedRequest(f"a certificate has {len(data)} bytes; {MAX_CERTIFICATE_BYTES} are the limit")
    load = x509.load_pem_x509_certificate if data.lstrip().startswith(b"-----") else x509.load_der_x509_certificate
    try:
        return load(data)
    except Exception as error:  # the parser's errors have no common class
        raise MalformedRequest("this is no certificate in PEM or DER") from error


def load_roots(roots_pem: bytes) -> list[x509.Certificate]:
    """Read the roots of a federation in PEM.

    Raises:
        MalformedRequest: There are none, too many, or something else.
    """
    if len(roots_pem) <= MAX_ROOTS * MAX_CERTIFICATE_BYTES:
        try:
            roots = x509.load_pem_x509_certificates(roots_pem)
        except ValueError as error:
            raise MalformedRequest("these are no roots in PEM") from error
        if len(roots) <= MAX_ROOTS:
            return roots
    raise MalformedRequest(f"a federation has at most {MAX_ROOTS} roots")


def is_reserved_name(name: str) -> bool:
    """Whether a name means a server or a kind of caller, as TLS compares names, and so can be no member's."""
    plain = name.lower().rstrip(".")
    return plain in RESERVED_NAMES or plain.endswith(RESERVED_DOMAIN)


def serial_of(certificate: x509.Certificate) -> str:
    """Return a certificate's serial number in hexadecimal."""
    return f"{certificate.serial_number:x}"


def identity_of(certificate: x509.Certificate) -> Identity:
    """Return the member that a certificate names.

    Raises:
        MalformedRequest: It names none, or more than one.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except Exception as error:  # none, twice, or not parsable: the parser's errors have no common class
        raise MalformedRequest("the certificate names no member of a federation") from error
    if len(uris) != 1:
        raise MalformedRequest(f"the certificate has {len(uris)} names (URI); it must have one")
    return Identity.parse(uris[0])


def serves_as(certificate: x509.Certificate, dns_name: str) -> bool:
    """Whether a certificate has this DNS name."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return dns_name in names.get_values_for_type(x509.DNSName)


def check_chain(chain_pem: bytes, roots_pem: bytes, now: float) -> x509.Certificate:
    """Return the certificate at the beginning of a chain, if one of the roots issued it and it holds now.

    Args:
        chain_pem: The certificate in PEM; more after it do not count, as roots issue leaves themselves.
        roots_pem: One or two roots in PEM.
        now: Seconds since the epoch.

    Raises:
        Unauthenticated: The authority of another federation issued it, it has not begun, or it is itself an authority.
        CertificateExpired: It has ended.
        MalformedRequest: It is no certificate of a member.
    """
    certificate = load_certificate(chain_pem)
    identity = identity_of(certificate)
    issuer = issuer_of(certificate, load_roots(roots_pem))
    if issuer is None or identity.federation != federation_of(issuer):
        raise Unauthenticated("the certificate was issued by another authority")
    if not _is_leaf(certificate):
        raise Unauthenticated("the certificate is one of an authority")
    if certificate.not_valid_before_utc.timestamp() > now:
        raise Unauthenticated(
            f"the certificate of {identity.role} {identity.name!r} begins at {_utc(certificate.not_valid_before_utc)}; "
            "a clock may be wrong"
        )
    if certificate.not_valid_after_utc.timestamp() < now:
        raise CertificateExpired(
            f"the certificate of {identity.role} {identity.name!r} ended at {_utc(certificate.not_valid_after_utc)}"
        )
    return certificate


def issuer_of(certificate: x509.Certificate, roots: Sequence[x509.Certificate]) -> x509.Certificate | None:
    """Return the root that issued a certificate, or None."""
    for root in roots:
        try:
            certificate.verify_directly_issued_by(root)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return root
    return None


def federation_of(root: x509.Certificate) -> str:
    """Return the id of the federation that a root is of."""
    return str(root.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def aggregator_identity(federation: str) -> Identity:
    """Return the name of a federation's only aggregator."""
    return Identity(federation, Role.AGGREGATOR, "aggregator")


def _utc(time: datetime.datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _is_leaf(certificate: x509.Certificate) -> bool:
    try:
        return not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return True


def _builder(public_key: ec.EllipticCurvePublicKey, now: float, valid_s: float) -> x509.CertificateBuilder:
    begin = datetime.datetime.fromtimestamp(int(now - BEGUN_S), datetime.UTC)
    end = datetime.datetime.fromtimestamp(int(now + valid_s), datetime.UTC)
    return (
        x509.CertificateBuilder()
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )
