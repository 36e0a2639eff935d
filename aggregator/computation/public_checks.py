"""Checks of the public images that clients have: each says their SHA-256, and that of round 0's update is the run's."""

from __future__ import annotations

from collections.abc import Sequence

from fedplcc.shared.errors import MalformedUpdate, PublicDataDiffers
from fedplcc.shared.types import PUBLIC_DATA, Update

DIGEST_BYTES = 32


def check_digest(update: Update) -> bytes:
    """Return the SHA-256 that an update says of its sender's public images.

    Raises:
        MalformedUpdate: check is public_data: it says none, or something else.
    """
    found = update.payload.int_lists.get(PUBLIC_DATA, ())
    if len(found) != DIGEST_BYTES or not all(0 <= number <= 255 for number in found):
        raise MalformedUpdate(
            f"the update needs the list {PUBLIC_DATA!r}: the {DIGEST_BYTES} bytes of the SHA-256 of the client's public "
            "images, each from 0 to 255",
            check="public_data",
        )
    return bytes(found)


def check_public_data(update: Update, expected: Sequence[int]) -> None:
    """Check that a client has the run's public images.

    Args:
        expected: Bytes of their SHA-256, as round 0's update said them.

    Raises:
        MalformedUpdate: See `check_digest`.
        PublicDataDiffers: It has other images; the sentence has both digests.
    """
    found, run = check_digest(update), bytes(expected)
    if found != run:
        raise PublicDataDiffers(
            f"this client's public images have SHA-256 {found.hex()}, those of the run {run.hex()}: public.data must be the "
            "same images everywhere",
            check="public_data",
            sha256=found.hex(),
            expected=run.hex(),
        )
