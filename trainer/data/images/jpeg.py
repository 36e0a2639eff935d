"""Pixel data of a JPEG of which a part is damaged, which decoders do not say.

A decoder goes on through damage: it takes bits for others, draws grey or coloured blocks, and at the end has data left,
or too few. So it gets the data in pieces here, and what it asks for tells. This holds for one sequential scan, as most
programs write; where a file has marks at which decoders begin anew, zeros alone can be told, of a progressive one nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from PIL import Image

_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)
"""Begins what follows pixel data: neither a byte of theirs nor a mark at which to begin anew."""
_SEQUENTIAL = re.compile(rb"\xff[\xc0\xc1]\x00", re.DOTALL)
_SCAN, _END, _CODES = b"\xff\xda", b"\xff\xd9", b"\xff\xc4"
_TAIL = 4
"""Bytes at the end of the pixel data, of which a whole picture needs some."""
_AHEAD = b"\xfe" * 8
"""Bytes that a decoder may look at beyond the pixel data: the longest codes, of which few make no block."""
_ZEROS = bytes(64)
_NUM_LENGTHS = 16


class PixelData:
    """The pixel data of an open JPEG that is not loaded yet, given to its decoder in pieces."""

    def __init__(self, image: Image.Image, descriptor: int) -> None:
        """Prepare."""
        data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        begin = data.find(_SCAN)
        head = data[: max(0, begin)]
        found = _MARKER.search(data, begin + 2) if _SEQUENTIAL.search(head) else None
        end = len(data[: found.start()].rstrip(b"\xff")) if found is not None and found[0] == _END else 0
        self._asked, self._pieces = 0, iter((data[: end - _TAIL], data[end - _TAIL : end], _AHEAD, data[end:]))
        self._is_known = end - _TAIL > begin
        self._zeros = data.find(_ZEROS, begin, end) >= 0
        self._zeros_are_flat = not self._zeros or all(_first_codes(head))
        if self._is_known:
            setattr(image, "load_read", self._read)  # noqa: B010 - Pillow asks for a file's bytes by it

    def _read(self, _: int) -> bytes:
        self._asked += 1
        return next(self._pieces, b"")

    @property
    def misfits(self) -> bool:
        """Whether the picture, once it is loaded, has needed other pixel data than there are."""
        return self._is_known and self._asked not in (2, 3)

    @property
    def has_lost_a_part(self) -> bool:
        """Whether zeros stand for pixel data, once the picture is loaded."""
        return self._zeros and (self.misfits or not self._zeros_are_flat)


def _first_codes(head: bytes) -> Iterator[bool]:
    """Whether zeros alone say that a block is flat, by each table of codes for what varies within one.

    Args:
        head: The file before its pixel data.
    """
    at = head.find(_CODES)
    while at >= 0:
        end = at + 2 + int.from_bytes(head[at + 2 : at + 4])
        at += 4
        while at + 1 + _NUM_LENGTHS < end:
            is_of_changes, numbers = head[at] >> 4, head[at + 1 : at + 1 + _NUM_LENGTHS]
            at += 1 + _NUM_LENGTHS
            if is_of_changes:
                yield head[at] == 0
            at += sum(numbers)
        at = head.find(_CODES, end)
