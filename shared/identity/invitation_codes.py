"""The line that invites a member: where to join, what must answer there, and the secret that admits one key."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Self

from fedplcc.shared.errors import InvalidConfig

VERSION = 1
MAX_TEXT = 1024
"""Most characters of a line."""
ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}(%[A-Za-z0-9._-]{1,32})?\]|[A-Za-z0-9._-]{1,253}):[0-9]{1,5}")
"""HOST:PORT, or [IPV6]:PORT; no name in DNS is longer."""
SECRET_BYTES = 32
_ID_BYTES, _SHA256_BYTES, _CRC_BYTES = 8, 32, 4
_FIXED = _SHA256_BYTES + _ID_BYTES + SECRET_BYTES


@dataclass(frozen=True, slots=True)
class InvitationCode:
    """An invitation as it travels from the aggregator's owner to a site's."""

    address: str
    """HOST:PORT of EnrolService."""
    certificate_sha256: bytes
    """SHA-256 of the certificate in DER that must answer there, 32 bytes."""
    invitation_id: str
    """16 hexadecimal digits."""
    secret: bytes
    """32 bytes."""

    def __post_init__(self) -> None:
        require_address(self.address)

    @property
    def text(self) -> str:
        """The line: a version, then all of it with a checksum."""
        data = self.certificate_sha256 + bytes.fromhex(self.invitation_id) + self.secret + self.address.encode()
        coded = base64.urlsafe_b64encode(data + _checksum(data)).decode().rstrip("=")
        return f"fedplcc{VERSION}_{coded}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a line; spaces and line breaks that copying added do not count.

        Raises:
            InvalidConfig: It is no invitation, one of another version, or was typed or copied wrongly.
        """
        line = "".join(text[: 2 * MAX_TEXT].split())
        found = re.fullmatch(r"fedplcc([1-9][0-9]{0,2})_([A-Za-z0-9_-]+)", line)
        if found is None or len(line) > MAX_TEXT:
            raise InvalidConfig("this is no invitation; it is one line that begins with fedplcc1_")
        if int(found[1]) != VERSION:
            raise InvalidConfig(
                f"the invitation has version {found[1]}, and this program reads version {VERSION}: use the aggregator's"
            )
        try:
            data = base64.urlsafe_b64decode(found[2] + "=" * (-len(found[2]) % 4))
            body, checksum = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
            if len(body) <= _FIXED or checksum != _checksum(body):
                raise ValueError
            return cls(
                address=body[_FIXED:].decode(),
                certificate_sha256=body[:_SHA256_BYTES],
                invitation_id=body[_SHA256_BYTES : _SHA256_BYTES + _ID_BYTES].hex(),
                secret=body[_SHA256_BYTES + _ID_BYTES : _FIXED],
            )
        except ValueError as error:
            raise InvalidConfig("the invitation was typed or copied wrongly: letters are missing or changed") from error


def require_address(address: str) -> None:
    """Refuse what cannot be the address in an invitation.

    Raises:
        InvalidConfig: It is none, or a longer one than the line has room for.
    """
    if ADDRESS.fullmatch(address) is None or not 0 < int(address.rpartition(":")[2]) < 65_536:
        raise InvalidConfig(f"{address[:100]!r} cannot be the address of an invitation: write HOST:PORT")


def _checksum(data: bytes) -> bytes:
    return binascii.crc32(data).to_bytes(_CRC_BYTES, "big")
