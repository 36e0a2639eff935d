"""A service's first start: it joins the federation by an invitation that a person, or the aggregator, left for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedplcc.shared.errors import FedplccError, InvalidConfig
from fedplcc.shared.identity.credentials import Credentials
from fedplcc.shared.identity.invitation_codes import MAX_TEXT, InvitationCode
from fedplcc.shared.process import disk
from fedplcc.shared.wire.addresses import join_address, split_address
from fedplcc.shared.wire.enrolling.enrolment import join
from fedplcc.shared.wire.enrolling.renewal import keep, next_key


def invitation_in(file: Path) -> str:
    """Return what stands in a file with an invitation.

    Raises:
        InvalidConfig: It cannot be read.
    """
    try:
        with file.open(encoding="ascii", errors="replace") as opened:
            return opened.read(2 * MAX_TEXT)
    except OSError as error:
        raise InvalidConfig(f"cannot join by {file}: {error.strerror or error}") from error


def join_by(text: str, folder: Path, *, source: str, host: str = "", http_proxy: str = "") -> Credentials:
    """Join by an invitation, and keep the identity in a member's state directory; returns the credentials.

    Args:
        folder: The state directory; made if it is missing.
        source: Where the invitation comes from, for the sentence of an error.
        host: Where the aggregator is reached, if that is not the invitation's host. What answers is checked in any case.
        http_proxy: HOST:PORT of an HTTP proxy that is asked to CONNECT; none if empty.

    Raises:
        InvalidConfig: It is no invitation, or the aggregator does not admit by it.
    """
    try:
        code = InvitationCode.parse(text)
        if host:
            code = replace(code, address=join_address(host, split_address(code.address)[1]))
        disk.make_state_folder(folder, "identity")
        joined = join(code, next_key(folder), http_proxy=http_proxy)
        keep(joined, folder)
    except OSError as error:
        raise InvalidConfig(f"cannot join by {source}: {disk.why_unusable(folder, error)}") from error
    except FedplccError as error:
        raise InvalidConfig(f"cannot join by {source}: {error.detail}") from error
    return joined
