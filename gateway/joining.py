"""The gateway's first start: it joins the federation by an invitation that lies in a file."""

from __future__ import annotations

from shared.config.settings import GatewaySettings
from shared.errors import FedplccError, InvalidConfig
from shared.identity.credentials import IDENTITY_FILE
from shared.identity.invitation_codes import MAX_TEXT, InvitationCode
from shared.process import disk
from shared.process.log import get_logger
from shared.wire.enrolment import join
from shared.wire.renewal import keep, next_key

log = get_logger("gateway.joining")


def join_by_file(settings: GatewaySettings) -> None:
    """Join the federation, unless the gateway has an identity, speaks plain text, or there is no file.

    Raises:
        InvalidConfig: The file holds no invitation, or the aggregator does not admit by it.
    """
    folder, file = settings.state_dir, settings.join_file
    if settings.insecure or (folder / IDENTITY_FILE).is_file() or not file.is_file():
        return
    try:
        with file.open(encoding="ascii", errors="replace") as opened:
            code = InvitationCode.parse(opened.read(2 * MAX_TEXT))
        disk.make_state_folder(folder, "identity")
        joined = join(code, next_key(folder))
        keep(joined, folder)
    except OSError as error:
        raise InvalidConfig(f"cannot join by {file}: {error.strerror or error}") from error
    except FedplccError as error:
        raise InvalidConfig(f"cannot join by {file}: {error.detail}") from error
    log.info("joined", name=joined.identity.name, federation=joined.identity.federation, ends_at=joined.not_after)
