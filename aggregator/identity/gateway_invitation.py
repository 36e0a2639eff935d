"""The invitation that lies in a file of the aggregator's while the federation has no gateway.

Who may read the state directory administers the aggregator already, so there it gives nobody a right that they lack. In
containers it lies in a folder that the two share, and that holds nothing else. The gateway reads it, and joins without a
person.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedplcc.aggregator.identity.admissions import DAY_S, Admissions
from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.identity.credentials import PRIVATE_FILE
from fedplcc.shared.identity.invitation_codes import InvitationCode
from fedplcc.shared.identity.names import Role
from fedplcc.shared.process import disk
from fedplcc.shared.process.disk import why_unusable
from fedplcc.shared.process.log import get_logger

GATEWAY_FILE = "gateway.join"
"""File in the aggregator's state directory, unless its settings name another."""
GATEWAY = "gateway"
"""Name of the gateway that it admits."""
VALID_S = 30 * DAY_S

log = get_logger("fedplcc.aggregator.identity")


class GatewayInvitation:
    """The file, kept in step with whether there is a gateway; its methods block, and are called one after the other."""

    def __init__(
        self,
        file: Path,
        admissions: Admissions,
        address: Callable[[], str],
        enrolment_sha256: Callable[[], bytes],
        clock: Callable[[], float],
    ) -> None:
        """Prepare; nothing is written yet.

        Args:
            file: Where it lies, in a folder that only its reader and the aggregator may enter.
            address: Returns HOST:PORT of EnrolService, as the gateway beside the aggregator reaches it.
            enrolment_sha256: Returns the SHA-256 of the certificate there.
            clock: Seconds since the epoch.
        """
        self._file = file
        self._admissions, self._address, self._enrolment_sha256 = admissions, address, enrolment_sha256
        self._clock = clock
        self._ends_at, self._named = 0.0, b""

    def look(self) -> None:
        """Write an invitation if there is no gateway and none that holds, and remove the file if there is a gateway.

        An earlier process's invitation is replaced: only the SHA-256 of its secret is known.

        Raises:
            StoreUnavailable: The store or the disk refuses; the next look does the same.
        """
        try:
            if self._admissions.has_gateway():
                if self._file.exists():
                    disk.remove(self._file, "identity.gateway")
                self._ends_at = 0.0
            elif self._ends_at < self._clock() + DAY_S or self._named != self._enrolment_sha256():
                invitation, secret = self._admissions.invite(Role.GATEWAY, GATEWAY, valid_s=VALID_S)
                code = InvitationCode(self._address(), self._enrolment_sha256(), invitation.invitation_id, secret)
                disk.replace_file(self._file, f"{code.text}\n".encode(), "identity.gateway", mode=PRIVATE_FILE)
                self._ends_at, self._named = invitation.expires_at, code.certificate_sha256
                log.info("gateway_invited", file=str(self._file))
        except OSError as error:
            raise StoreUnavailable(why_unusable(self._file.parent, error)) from error
