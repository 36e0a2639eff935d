"""Joining a federation: the key is on the disk before it is sent, so that a lost answer gives one certificate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace as with_changes
from pathlib import Path

from fedplcc.shared.config.settings.site_identity import STATE, folder_for
from fedplcc.shared.errors import AlreadyExists, StoreUnavailable, TooManyCalls
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.invitation_codes import InvitationCode
from fedplcc.shared.process import disk
from fedplcc.shared.wire.addresses import split_address
from fedplcc.shared.wire.enrolling.enrolment import join
from fedplcc.shared.wire.enrolling.renewal import NEXT_KEY_FILE, keep, next_key, renewed_in

JOINING = STATE / "joining"
"""Folder of the key of a member whose role is not known yet."""
ATTEMPTS = 20
"""Most attempts where many sites call from one address."""
MAX_WAIT_S = 60.0


def join_federation(
    code: InvitationCode,
    folder: Path | None,
    *,
    aggregator: str = "",
    http_proxy: str = "",
    replace: bool = False,
    tell: Callable[[str], None] = lambda _sentence: None,
) -> tuple[Credentials, Path]:
    """Join by an invitation, and keep the identity in a folder; returns both.

    Args:
        folder: State directory of a trainer, a gateway or a monitor; made if it is missing, private to its owner. None for
            the one of the role that the aggregator tells.
        aggregator: HOST:PORT of the aggregator, where it is not the host of the invitation and the port it tells.
        http_proxy: HOST:PORT of an HTTP proxy that is asked to CONNECT; none if empty.
        replace: Whether an identity that is there is given up.
        tell: Called with sentences for a person who waits.

    Raises:
        AlreadyExists: There is an identity, and `replace` is not set.
        InvalidConfig: There is one that cannot be read, and `replace` is not set; or `aggregator` or
            `http_proxy` is no address.
        StoreUnavailable: The folder cannot be used.
        PinMismatch, InvitationInvalid, InvitationUsed, AggregatorUnavailable: See shared/wire/enrolling/enrolment.py.
    """
    if aggregator:
        split_address(aggregator)
    if folder is not None and (folder / IDENTITY_FILE).exists() and not replace:
        held = Credentials.load(folder / IDENTITY_FILE).identity
        raise AlreadyExists(
            f"{folder} has the identity of {held.role.value} {held.name} already; to join anew, add --replace, for another "
            "member choose another --state-dir"
        )
    keyed = folder or JOINING
    try:
        disk.make_state_folder(keyed, "identity")
        key = next_key(keyed)
        joined = _patiently(lambda: join(code, key, http_proxy=http_proxy), tell)
        joined = with_changes(joined, address=aggregator or joined.address)
        home = folder or folder_for(joined.identity)
        disk.make_state_folder(home, "identity")
        keep(joined, home)
        if folder is None:
            disk.remove(keyed / NEXT_KEY_FILE, "identity.next_key")
            keyed.rmdir()
    except OSError as error:
        raise StoreUnavailable(disk.why_unusable(keyed, error)) from error
    return joined, home


def renew_identity(
    folder: Path, *, http_proxy: str = "", clock: Callable[[], float] = time.time
) -> tuple[Credentials, bool]:
    """Renew the certificate of a member that has no process of its own, where half of its life is left or less.

    Args:
        folder: The member's state directory.
        http_proxy: HOST:PORT of an HTTP proxy that is asked to CONNECT; none if empty.
        clock: Seconds since the epoch.

    Returns:
        The credentials that are in the folder now, and whether they are new.

    Raises:
        InvalidConfig: There are none.
        StoreUnavailable: The folder cannot be written.
        CertificateRevoked, CertificateExpired: Only another invitation helps.
        AggregatorUnavailable, TooManyCalls: Try again.
    """
    held = Credentials.load(folder / IDENTITY_FILE)
    left_s = held.not_after - clock()
    if left_s > held.life_s / 2:
        return held, False
    try:
        renewed = renewed_in(folder, held, held.address, has_ended=left_s <= 0, http_proxy=http_proxy)
        keep(renewed, folder)
    except OSError as error:
        raise StoreUnavailable(disk.why_unusable(folder, error)) from error
    return renewed, True


def _patiently(call: Callable[[], Credentials], tell: Callable[[str], None]) -> Credentials:
    for _ in range(ATTEMPTS - 1):
        try:
            return call()
        except TooManyCalls as error:
            wait_s = min(float(error.metadata.get("retry_after_s", MAX_WAIT_S)), MAX_WAIT_S)
            tell(f"many sites call from this address; trying again in {wait_s:.0f} s")
            time.sleep(wait_s)
    return call()
