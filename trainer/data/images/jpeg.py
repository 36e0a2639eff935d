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
_SEQUENTIAL, _CODES, _SCAN, _END, _FILL = (0xC0, 0xC1), 0xC4, 0xDA, 0xD9, 0xFF
"""Kinds of segments, by the second byte of their marker."""
_TAIL = 4
"""Bytes at the end of the pixel data, of which a whole picture needs some."""
_AHEAD = b"\xfe" * 8
"""Bytes that a decoder may look at beyond the pixel data: the longest codes, of which few make no block."""
_ZEROS = bytes(64)
_NUM_LENGTHS = 16


class PixelData:
    """The pixel data of an open JPEG that is not loaded yet, given to its decoder in pieces."""

    def __init__(self, image: Image.Image, descriptor: int) -> None:
        data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        segments = list(_segments(data))
        kind, _, begin = segments[-1] if segments else (_END, 0, 0)
        is_sequential = any(each in _SEQUENTIAL for each, *_ in segments)
        found = _MARKER.search(data, begin) if kind == _SCAN and is_sequential else None
        end = len(data[: found.start()].rstrip(b"\xff")) if found is not None and found[0][1] == _END else 0
        self._asked, self._pieces = 0, iter((data[: end - _TAIL], data[end - _TAIL : end], _AHEAD, data[end:]))
        self._is_known = end - _TAIL > begin
        self._zeros = data.find(_ZEROS, begin, end) >= 0
        self._zeros_are_flat = not self._zeros or all(
            is_flat for each, first, last in segments if each == _CODES for is_flat in _first_codes(data[first:last])
        )
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


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the kind of each segment before the pixel data, and where its content begins and ends; it may be a preview."""
    at = 2
    while at + 4 <= len(data) and data[at] == _FILL:
        kind, end = data[at + 1], at + 2 + int.from_bytes(data[at + 2 : at + 4])
        if kind == _FILL:
            at += 1
            continue
        yield kind, at + 4, end
        if kind in (_SCAN, _END):
            return
        at = end


def _first_codes(tables: bytes) -> Iterator[bool]:
    """Whether zeros alone say that a block is flat, by each table of codes for what varies within one."""
    at = 0
    while at + 1 + _NUM_LENGTHS < len(tables):
        is_of_changes, numbers = tables[at] >> 4, tables[at + 1 : at + 1 + _NUM_LENGTHS]
        at += 1 + _NUM_LENGTHS
        if is_of_changes and at < len(tables):
            yield tables[at] == 0
        at += sum(numbers)
