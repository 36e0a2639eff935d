"""The caller of the call that is being answered."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from fedplcc.shared.identity.api_keys import EVERY_SCOPE, Scope, includes
from fedplcc.shared.identity.names import Role


@dataclass(frozen=True, slots=True)
class Principal:
    """Who makes a call: by certificate, by key, as the state directory's owner, or anyone where nothing is asked."""

    role: Role | None = None
    """Role of the certificate; None without one."""
    name: str = ""
    """Name in the certificate."""
    serial: str = ""
    """Serial number of the certificate in hexadecimal."""
    ends_at: float = 0.0
    """End of the certificate in seconds since the epoch; 0 without one."""
    key_id: str = ""
    """Id of the key; empty without one."""
    person: str = ""
    """Name and subject of the person whose session the key is; empty for every other key."""
    scopes: frozenset[Scope] = frozenset()
    """What the key may do."""
    address: str = ""
    """IP address; empty for the owner."""
    is_owner: bool = False
    is_anyone: bool = False

    @property
    def caller(self) -> str:
        """Who it is, for the audit: a key counts more than the gateway that passes it on."""
        if self.is_owner:
            return "owner"
        if self.is_anyone:
            return "anyone"
        if self.person:
            return f"person:{self.person}"
        if self.key_id:
            return f"key:{self.key_id}"
        return f"{self.role}:{self.name}" if self.role is not None else "nobody"

    @property
    def share(self) -> str | None:
        """Whose share of places and threads its calls take; None where anyone may call and nobody can be told apart."""
        return None if self.is_anyone else self.caller

    @property
    def credential(self) -> str:
        """Id of the key, or serial number of the certificate."""
        return self.key_id or self.serial

    def may(self, scope: Scope) -> bool:
        """Whether it may make calls of this scope."""
        return self.is_owner or self.is_anyone or includes(self.scopes, scope)


NOBODY = Principal()
"""Who has shown nothing."""
OWNER = Principal(is_owner=True, scopes=EVERY_SCOPE)
"""Who may open the socket in the aggregator's state directory."""
ITSELF = Principal(role=Role.AGGREGATOR, name="aggregator", scopes=EVERY_SCOPE)
"""The aggregator, for what it does without being asked."""
ANYONE = Principal(is_anyone=True, scopes=EVERY_SCOPE)
"""Every caller of a process that runs with --insecure."""

current_principal: ContextVar[Principal] = ContextVar("current_principal", default=ANYONE)
"""Who makes the call; set around its handler, and copied into the threads that work for it."""
