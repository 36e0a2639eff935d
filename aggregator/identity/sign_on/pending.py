"""Sign-ons that have begun: each is known by a secret that its beginner holds, and can be ended once."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from fedplcc.aggregator.identity.sign_on.id_tokens import refused
from fedplcc.shared.errors import Overloaded
from fedplcc.shared.process.address_shares import neighbourhood_of

PENDING_S = 600.0
"""Longest time from the beginning of a sign-on to its end."""
MOST_PENDING = 1_024
"""Most sign-ons that have begun and not ended. For one more, one makes way of the neighbourhood that has most, and in it of
the address that has most: the oldest, and before it one at a terminal that does not ask."""
MOST_TERMINALS = 32
"""Most of one address at terminals that ask for their end; another one waits."""
SILENT_S = 30.0
"""Time after which a terminal that may ask, and does not, holds no other one up; its sign-on can still be ended."""
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
    neighbourhood: str = field(init=False)

    def __post_init__(self) -> None:
        self.neighbourhood = neighbourhood_of(self.address)


class Pending:
    """Sign-ons that have begun; for one thread."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._begun: dict[str, Begun] = {}
        """By the SHA-256 of the handle, which is the state that travels with a browser; the oldest first."""

    def require_terminal(self, address: str) -> None:
        """Refuse an address that has begun enough at terminals.

        Raises:
            Overloaded: As many wait for their end as may.
        """
        self._forget_ended()
        since = self._steady() - SILENT_S
        at_terminals = [each for each in self._begun.values() if each.address == address and each.device_code]
        if sum(each.next_at > since for each in at_terminals) >= MOST_TERMINALS:
            raise Overloaded(
                f"{MOST_TERMINALS} sign-ons of one address wait at terminals; end one there, and try again in a minute"
            )

    def add(self, begun: Begun) -> str:
        """Keep a sign-on; returns its handle."""
        self._forget_ended()
        if len(self._begun) >= MOST_PENDING:
            del self._begun[self._makes_way()]
        handle = new_secret()
        self._begun[challenge_of(handle)] = begun
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
        del self._begun[challenge_of(handle)]
        return begun

    def _makes_way(self) -> str:
        kept, since = list(self._begun.items()), self._steady() - SILENT_S
        for whose in ("neighbourhood", "address"):
            [(most, _)] = Counter(getattr(each, whose) for _, each in kept).most_common(1)
            kept = [(state, each) for state, each in kept if getattr(each, whose) == most]
        return min(kept, key=lambda entry: not entry[1].device_code or entry[1].next_at > since)[0]

    def _forget_ended(self) -> None:
        now = self._steady()
        for state in [state for state, begun in self._begun.items() if begun.ends_at <= now]:
            del self._begun[state]


def new_secret() -> str:
    """Return 256 random bits as 43 characters that a URL may have."""
    return secrets.token_urlsafe(32)


def challenge_of(secret: str) -> str:
    """Return the SHA-256 of a secret as RFC 7636 writes it: who knows it does not know the secret."""
    digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
