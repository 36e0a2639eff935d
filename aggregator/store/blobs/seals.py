"""Seals: how a process knows bytes again whose SHA-256 it has taken before, in a small part of the time.

A seal is the GMAC of a blob's bytes (NIST SP 800-38D) under a key that the process draws at its start and tells nobody.
Bytes that were changed, by chance or by somebody, have the same seal with a chance of at most their number of 16-byte blocks
in 2^128. All blobs share one nonce: that would give the key away to whoever saw two seals, and nobody sees any.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import threading

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

MAX_SEALS = 1 << 15
"""Most seals that are remembered; the oldest is forgotten first, and its blob's SHA-256 is taken again."""

_CIPHER = Cipher(algorithms.AES(os.urandom(16)), modes.GCM(os.urandom(12)))
_seals: dict[str, bytes] = {}
"""By SHA-256: facts about bytes, wherever these are stored."""
_lock = threading.Lock()


class Sealing:
    """The SHA-256 of bytes that come in pieces; their seal is remembered."""

    __slots__ = ("_digest", "_seal")

    def __init__(self) -> None:
        self._digest, self._seal = hashlib.sha256(), _CIPHER.encryptor()

    def update(self, piece: bytes | memoryview) -> None:
        """Add the next bytes."""
        self._digest.update(piece)
        self._seal.authenticate_additional_data(piece)

    def finish(self) -> str:
        """Return the SHA-256 in hexadecimal digits; no bytes may follow."""
        sha256 = self._digest.hexdigest()
        self._seal.finalize()
        with _lock:
            _seals[sha256] = self._seal.tag
            while len(_seals) > MAX_SEALS:
                del _seals[next(iter(_seals))]
        return sha256


class Recognising:
    """The SHA-256 of bytes that come in pieces and are expected to have a certain one, whose seal is known."""

    __slots__ = ("_expected", "_known", "_seal")

    def __init__(self, expected: str, known: bytes) -> None:
        self._expected, self._known, self._seal = expected, known, _CIPHER.encryptor()

    def update(self, piece: bytes | memoryview) -> None:
        """Add the next bytes."""
        self._seal.authenticate_additional_data(piece)

    def finish(self) -> str:
        """Return the expected SHA-256, or nothing if the bytes have another; no bytes may follow."""
        self._seal.finalize()
        return self._expected if hmac.compare_digest(self._seal.tag, self._known) else ""


def expecting(sha256: str) -> Sealing | Recognising:
    """Return what tells whether bytes have this SHA-256, the quick one where their seal is known."""
    known = _seals.get(sha256)
    return Sealing() if known is None else Recognising(sha256, known)
