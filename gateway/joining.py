"""The gateway's first start: it joins the federation by an invitation that lies in a file."""

from __future__ import annotations

from fedplcc.shared.config.settings import GatewaySettings
from fedplcc.shared.identity.credentials import IDENTITY_FILE
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.wire.addresses import split_address
from fedplcc.shared.wire.enrolling.joining import invitation_in, join_by

log = get_logger("fedplcc.gateway.joining")


def join_by_file(settings: GatewaySettings) -> None:
    """Join the federation, unless the gateway has an identity, speaks plain text, or there is no file.

    The aggregator that wrote the file knows its port. The host is the one in the gateway's settings, if they name one: in
    another container it has another name.

    Raises:
        InvalidConfig: The file holds no invitation, or the aggregator does not admit by it.
    """
    folder, file = settings.state_dir, settings.join_file
    if settings.insecure or (folder / IDENTITY_FILE).is_file() or not file.is_file():
        return
    host = split_address(settings.aggregator)[0] if "aggregator" in settings.model_fields_set else ""
    joined = join_by(invitation_in(file), folder, source=str(file), host=host, http_proxy=settings.http_proxy or "")
    log.info("joined", name=joined.identity.name, federation=joined.identity.federation, ends_at=joined.not_after)
