"""Office-Caltech10, whatever the copy calls its folders."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedplcc.shared.config.run import DataSection
from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data import load_dataset
from fedplcc.trainer.data.sets.office10 import CLASSES
from fedplcc.trainer.data.specs import open_source
from tests.support import ROOT

SHARED = ROOT.parent / "shared" / "data" / "office10"
NAMES = (
    *("back_pack", "bike", "calculator", "headphones", "keyboard"),
    *("laptop_computer", "monitor", "mouse", "mug", "projector"),
)
COPIES = {
    "as published": ("caltech", NAMES),
    "as evaluated here": (
        "caltech",
        tuple(name.replace("_", "").replace("laptopcomputer", "laptop") for name in NAMES),
    ),
    "as in Caltech-256": (
        "caltech10",
        (
            *("003.backpack", "224.touring-bike", "027.calculator", "101.head-phones", "045.computer-keyboard"),
            *("127.laptop-101", "046.computer-monitor", "047.computer-mouse", "041.coffee-mug", "238.video-projector"),
        ),
    ),
}


def write(place: Path, names: tuple[str, ...], each: int = 3) -> None:
    """Images whose shade is 10 times the class and then counts."""
    for label, name in enumerate(names):
        (place / name).mkdir(parents=True)
        for i in range(each):
            Image.new("L", (8, 8), 10 * label + i).save(place / name / f"frame_{i:04}.png")


@pytest.mark.parametrize("what", COPIES)
@pytest.mark.parametrize("levels", ["{0}", "images/{0}", "{0}/images"])
def test_a_domain_of_any_copy_has_the_same_ten_class_names(what: str, levels: str, tmp_path: Path) -> None:
    folder, names = COPIES[what]
    write(tmp_path / levels.format(folder), names)
    (tmp_path / levels.format(folder) / "stapler").mkdir()  # Office-31 has 31 classes
    (tmp_path / levels.format(folder) / "stapler" / "frame_0001.png").write_bytes(b"")
    (tmp_path / levels.format(folder) / names[0] / "Thumbs.db").write_bytes(b"no image")
    data = load_dataset(f"office10:caltech:{tmp_path}", contract=DataSection(classes=NAMES, image_size=8))
    shades = np.array([10 * (i // 3) + i % 3 for i in range(30)])
    is_test = np.arange(30) % 10 >= 8  # the published split
    assert data.train.images_NSS3[:, 0, 0, 0].tolist() == shades[~is_test].tolist()
    assert data.test.images_NSS3[:, 0, 0, 0].tolist() == shades[is_test].tolist()
    assert data.train.labels_N.tolist() == (shades[~is_test] // 10).tolist()
    assert data.unreadable == ()


def test_names_are_the_ten_of_the_registry() -> None:
    assert tuple(CLASSES) == NAMES


def test_a_copy_that_lacks_a_domain_or_a_class_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"has no folder amazon/, directly or under images/"):
        open_source(f"office10:amazon:{tmp_path}", 5)
    write(tmp_path / "amazon", NAMES[:-1])
    with pytest.raises(InvalidData, match=r"amazon has no folder of the class 'projector'"):
        open_source(f"office10:amazon:{tmp_path}", 5)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data/office10 beside the repository")
@pytest.mark.parametrize(
    ("domain", "train", "test"), [("amazon", 768, 190), ("caltech", 899, 224), ("dslr", 127, 30), ("webcam", 237, 58)]
)
def test_the_evaluation_data_split_into_the_published_sizes(domain: str, train: int, test: int) -> None:
    source = open_source(f"office10:{domain}:{SHARED}", 5)
    assert (len(source.train), len(source.test)) == (train, test)
    assert source.class_names == NAMES
    assert set(source.test.labels_N.tolist()) == set(range(10))
