"""A contact sheet has a row for each class, in the images' own proportions, and is its owner's alone."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.pictures.contact_sheet import GAP, PER_CLASS, TEXT, TILE, contact_sheet

RED, GREEN = (200, 0, 0), (0, 150, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, colour, count in (("nevus", RED, 12), ("mélanome", GREEN, 2)):
        (tmp_path / "train" / name).mkdir(parents=True)
        (tmp_path / "test" / name).mkdir(parents=True)
        Image.new("RGB", (40, 20), "blue").save(tmp_path / "test" / name / "seen.png")
        for number in range(count):
            Image.new("RGB", (40, 20), colour).save(tmp_path / "train" / name / f"{number}.png")
    (tmp_path / "train" / "nevus" / "0.png").write_bytes(b"no image")
    return tmp_path


def test_each_class_is_a_row_of_its_images(folder: Path) -> None:
    sheet = np.asarray(Image.open(io.BytesIO(contact_sheet(f"folder:{folder}", 5))))
    assert sheet.shape == (GAP + 2 * (TEXT + TILE + GAP), GAP + PER_CLASS * (TILE + GAP), 3)
    rows = [sheet[GAP + k * (TEXT + TILE + GAP) + TEXT :][:TILE] for k in range(2)]
    assert [(row == GREEN).all(-1).sum() for row in rows] == [2 * TILE * TILE // 2, 0], "half as high as wide"
    assert (rows[1] == RED).all(-1).sum() == (PER_CLASS - 1) * TILE * TILE // 2, (
        "the one that cannot be read is crossed"
    )


def test_the_command_writes_it_for_its_owner_alone(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "sheet.png"
    result = CliRunner().invoke(app, ["data", "describe", f"folder:{folder}", "--plot", str(file)])
    assert result.exit_code == 0, result.output
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_bytes() == contact_sheet(f"folder:{folder}", 5)
