"""Sign-ons that have begun: each is known by a secret that its beginner holds, and can be ended once."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from fedplcc.aggregator.identity.sign_on.id_tokens import refused
from fedplcc.shared.errors import Overloaded

PENDING_S = 600.0
"""Longest time from the beginning of a sign-on to its end."""
MOST_PENDING, MOST_OF_AN_ADDRESS = 1_024, 32
"""Most sign-ons that have begun and not ended; and of one address, for which another one waits."""
MAX_HANDLE = 64
"""Most characters of what a caller shows."""


@dataclass(slots=True)
class Begun:
    """A sign-on that has begun."""

    address: str
    ends_at: float
    """Of the steady clock."""
    redirect_uri: str = ""
    """Of a browser."""
    device_code: str = ""
    """Of a terminal, known to the provider and the aggregator alone."""
    interval_s: float = 0.0
    """Seconds between two questions of a terminal."""
    next_at: float = 0.0
    """When, of the steady clock, the provider may be asked again."""
    nonce: str = field(default_factory=lambda: new_secret(), repr=False)
    verifier: str = field(default_factory=lambda: new_secret(), repr=False)
    """What the code's challenge is the SHA-256 of (RFC 7636)."""


class Pending:
    """Sign-ons that have begun; for one thread."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._begun: OrderedDict[str, Begun] = OrderedDict()
        """By the SHA-256 of the handle, which is the state that travels with a browser."""
        self._of: Counter[str] = Counter()

    def require_room(self, address: str) -> None:
        """Refuse an address that has begun enough.

        Raises:
            Overloaded: As many wait for their end as may.
        """
        now = self._steady()
        for state in [state for state, begun in self._begun.items() if begun.ends_at <= now]:
            self._remove(state)
        if self._of[address] >= MOST_OF_AN_ADDRESS or len(self._begun) >= MOST_PENDING:
            raise Overloaded(
                f"{MOST_OF_AN_ADDRESS} sign-ons of one address, or {MOST_PENDING:,} of all, have begun and not ended; "
                f"try again within {PENDING_S / 60:.0f} minutes"
            )

    def add(self, begun: Begun) -> str:
        """Keep a sign-on; returns its handle. Raises Overloaded."""
        self.require_room(begun.address)
        handle = new_secret()
        self._begun[challenge_of(handle)] = begun
        self._of[begun.address] += 1
        return handle

    def find(self, handle: str) -> Begun:
        """Return a sign-on that has not ended.

        Raises:
            SignOnRefused: There is none with this handle: it is unknown, has ended, or was over too late.
        """
        begun = self._begun.get(challenge_of(handle)) if len(handle) <= MAX_HANDLE else None
        if begun is None or begun.ends_at <= self._steady():
            raise refused(
                "state", "no such sign-on has begun here: it is unknown, was used, or took too long; begin again"
            )
        return begun

    def take(self, handle: str) -> Begun:
        """Do the same, once. Raises SignOnRefused."""
        begun = self.find(handle)
        self._remove(challenge_of(handle))
        return begun

    def _remove(self, state: str) -> None:
        address = self._begun.pop(state).address
        self._of[address] -= 1
        if not self._of[address]:
            del self._of[address]


def new_secret() -> str:
    """Return 256 random bits as 43 characters that a URL may have."""
    return secrets.token_urlsafe(32)


def challenge_of(secret: str) -> str:
    """Return the SHA-256 of a secret as RFC 7636 writes it: who knows it does not know the secret."""
    digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
