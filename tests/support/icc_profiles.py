"""ICC profiles by hand: of primaries and a curve, of a grey curve, or of inks. Pillow makes none but sRGB."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence

D50 = (0.9642, 1.0, 0.8249)
DISPLAY_P3 = ((0.51512, 0.24120, -0.00105), (0.29198, 0.69225, 0.04189), (0.15710, 0.06657, 0.78407))
"""Red, green and blue as XYZ under D50, as Apple's profile has them."""
ADOBE_RGB = ((0.60974, 0.31111, 0.01947), (0.20528, 0.62567, 0.06087), (0.14919, 0.06322, 0.74457))
"""The same of Adobe RGB (1998), of Adobe's profile."""
SRGB_CURVE = (2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)
"""Exponent and constants of the curve of sRGB, which Display P3 shares."""


def _fixed(*values: float) -> bytes:
    return b"".join(struct.pack(">i", round(value * 65536)) for value in values)


def _curve(curve: float | Sequence[float]) -> bytes:
    if isinstance(curve, float):
        return b"para" + bytes(8) + _fixed(curve)
    return b"para" + bytes(4) + struct.pack(">HH", 3, 0) + _fixed(*curve)


def profile(
    space: str, curve: float | Sequence[float], primaries: Sequence[Sequence[float]] = (), kind: bytes = b"mntr"
) -> bytes:
    """Return a profile of version 4.

    Args:
        space: "RGB" with primaries, "GRAY", or any other for its name alone.
        curve: An exponent, or the exponent and four constants of sRGB's kind of curve.
        primaries: XYZ under D50 of red, green and blue.
        kind: Class of device.
    """
    tags = [(b"kTRC", _curve(curve))] if not primaries else []
    for name, xyz in zip((b"r", b"g", b"b"), primaries, strict=False):
        tags += [(name + b"XYZ", b"XYZ " + bytes(4) + _fixed(*xyz)), (name + b"TRC", _curve(curve))]
    return _written(space, kind, b"XYZ ", tags)


def inks(lightness_of: Callable[[int, int, int, int], float]) -> bytes:
    """Return a profile of CMYK of greys: the lightness, 0 to 100, of each of the 16 sets of inks that are whole or none."""
    corners = itertools.product((0, 1), repeat=4)
    table = b"".join(bytes([round(lightness_of(*corner) * 2.55), 128, 128]) for corner in corners)
    unit = _fixed(1, 0, 0, 0, 1, 0, 0, 0, 1)
    content = b"mft1" + bytes(4) + bytes([4, 3, 2, 0]) + unit + bytes(range(256)) * 4 + table + bytes(range(256)) * 3
    return _written("CMYK", b"prtr", b"Lab ", [(b"A2B0", content)])


def _written(space: str, kind: bytes, between: bytes, own: Sequence[tuple[bytes, bytes]]) -> bytes:
    text = b"mluc" + bytes(4) + struct.pack(">IIHHII", 1, 12, 0x656E, 0x5553, 2, 28) + b"\0x"
    tags = [(b"desc", text), (b"cprt", text), (b"wtpt", b"XYZ " + bytes(4) + _fixed(*D50)), *own]
    table, data = struct.pack(">I", len(tags)), b""
    begin = 132 + 12 * len(tags)
    for name, content in tags:
        table += name + struct.pack(">II", begin + len(data), len(content))
        data += content + bytes(-len(content) % 4)
    size = struct.pack(">I", begin + len(data))
    head = size + bytes(4) + struct.pack(">I", 0x04300000) + kind + space.ljust(4).encode() + between + bytes(12)
    head += b"acsp" + bytes(28) + _fixed(*D50)
    return head.ljust(128, b"\0") + table + data


P3 = profile("RGB", SRGB_CURVE, DISPLAY_P3)
ADOBE = profile("RGB", 563 / 256, ADOBE_RGB)
GREY_18 = profile("GRAY", 1.8)
PRESS = inks(lambda c, m, y, k: 100 * (1 - 0.5 * c) * (1 - k))
"""Black paper under black ink, mid grey under cyan; the other inks are invisible."""
