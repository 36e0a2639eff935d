"""Digit-Five in the forms in which copies are passed around."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from PIL import Image

from fedplcc.shared.config.run import DataSection
from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data import describe, load_dataset
from fedplcc.trainer.data.sets.digit5 import DOMAINS
from fedplcc.trainer.data.specs import open_source
from tests.support import ROOT
from tests.support.records.public_sets import labels, shades

CONTRACT = DataSection(classes=tuple("0123456789"))
NUM_TRAIN, NUM_TEST = 20, 10
SHARED = ROOT.parent / "shared" / "data" / "digit5"


def one_hot(digits: np.ndarray) -> np.ndarray:
    return np.asarray(np.eye(10)[digits])


def write_mnist(folder: Path, size: int = 28) -> None:
    arrays: dict[str, Any] = {}
    for split, count in (("train", NUM_TRAIN), ("test", NUM_TEST)):
        images = shades(count, size)
        arrays[f"{split}_{size}"] = images[..., None] if size == 28 else images.astype(np.float64)
        arrays[f"label_{split}"] = one_hot(labels(count))
    scipy.io.savemat(folder / "mnist_data.mat", arrays)


def write_usps(folder: Path) -> None:
    cells = np.empty((2, 2), dtype=object)
    for row, count in enumerate((NUM_TRAIN, NUM_TEST)):
        cells[row, 0] = shades(count, 28)[:, None] / 255
        cells[row, 1] = labels(count)[:, None].astype(np.uint8)
    scipy.io.savemat(folder / "usps_28x28.mat", {"dataset": cells})


def write_x_and_y(folder: Path, prefix: str, zero: int) -> None:
    for split, count in (("train", NUM_TRAIN), ("test", NUM_TEST)):
        digits = labels(count)
        scipy.io.savemat(
            folder / f"{prefix}_{split}_32x32.mat",
            {"X": np.moveaxis(shades(count, 32, 3), 0, -1), "y": np.where(digits == 0, zero, digits)[:, None]},
        )


def write_syn_number(folder: Path) -> None:
    arrays: dict[str, Any] = {}
    for split, count in (("train", NUM_TRAIN), ("test", NUM_TEST)):
        arrays |= {f"{split}_data": shades(count, 32, 3), f"{split}_label": labels(count)[:, None]}
    scipy.io.savemat(folder / "syn_number.mat", arrays)


def write_mnistm(folder: Path) -> None:
    arrays: dict[str, Any] = {}
    for split, count in (("train", NUM_TRAIN), ("test", NUM_TEST)):
        arrays |= {split: shades(count, 28, 3), f"label_{split}": one_hot(labels(count)).astype(np.uint8)}
    scipy.io.savemat(folder / "mnistm_with_label.mat", arrays, do_compression=True)


MATS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "mnist, 28 pixels": ("mnist", write_mnist),
    "mnist, 32 pixels": ("mnist", lambda folder: write_mnist(folder, 32)),
    "usps": ("usps", write_usps),
    "svhn with 10 for 0": ("svhn", lambda folder: write_x_and_y(folder, "svhn", 10)),
    "synth with 0 for 0": ("synth", lambda folder: write_x_and_y(folder, "synth", 0)),
    "synth in one file": ("synth", write_syn_number),
    "mnistm": ("mnistm", write_mnistm),
}


@pytest.mark.parametrize("what", MATS)
def test_a_domain_is_read_from_the_usual_matlab_files(what: str, tmp_path: Path) -> None:
    domain, write = MATS[what]
    write(tmp_path)
    spec = f"digit5:{domain}:{tmp_path}"
    assert describe(spec) == {str(digit): NUM_TRAIN // 10 for digit in range(10)}
    data = load_dataset(spec, contract=CONTRACT)
    for images, count in ((data.train, NUM_TRAIN), (data.test, NUM_TEST)):
        assert images.labels_N.tolist() == labels(count).tolist()
        assert np.array_equal(images.images_NSS3, shades(count, 32, 3))


def test_pixels_are_read_when_the_first_image_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnistm(tmp_path)
    read = []
    loadmat = scipy.io.loadmat

    def noted(file: str, *, variable_names: list[str]) -> dict[str, Any]:
        read.extend(variable_names)
        found: dict[str, Any] = loadmat(file, variable_names=variable_names)
        return found

    monkeypatch.setattr(scipy.io, "loadmat", noted)
    source = open_source(f"digit5:mnistm:{tmp_path}", 5)
    assert read == ["label_train", "label_test"]
    for i in range(3):
        assert source.train.read(i) is not None
    assert read == ["label_train", "label_test", "train"]


def put(path: Path, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (8, 8), shade).save(path)


@pytest.mark.parametrize(("domain", "folder"), [("synth", "SYN"), ("mnistm", "MNIST-M")])
@pytest.mark.parametrize(("train", "test"), [("train", "test"), ("imgs_train", "imgs_valid")])
def test_a_domain_is_read_from_class_folders(domain: str, folder: str, train: str, test: str, tmp_path: Path) -> None:
    put(tmp_path / folder / train / "3/a.png")
    put(tmp_path / folder / train / "3/b.png")
    put(tmp_path / folder / test / "7/a.png")
    source = open_source(f"digit5:{domain}:{tmp_path}", 5)
    assert source.class_names == ("3", "7")
    assert (source.train.labels_N.tolist(), source.test.labels_N.tolist()) == ([0, 0], [1])


def test_a_domain_is_read_from_files_that_end_in_their_label(tmp_path: Path) -> None:
    for i, digit in enumerate((5, 0, 9)):
        put(tmp_path / f"syn/train_images/{i + 1:06}_{digit}.jpg", 100 + i)
    put(tmp_path / "syn/test_images/000001_2.jpg")
    source = open_source(f"digit5:synth:{tmp_path}", 5)
    assert source.train.labels_N.tolist() == [5, 0, 9]
    assert source.test.labels_N.tolist() == [2]
    assert source.train.name(0) == "train_images/000001_5.jpg"
    put(tmp_path / "syn/train_images/readme.png")
    with pytest.raises(
        InvalidData, match=r"readme.png does not end in its label; files here are called like 000001_7.jpg"
    ):
        open_source(f"digit5:synth:{tmp_path}", 5)


@pytest.mark.parametrize("file", ["usps_28x28.pkl", "USPS/partitions/train_part0.pkl"])
def test_pickles_are_refused_with_a_sentence(file: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(InvalidData, match=rf"{file} is a pickle, which could run anything .* use a copy in .mat files"):
        open_source(f"digit5:usps:{tmp_path}", 5)


def damage(path: Path, change: Callable[..., Any]) -> None:
    arrays = {name: value for name, value in scipy.io.loadmat(path).items() if not name.startswith("__")}
    change(arrays)
    scipy.io.savemat(path, arrays)


DAMAGED: dict[str, tuple[Callable[[Path], None], str, Callable[[Path], object], str]] = {
    "something else": (write_mnistm, "mnistm", lambda path: path.write_bytes(b"else" * 100), "as a MATLAB file"),
    "cut short": (
        write_mnistm,
        "mnistm",
        lambda path: path.write_bytes(path.read_bytes()[:300]),
        "has no arrays train and label_train",
    ),
    "no labels": (
        write_mnistm,
        "mnistm",
        lambda path: damage(path, lambda arrays: arrays.pop("label_test")),
        "has no arrays test and label_test; it holds ",
    ),
    "more labels than images": (
        write_mnistm,
        "mnistm",
        lambda path: damage(path, lambda arrays: arrays.update(label_train=one_hot(labels(21)))),
        r"train of .* has the shape \[20, 28, 28, 3\], which is not that of 21 images",
    ),
    "four channels": (
        write_syn_number,
        "synth",
        lambda path: damage(path, lambda arrays: arrays.update(train_data=shades(20, 32, 4))),
        r"train_data of .* has the shape \[20, 32, 32, 4\]",
    ),
    "labels that are no digits": (
        write_syn_number,
        "synth",
        lambda path: damage(path, lambda arrays: arrays.update(train_label=labels(20) + 40)),
        "the labels in train_label of .* are not digits",
    ),
    "no cells": (
        write_usps,
        "usps",
        lambda path: scipy.io.savemat(path, {"dataset": np.zeros((2, 2))}),
        "is not the usual 2 x 2 cells of images and labels",
    ),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_matlab_file_is_explained(what: str, tmp_path: Path) -> None:
    write, domain, change, sentence = DAMAGED[what]
    write(tmp_path)
    change(next(tmp_path.glob("*.mat")))
    with pytest.raises(InvalidData, match=sentence):
        load_dataset(f"digit5:{domain}:{tmp_path}", contract=CONTRACT)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data/digit5 beside the repository")
@pytest.mark.parametrize("domain", sorted(DOMAINS))
def test_the_evaluation_data_are_a_copy_of_digit_five(domain: str) -> None:
    source = open_source(f"digit5:{domain}:{SHARED}", 5)
    assert source.class_names == CONTRACT.classes
    assert np.bincount(source.train.labels_N).tolist() == [200] * 10
    assert len(source.test) == 2000
    data = load_dataset(f"part:0/2:domain:digit5:{domain}:{SHARED}", contract=CONTRACT, samples_per_class=1)
    assert source.note == data.note
    assert data.note.startswith("synth_substitute.npz: digits rendered") == (domain == "synth")


@pytest.mark.parametrize("wrong", [-1.0, 256.0, np.nan])
def test_pixels_that_are_no_brightness_are_refused(wrong: float, tmp_path: Path) -> None:
    write_mnist(tmp_path, 32)
    arrays = {name: value for name, value in scipy.io.loadmat(tmp_path / "mnist_data.mat").items() if name[0] != "_"}
    arrays["train_32"][0, 0, 0] = wrong
    scipy.io.savemat(tmp_path / "mnist_data.mat", arrays)
    with pytest.raises(InvalidData, match=r"the pixels in .*mnist_data\.mat are neither 0 to 255 nor 0 to 1"):
        load_dataset(f"digit5:mnist:{tmp_path}", contract=CONTRACT)


def test_another_form_of_the_usps_file_is_named(tmp_path: Path) -> None:
    write_usps(tmp_path)
    cells = scipy.io.loadmat(tmp_path / "usps_28x28.mat")["dataset"]
    cells[0, 0] = cells[0, 0][:, 0]
    scipy.io.savemat(tmp_path / "usps_28x28.mat", {"dataset": cells})
    with pytest.raises(InvalidData, match=r"dataset of .*usps_28x28\.mat has images of the shape"):
        load_dataset(f"digit5:usps:{tmp_path}", contract=CONTRACT)


def test_matlab_files_come_before_npz_files_and_those_before_folders(tmp_path: Path) -> None:
    classes = np.array(list("0123456789"))
    arrays: dict[str, Any] = {f"x_{split}": shades(10, 8, 3) for split in ("train", "test")}
    np.savez(tmp_path / "usps.npz", **arrays, y_train=labels(10), y_test=labels(10), classes=classes)
    put(tmp_path / "usps/0/a.png")
    assert len(open_source(f"digit5:usps:{tmp_path}", 5).train) == 10
    write_usps(tmp_path)
    assert len(open_source(f"digit5:usps:{tmp_path}", 5).train) == NUM_TRAIN


def test_class_folders_without_a_split_follow_the_runs_test_every(tmp_path: Path) -> None:
    for i in range(6):
        put(tmp_path / f"svhn/4/{i}.png")
    assert len(open_source(f"digit5:svhn:{tmp_path}", 3).test) == 2


def test_what_is_looked_for_is_named_where_nothing_is_found(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidData,
        match=r"holds nothing of the domain 'synth': neither synth_train_32x32.mat with synth_test_32x32.mat, "
        "syn_number.mat, synth.npz, synth_substitute.npz nor a folder synth/",
    ):
        open_source(f"digit5:synth:{tmp_path}", 5)
    with pytest.raises(InvalidData, match=r"cannot read the folder .*gone: No such file"):
        open_source(f"digit5:synth:{tmp_path}/gone", 5)
