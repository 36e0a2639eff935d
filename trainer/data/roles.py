"""Role of an image by its name alone: which images are for testing and which for validation. Pure.

What arrives, leaves or is no image changes nobody else's role, because no place in a list decides. The rule is 25.1 of
docs/algorithms.md: of names that differ in their last number alone, each k consecutive numbers have one image of the
role, at a place that a digest of the rest of the name chooses; of names without a number, a digest chooses one of k.

A plain digest scatters the shares of small classes, a list of roles is lost with its disk, and a digest of pixels needs
every image read before the first.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata

from fedplcc.trainer.data.images.endings import IMAGE_ENDINGS

TEST = "test"
VALIDATION = "validation"

_NUMBER = re.compile(r"[0-9]+(?=[^0-9]*$)")


def key_of(path: str) -> str:
    """Return the name by which an image has its role: its path below its class folder, without an image's ending.

    Composed in Unicode's form NFC, with `/` between folders: two systems of files may write one name in two ways.
    """
    stem, ending = os.path.splitext(path)
    text = stem if ending.lower() in IMAGE_ENDINGS else path
    return unicodedata.normalize("NFC", text.replace(os.sep, "/"))


def has_role(key: str, role: str, every: int) -> bool:
    """Whether the image of this name is one of those of a role that one of `every` images has.

    Args:
        key: See `key_of`; of images in groups, the group.
        role: `TEST` or `VALIDATION`.
        every: k, at least 2.
    """
    number = _NUMBER.search(key)
    if number is None:
        return digest(role, key) % every == 0
    block, place = divmod(int(number[0][-18:]), every)
    return place == digest(role, key[: number.start()], key[number.end() :], str(block)) % every


def digest(*parts: str) -> int:
    """Return 64 bits of a digest of several texts, the same in every process."""
    joined = b"\0".join([part.encode("utf-8", "surrogatepass") for part in parts])
    return int.from_bytes(hashlib.blake2b(joined, digest_size=8).digest(), "big")
