"""`fedplcc data`: what a person sees of a data set, and how a fetch ends."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from PIL import Image
from torchvision import datasets

from fedplcc.command.files.data import Fetchable
from fedplcc.trainer.data.sets.torchvision_sets import SETS
from tests.support import commands
from tests.support.records import public_sets

called = partial(commands.called, "data", "describe")


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Six scans, one of them damaged."""
    for name, count in (("healthy", 4), ("ill", 2)):
        (tmp_path / "train" / name).mkdir(parents=True)
        (tmp_path / "test" / name).mkdir(parents=True)
        for i in range(count):
            side = "test" if i == 3 else "train"
            Image.new("L", (30 + i, 20), 50 + 10 * (name == "ill") + i).save(tmp_path / side / name / f"{i}.png")
    damaged = tmp_path / "train" / "ill" / "1.png"
    damaged.write_bytes(damaged.read_bytes()[:40])
    return tmp_path


def test_a_data_set_is_described_by_classes_counts_and_sizes(scans: Path) -> None:
    (scans / "train" / "ill" / "1.png").unlink()
    code, text, errors = called(f"folder:{scans}")
    assert (code, errors) == (0, "")
    assert text.splitlines() == [
        f"folder:{scans}",
        "class    train  test",
        "healthy      3     1",
        "ill          1     0",
        "all          4     1",
        "images: 20 x 30 to 20 x 32 pixels, height x width (4 of them looked at)",
        "mean brightness of an image: 50 to 60, on average 53 of 255",
        "note: no image for testing: ill",
        "note: fewer than 10 images: healthy (4), ill (1); scores of such a class hang on single images",
        'for the run\'s [data]: classes = ["healthy", "ill"]',
    ]


def test_a_check_reads_every_image_and_names_those_that_cannot_be_read(scans: Path) -> None:
    code, text, errors = called(f"folder:{scans}", "--check")
    assert code == 1
    assert (
        "images: 20 x 30 to 20 x 33 pixels, height x width (all of them read)\n"
        "cannot be read: 1\n  train/ill/1.png\n  1 of them: it is no image that can be read here\n" in text
    )
    assert errors == "fedplcc: 1 of 6 images cannot be read; a trainer leaves them out\n"


def test_the_description_is_one_object_for_programs(scans: Path) -> None:
    code, text, errors = called(f"folder:{scans}", "--check", "--json")
    assert code == 1
    assert json.loads(text) == {
        "brightness": [50.0, 53.2, 60.0],
        "classes": [{"name": "healthy", "test": 1, "train": 3}, {"name": "ill", "test": 0, "train": 2}],
        "copies": [],
        "data": f"folder:{scans}",
        "largest": [20, 33],
        "note": "",
        "num_bright": 0,
        "num_dark": 0,
        "num_looked_at": 6,
        "reasons": {"it is no image that can be read here": 1},
        "remarks": [
            "no image for testing: ill",
            "fewer than 10 images: healthy (4), ill (2); scores of such a class hang on single images",
        ],
        "smallest": [20, 30],
        "test": 1,
        "train": 5,
        "unreadable": ["train/ill/1.png"],
    }
    assert "class    train  test" in errors


def test_a_set_is_fetched_into_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public_sets.write_mnist(tmp_path / "MNIST" / "raw", monkeypatch)
    monkeypatch.setattr(datasets.MNIST, "mirrors", ["http://127.0.0.1:1/"])
    code, text, _ = called(f"mnist:{tmp_path}", "--fetch")
    assert (code, text.splitlines()[0]) == (0, f"mnist:{tmp_path}")
    code, text, _ = called(f"mnist:{tmp_path}", "--fetch", "--json")
    found = json.loads(text)
    assert (found["data"], found["train"], found["test"]) == (f"mnist:{tmp_path}", 20, 10)


def test_a_fetch_says_how_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.MNIST, "mirrors", ["http://127.0.0.1:1/"])
    code, text, errors = called(f"mnist:{tmp_path}", "--fetch")
    assert (code, text) == (3, "")
    assert errors.splitlines()[-1].startswith("fedplcc: cannot fetch MNIST: Error downloading train-images")
    (tmp_path / "file").write_text("")
    code, _, errors = called(f"mnist:{tmp_path / 'file' / 'below'}", "--fetch")
    assert code == 4
    assert errors.startswith("fedplcc: cannot write MNIST to")
    assert called(f"imagenet:{tmp_path}", "--fetch")[0] == 2


def test_everything_that_torchvision_has_can_be_fetched() -> None:
    assert {member.value for member in Fetchable} == set(SETS)
