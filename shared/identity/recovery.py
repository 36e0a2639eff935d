"""The signature by which the holder of a certificate that has ended shows that it has the key."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from fedplcc.shared.errors import MalformedRequest, Unauthenticated

PREFIX = b"fedplcc recovery"
"""Beginning of what is signed, so that a signature of something else is none."""


def sign_recovery(key: ec.EllipticCurvePrivateKey, challenge: bytes, request: bytes) -> bytes:
    """Return the signature of a challenge and a request for a certificate."""
    return key.sign(PREFIX + challenge + request, ec.ECDSA(hashes.SHA256()))


def require_signature(certificate: x509.Certificate, challenge: bytes, request: bytes, signature: bytes) -> None:
    """Check that the certificate's key signed challenge and request.

    Raises:
        Unauthenticated: It did not.
        MalformedRequest: The certificate has no key of an elliptic curve.
    """
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise MalformedRequest("certificate: its key is none of P-256")
    try:
        key.verify(signature, PREFIX + challenge + request, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature as error:
        raise Unauthenticated("the challenge is not signed by the certificate's key") from error
