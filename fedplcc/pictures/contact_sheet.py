"""A contact sheet of a data set: some training images of each class as they are read, for the eyes of their owner."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fedplcc.shared.errors import InvalidData
from fedplcc.shared.types import IntArray
from fedplcc.terminal.printable import printable
from fedplcc.trainer.data.images.scaling import Pixels
from fedplcc.trainer.data.source import Samples
from fedplcc.trainer.data.specs import open_source

MOST_CLASSES, PER_CLASS = 40, 8
"""Most rows, and images of each."""
TILE, GAP, TEXT = 112, 6, 20
"""Pixels of a picture's longer side, between two, and of a line of text."""
PAPER, INK, FAULT = "white", "black", "#c0392b"


def contact_sheet(spec: str, test_every: int) -> bytes:
    """Return a PNG file with a row for each class: its name, its numbers of images, and some of the training images.

    Images are those from the first to the last one at equal distances, and test images where a class has no other. One that
    cannot be read is a crossed frame.

    Raises:
        InvalidData: The data set cannot be opened, or has no image.
    """
    source = open_source(spec, test_every)
    if not len(source.train) + len(source.test):
        raise InvalidData(f"data {spec!r} has no image to draw")
    rows = source.class_names[:MOST_CLASSES]
    left_out = len(source.class_names) - len(rows)
    height = GAP + len(rows) * (TEXT + TILE + GAP) + (TEXT if left_out else 0)
    sheet = Image.new("RGB", (GAP + PER_CLASS * (TILE + GAP), height), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for label, name in enumerate(rows):
        top = GAP + label * (TEXT + TILE + GAP)
        of_class = [np.flatnonzero(side.labels_N == label) for side in (source.train, source.test)]
        line = f"{printable(name)}: {len(of_class[0])} for training, {len(of_class[1])} for testing"
        draw.text((GAP, top), line, fill=INK, font=font)
        side, numbers = (source.train, of_class[0]) if len(of_class[0]) else (source.test, of_class[1])
        for place, number in enumerate(_spread(numbers)):
            _paste(sheet, side, number, (GAP + place * (TILE + GAP), top + TEXT))
    if left_out:
        draw.text((GAP, height - TEXT), f"and {left_out} more classes", fill=INK, font=font)
    written = io.BytesIO()
    sheet.save(written, format="PNG")
    return written.getvalue()


def _spread(numbers: IntArray) -> Sequence[int]:
    places = np.linspace(0, max(len(numbers) - 1, 0), min(len(numbers), PER_CLASS)).astype(int)
    found: list[int] = numbers[places].tolist()
    return found


def _paste(sheet: Image.Image, side: Samples, number: int, corner: tuple[int, int]) -> None:
    """Put an image of a data set on the sheet, in its own proportions."""
    pixels = side.read(number)
    left, top = corner
    if pixels is None:
        draw, right, bottom = ImageDraw.Draw(sheet), left + TILE - 1, top + TILE - 1
        draw.rectangle((left, top, right, bottom), outline=FAULT)
        draw.line((left, top, right, bottom), fill=FAULT)
        draw.line((left, bottom, right, top), fill=FAULT)
        return
    sheet.paste(_thumbnail(pixels), corner)


def _thumbnail(pixels: Pixels) -> Image.Image:
    image = Image.fromarray(np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3))))
    scale = TILE / max(image.size)
    return image.resize((max(1, round(scale * image.width)), max(1, round(scale * image.height))))
