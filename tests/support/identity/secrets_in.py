"""Secrets in all the forms in which they could be written, and a search for them."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from fedplcc.shared.identity.certificates import key_from_pem

Forms = Mapping[str, frozenset[bytes]]


def forms_of_bytes(secret: bytes) -> frozenset[bytes]:
    """Raw, hexadecimal, base 32, and base 64 at any place within longer data."""
    assert len(secret) >= 16, "a shorter one would be found by chance"
    texts = [secret.hex(), secret.hex().upper(), base64.b32encode(secret).decode().rstrip("=")]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for shift in range(3):
            # The first and the last characters also have bits of what stands beside the secret.
            coded = encode(bytes(shift) + secret).decode().rstrip("=")
            texts.append(coded[(4 * shift + 2) // 3 : -1])
    return frozenset({secret, *(text.encode() for text in texts)})


def forms_of_text(secret: str) -> frozenset[bytes]:
    """A secret that is handed over as text, as it stands."""
    assert len(secret) >= 16, "a shorter one would be found by chance"
    return frozenset({secret.encode()})


def forms_of_api_key(text: str) -> frozenset[bytes]:
    """The secret part of a key of people and programs; its id is none."""
    return forms_of_bytes(bytes.fromhex(text.split("_")[2])) | forms_of_text(text)


def forms_of_private_key(pem: bytes) -> frozenset[bytes]:
    """A private key: its number, and the lines of its file that only the number decides."""
    number = key_from_pem(pem).private_numbers().private_value.to_bytes(32, "big")
    lines = [line for line in pem.splitlines() if not line.startswith(b"-----")]
    # The first line has the kind of the key and the number; the others have the public key, which is no secret.
    return forms_of_bytes(number) | {lines[0]}


def found_in(data: bytes, secrets: Forms) -> set[str]:
    """Names of the secrets of which any form is in these bytes."""
    return {name for name, forms in secrets.items() if any(form in data for form in forms)}
