"""Codes that open the console once; they live in memory, for minutes."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from fedplcc.shared.identity.principals import Principal

CODE_S = 300.0
"""Life of a code."""
CODE_BYTES = 32
MOST_CODES = 100
"""Most codes at a time; another one displaces the oldest."""
MAX_CODE_TEXT = 64


@dataclass(frozen=True, slots=True)
class _Code:
    maker: Principal
    ends_at: float


class ConsoleCodes:
    """Codes that were made and not given yet; for one thread at a time."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        """Begin without a code; `steady` is a clock in seconds that nobody sets."""
        self._steady = steady
        self._codes: OrderedDict[bytes, _Code] = OrderedDict()

    def make(self, maker: Principal) -> str:
        """Return a new code, whose session may do what its maker may."""
        text = secrets.token_urlsafe(CODE_BYTES)
        self._codes[_sha256(text)] = _Code(maker, self._steady() + CODE_S)
        if len(self._codes) > MOST_CODES:
            self._codes.popitem(last=False)
        return text

    def take(self, text: str) -> Principal | None:
        """Return who made a code, once; None if it is unknown, given or ended."""
        found = self._codes.pop(_sha256(text), None) if len(text) <= MAX_CODE_TEXT else None
        return found.maker if found is not None and self._steady() < found.ends_at else None

    def forget_of(self, key_id: str) -> None:
        """Drop the codes that a key made."""
        for digest in [digest for digest, code in self._codes.items() if code.maker.key_id == key_id]:
            del self._codes[digest]


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
