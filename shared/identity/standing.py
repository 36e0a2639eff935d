"""What the authority's list says of a certificate whose chain holds."""

from __future__ import annotations

from enum import Enum

from fedplcc.shared.errors import CertificateRevoked
from fedplcc.shared.identity.principals import Principal


class Standing(Enum):
    """Whether a certificate of the federation admits who shows it."""

    LISTED = "listed"
    REVOKED = "revoked"
    UNKNOWN = "unknown"
    """It is on no list: issued after the backup that was restored, or by somebody else who has the authority's key."""


def require_listed(standing: Standing, caller: Principal) -> None:
    """Refuse a certificate that admits nobody. Raises CertificateRevoked."""
    if standing is Standing.REVOKED:
        raise CertificateRevoked(f"the certificate {caller.serial} of {caller.name} was revoked")
    if standing is Standing.UNKNOWN:
        raise CertificateRevoked(
            f"the aggregator has no record of the certificate {caller.serial} of {caller.name}: its state is that of an "
            "older backup, or somebody else issues with its key; ask for another invitation"
        )
