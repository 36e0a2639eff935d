"""Challenges for holders of certificates that have ended. Nothing is kept for a challenge."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections.abc import Callable

CHALLENGE_S = 60.0
"""Time in which a challenge can be answered."""
CHALLENGE_BYTES = 32
_TIME = struct.Struct(">d")


class Challenges:
    """Challenges made of their time and an authentication code, whose key this process has drawn."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._key = clock, secrets.token_bytes(32)

    def make(self, serial: str) -> bytes:
        """Return a challenge for the certificate of this serial number."""
        made_at = _TIME.pack(self._clock())
        return made_at + self._code(serial, made_at)

    def is_good(self, serial: str, challenge: bytes) -> bool:
        """Whether this is a challenge of this process for this certificate, at most `CHALLENGE_S` old."""
        made_at, code = challenge[: _TIME.size], challenge[_TIME.size :]
        if not hmac.compare_digest(code, self._code(serial, made_at)):
            return False
        return bool(0 <= self._clock() - _TIME.unpack(made_at)[0] <= CHALLENGE_S)

    def _code(self, serial: str, made_at: bytes) -> bytes:
        code = hmac.new(self._key, made_at + serial.encode(), hashlib.sha256).digest()
        return code[: CHALLENGE_BYTES - _TIME.size]
