"""Names of the members of a federation, as SPIFFE ids: spiffe://FEDERATION/ROLE/NAME."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from fedplcc.shared.bounds import NAME_PATTERN
from fedplcc.shared.errors import MalformedRequest

FEDERATION_PATTERN = r"^f[0-9a-f]{15}$"
"""Id of a federation: a letter, so that it is a host name, and 60 bits."""
MAX_URI = 256
"""Most characters of a name."""


class Role(StrEnum):
    """What a member does."""

    AGGREGATOR = "aggregator"
    GATEWAY = "gateway"
    CLIENT = "client"
    """A trainer acts for it."""
    MONITOR = "monitor"
    """It reads metrics."""


_ROLES = frozenset(role.value for role in Role)
INVITED_ROLES = frozenset({Role.CLIENT, Role.GATEWAY, Role.MONITOR})
"""Roles of invitations; the aggregator certifies itself."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Name of one member."""

    federation: str
    role: Role
    name: str

    @property
    def uri(self) -> str:
        """The SPIFFE id."""
        return f"spiffe://{self.federation}/{self.role}/{self.name}"

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Read a SPIFFE id.

        Raises:
            MalformedRequest: It is none of a federation.
        """
        parts = uri.removeprefix("spiffe://").split("/") if len(uri) <= MAX_URI and uri.startswith("spiffe://") else []
        if (
            len(parts) != 3
            or not re.fullmatch(FEDERATION_PATTERN, parts[0])
            or parts[1] not in _ROLES
            or not re.fullmatch(NAME_PATTERN, parts[2])
        ):
            raise MalformedRequest("the certificate's name is none of a federation: spiffe://FEDERATION/ROLE/NAME")
        return cls(parts[0], Role(parts[1]), parts[2])
