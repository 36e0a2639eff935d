"""Validation images are training images that nothing trains on."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared.config.run import DataSection
from fedplcc.trainer.data import ClientData, load_dataset
from fedplcc.trainer.data.validation import held_out
from tests.unit.trainer.builders import a_contract, npz

NAMES = ("cat", "dog", "owl")


def shades(images_NSS3: npt.NDArray[np.uint8]) -> set[str]:
    return {hashlib.sha256(image.tobytes()).hexdigest() for image in images_NSS3}


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """30 cats, 20 dogs and 4 owls of which no two are alike."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [30, 20, 4])
    x_train, x_test = (rng.integers(256, size=(54, 16, 16, 3), dtype=np.uint8) for _ in range(2))
    return npz(tmp_path / "data.npz", x_train, labels, NAMES, tests=(x_test, labels))


def contract(**keys: int) -> DataSection:
    return DataSection.model_validate({**a_contract().model_dump(), **keys})


def loaded(spec: str, *, every: int | None = None, **kwargs: Any) -> ClientData:
    return load_dataset(spec, contract=contract() if every is None else contract(validation_every=every), **kwargs)


@pytest.mark.parametrize("samples", [{}, {"samples_per_class": 3}, {"fraction": 0.2}])
@pytest.mark.parametrize("rule", [{"every": 5}, {"validation_per_class": 4}, {"every": 2, "validation_per_class": 1}])
def test_no_image_is_both_trained_on_and_validated(spec: str, rule: dict[str, int], samples: dict[str, Any]) -> None:
    data = loaded(spec, **rule, **samples)
    train, validation, test = (shades(part.images_NSS3) for part in (data.train, data.validation, data.test))
    assert len(validation) == len(data.validation) > 0
    assert not validation & train
    assert not validation & test
    assert train | validation <= shades(loaded(spec).train.images_NSS3)
    assert sum(data.class_counts) == len(data.train)
    if not samples:
        assert train | validation == shades(loaded(spec).train.images_NSS3)


def test_a_clients_own_number_goes_before_the_runs_rule_and_takes_at_most_half(spec: str) -> None:
    data = loaded(spec, every=5, validation_per_class=9)
    assert np.bincount(data.validation.labels_N).tolist() == [9, 9, 2]
    assert np.bincount(loaded(spec, every=5).validation.labels_N, minlength=3).tolist() == [6, 4, 0]


def test_a_training_subset_stays_as_it_is_where_there_is_room_for_both(spec: str) -> None:
    plain = loaded(spec, samples_per_class=2, seed=3).train
    beside = loaded(spec, samples_per_class=2, validation_per_class=2, seed=3).train
    assert np.array_equal(plain.images_NSS3, beside.images_NSS3)


@pytest.mark.parametrize("rule", [{"every": 5}, {"validation_per_class": 4}])
def test_a_share_is_of_all_images_those_for_validation_included(spec: str, rule: dict[str, int]) -> None:
    assert loaded(spec, fraction=0.3, **rule).class_counts == loaded(spec, fraction=0.3).class_counts == (9, 6, 1)
    whole = loaded(spec, fraction=1.0, **rule)
    assert np.array_equal(whole.train.images_NSS3, loaded(spec, **rule).train.images_NSS3), (
        "what is left, if not enough"
    )


def test_who_is_set_aside_follows_from_the_seed(spec: str) -> None:
    drawn = [shades(loaded(spec, validation_per_class=5, seed=seed).validation.images_NSS3) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@given(
    counts=st.lists(st.integers(0, 40), min_size=3, max_size=3),
    every=st.none() | st.integers(2, 10),
    per_class=st.none() | st.integers(1, 50),
    seed=st.integers(0, 100),
)
def test_every_class_keeps_at_least_half_and_one(
    counts: list[int], every: int | None, per_class: int | None, seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat([0, 1, 2], counts)).astype(np.int64)
    aside = held_out(labels, NAMES, every=every, per_class=per_class, seed=seed)
    assert aside.dtype == np.int64
    assert np.all(np.diff(aside) > 0)
    taken = np.bincount(labels[aside], minlength=3)
    for count, number in zip(counts, taken.tolist(), strict=True):
        expected = min(per_class, count // 2) if per_class is not None else count // every if every is not None else 0
        assert number == expected
        assert count - number >= (count + 1) // 2
