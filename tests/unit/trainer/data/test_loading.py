import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data import describe, first_look, load_dataset, load_split, reading
from tests.support import ROOT
from tests.unit.trainer.builders import CLASSES, a_contract, npz

CONTRACT = a_contract()


def test_a_split_is_read_whole_and_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x_train, x_test = (rng.integers(256, size=(n, 16, 16, 3), dtype=np.uint8) for n in (3, 2))
    written = npz(tmp_path / "data.npz", x_train, [0, 1, 2], CLASSES[::-1], tests=(x_test, [2, 1]))
    read = {split: load_split(written, contract=CONTRACT, split=split)[0] for split in ("train", "test", "all")}
    assert np.array_equal(read["train"].images_NSS3, x_train)
    assert np.array_equal(read["test"].images_NSS3, x_test)
    assert np.array_equal(read["all"].images_NSS3, np.concatenate([x_train, x_test]))
    assert read["all"].labels_N.tolist() == [2, 1, 0, 0, 1]


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """30 cats, 20 dogs and 4 owls; every image is a different shade pair."""
    labels = np.repeat([0, 1, 2], [30, 20, 4])
    images = np.zeros((54, 16, 16, 3), np.uint8)
    images[:, :, :, 0] = np.arange(54)[:, None, None]
    return npz(tmp_path / "data.npz", images, labels)


def chosen(spec: str, **kwargs: Any) -> list[int]:
    images = load_dataset(spec, contract=CONTRACT, **kwargs).train.images_NSS3
    return [int(shade) for shade in images[:, 0, 0, 0]]


def test_a_subset_is_balanced_and_a_class_with_fewer_keeps_what_it_has(spec: str) -> None:
    data = load_dataset(spec, contract=CONTRACT, samples_per_class=6)
    assert data.class_counts == (6, 6, 4)
    assert len(data.test) == 54
    assert describe(spec, samples_per_class=6) == {"cat": 6, "dog": 6, "owl": 4}
    assert describe(spec) == {"cat": 30, "dog": 20, "owl": 4}


def test_a_split_gives_the_training_images_of_a_client_with_the_same_subset(spec: str) -> None:
    images, _ = load_split(spec, contract=CONTRACT, split="train", samples_per_class=6, seed=5)
    assert images.images_NSS3[:, 0, 0, 0].tolist() == chosen(spec, samples_per_class=6, seed=5)
    assert len(load_split(spec, contract=CONTRACT, split="all", samples_per_class=6)[0]) == 2 * (6 + 6 + 4)


@pytest.mark.parametrize(
    ("fraction", "counts"),
    [(1.0, (30, 20, 4)), (0.5, (15, 10, 2)), (0.3, (9, 6, 1)), (0.12, (4, 2, 1)), (1e-9, (1, 1, 1))],
)
def test_a_share_leaves_the_balance_of_the_classes_and_something_of_each(
    spec: str, fraction: float, counts: tuple[int, ...]
) -> None:
    data = load_dataset(spec, contract=CONTRACT, fraction=fraction)
    assert data.class_counts == counts
    assert len(data.test) == 54
    numbers = chosen(spec, fraction=fraction, seed=3)
    assert numbers == sorted(numbers) == chosen(spec, fraction=fraction, seed=3)
    looked = first_look(spec, fraction=fraction).class_counts
    assert tuple(looked.values()) == counts, "what a client announces is what it trains on"
    images, _ = load_split(spec, contract=CONTRACT, split="train", fraction=fraction, seed=3)
    assert images.images_NSS3[:, 0, 0, 0].tolist() == numbers


@pytest.mark.parametrize(("key", "sizes"), [("fraction", (0.1, 0.3, 0.8, 1)), ("samples_per_class", (2, 6, 19, 100))])
def test_a_larger_subset_contains_a_smaller_one_and_the_seed_decides_who_is_in_it(
    spec: str, key: str, sizes: tuple[float, ...]
) -> None:
    subsets = [chosen(spec, **{key: size}) for size in sizes]
    for smaller, larger in pairwise(subsets):
        assert set(smaller) < set(larger)
    assert subsets[-1] == chosen(spec) == list(range(54))
    first = chosen(spec, **{key: sizes[1]}, seed=1)
    assert first == sorted(first) == chosen(spec, **{key: sizes[1]}, seed=1)
    assert first != chosen(spec, **{key: sizes[1]}, seed=2)
    assert first[:6] != [0, 1, 2, 3, 4, 5]
    assert set(chosen(spec, samples_per_class=6)) <= set(chosen(spec, fraction=0.3)) | set(range(50, 54))


def test_the_images_of_a_class_do_not_depend_on_the_other_classes(spec: str, tmp_path: Path) -> None:
    with np.load(spec[4:]) as arrays:
        is_dog = arrays["y_train"] == 1
        none = arrays["x_test"][:0], arrays["y_test"][:0]
        alone = npz(tmp_path / "dogs.npz", arrays["x_train"][is_dog], np.zeros(20, np.int64), ["dog"], tests=none)
    dogs = [shade for shade in chosen(spec, samples_per_class=6) if 30 <= shade < 50]
    assert chosen(alone, samples_per_class=6) == dogs


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("fodler:/data", r"unknown data 'fodler:/data'; did you mean 'folder:/data'\?"),
        ("/data/digits.npz", r"unknown data '/data/digits.npz'; did you mean 'npz:/data/digits.npz'\?"),
        ("/data/images", r"write digits:DOMAIN, folder:PATH.* or package.module:factory"),
        ("", "unknown data ''; write digits:DOMAIN"),
        ("npz:~nobody-of-this-name/x.npz", "there is no file ~nobody"),
        ("folder:", "names nothing after the colon"),
        ("digits", "names nothing after the colon; write digits:DOMAIN"),
        ("mnist(2):/data", "unknown data 'mnist"),
        ("digit5:mnits:/data", r"unknown domain of digit5 'mnits'; did you mean 'mnist'\?"),
        ("office10:nowhere:/data", "unknown domain of office10 'nowhere'; known: amazon, caltech, dslr, webcam"),
        ("domainnet:real", r"data 'domainnet:real' names no folder; write domainnet:real:PATH"),
        ("digits:svhn", "unknown domain of digits 'svhn'; known: mnist, optdigits, mnistm, synth"),
        ("no_such_package:make", "cannot import 'no_such_package'"),
    ],
)
def test_an_unknown_specification_is_answered_with_the_nearest_known(spec: str, sentence: str) -> None:
    with pytest.raises(InvalidData, match=sentence):
        describe(spec)
    with pytest.raises(InvalidData, match=sentence):
        load_dataset(spec, contract=CONTRACT)


def test_data_is_read_without_torch() -> None:
    code = (
        "import sys; from fedplcc.trainer.data import describe, load_dataset;"
        "from fedplcc.shared.config.run import DataSection;"
        "describe('digits:mnistm'); load_dataset('digits:synth', contract=DataSection(classes=list('0123456789')),"
        "samples_per_class=1); print(sorted({'torch', 'sklearn', 'mlxtend', 'matplotlib'} & set(sys.modules)))"
    )
    fresh = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert fresh.stdout.strip() == "[]"


def test_images_that_no_memory_can_hold_end_in_a_sentence() -> None:
    with pytest.raises(
        InvalidData, match=r"1000000000000 images of 1024 x 1024 need 2929687500 GiB of memory, more than"
    ):
        reading.allocated(10**12, 1024)
