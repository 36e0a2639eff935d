"""Class sums: what one record moves, whatever the others, and what a release makes of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedplcc.shared.privacy.class_sums import Release, Sums, class_sums, clipped, noise_facts, release_name, released

KEY, FACTS = b"k" * 32, noise_facts("north", "ab" * 32, 1)
M, D = 3, 5
numbers = st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, 1e-30, 3e38, -1.0])


@st.composite
def clients(draw: Any) -> tuple[np.ndarray, np.ndarray, list[str], list[str] | None, float]:
    num = draw(st.integers(1, 8))
    features = np.array(
        draw(st.lists(st.lists(numbers, min_size=D, max_size=D), min_size=num, max_size=num)), np.float32
    )
    labels = np.array(draw(st.lists(st.integers(0, M - 1), min_size=num, max_size=num)))
    digests = [f"{i:02d}" for i in draw(st.permutations(range(num)))]
    groups = draw(st.none() | st.lists(st.sampled_from("abc"), min_size=num, max_size=num))
    return features, labels, digests, groups, draw(st.sampled_from([1e-3, 0.1, 1.0, 50.0]))


def of(client: Any, keep: np.ndarray | None = None) -> Sums:
    features, labels, digests, groups, clip = client
    kept = np.arange(len(labels)) if keep is None else keep
    return class_sums(
        features[kept],
        labels[kept],
        M,
        clip,
        digests=[digests[i] for i in kept],
        groups=None if groups is None else [groups[i] for i in kept],
    )


@settings(max_examples=300, deadline=None)
@given(clients(), st.integers(0, 7))
def test_a_record_moves_the_sums_by_at_most_the_clip_and_the_counts_by_at_most_one(client: Any, which: int) -> None:
    _, labels, _, groups, clip = client
    which %= len(labels)
    is_of_record = np.arange(len(labels)) == which if groups is None else np.array(groups) == groups[which]
    whole, without = of(client), of(client, np.flatnonzero(~is_of_record))
    # Sums of up to 8 records in float64: their rounding is 1e-15 of 8 C.
    assert np.linalg.norm(whole.sums_MD - without.sums_MD) <= clip * (1 + 1e-13)
    assert np.linalg.norm(whole.counts_M - without.counts_M) <= 1 + 1e-14
    num_records = len(labels) if groups is None else len(set(groups))
    assert whole.counts_M.sum() == pytest.approx(num_records)


@settings(max_examples=100, deadline=None)
@given(clients(), st.randoms())
def test_the_order_in_which_images_are_read_changes_no_byte(client: Any, random: Any) -> None:
    order = list(range(len(client[1])))
    random.shuffle(order)
    assert of(client, np.array(order)).sha256 == of(client).sha256


def test_an_image_counts_by_its_direction_and_a_group_as_the_mean_of_its_images() -> None:
    features = np.array([[3, -3, 0], [6, -6, 0], [0, 1, -1], [1, 1, 1]], np.float32)
    unit = np.array([1, -1, 0]) / math.sqrt(2)
    alone = class_sums(features, np.array([0, 0, 1, 2]), 4, 0.5, digests=list("abcd"))
    np.testing.assert_allclose(alone.sums_MD[0], unit, atol=1e-9)
    np.testing.assert_array_equal(alone.sums_MD[2:], np.zeros((2, 3)))  # what all numbers share is taken away first
    assert alone.counts_M.tolist() == [2, 1, 1, 0]
    grouped = class_sums(features, np.array([0, 0, 1, 2]), 4, 0.5, digests=list("abcd"), groups=["p", "p", "p", "q"])
    np.testing.assert_allclose(grouped.sums_MD[0], unit / 2 * 2 / 3, atol=1e-9)
    np.testing.assert_allclose(grouped.counts_M, [2 / 3, 1 / 3, 1, 0])


def test_clipping_never_leaves_more_than_the_clip() -> None:
    rows = np.random.default_rng(0).normal(size=(2000, 7)) * np.geomspace(1e-6, 1e12, 2000)[:, None]
    norms = np.linalg.norm(clipped(rows, 0.3), axis=1)
    assert norms.max() <= 0.3
    is_short = np.linalg.norm(rows, axis=1) <= 0.3
    np.testing.assert_array_equal(clipped(rows, 0.3)[is_short], rows[is_short])


def sums(value: float = 0.25) -> Sums:
    return Sums(np.full((M, D), value), np.arange(M, dtype=float))


def test_a_release_again_has_the_same_bytes_and_any_other_fact_other_noise() -> None:
    release = Release(clip=0.5, noise=2.0)
    first, name = released(sums(), release, KEY, FACTS), release_name(sums(), release, KEY, FACTS)
    again = released(sums(), release, KEY, FACTS)
    assert (again.sums_MD.tobytes(), again.counts_M.tobytes()) == (first.sums_MD.tobytes(), first.counts_M.tobytes())
    others = [
        (sums(0.25 + 2**-40), release, KEY, FACTS),  # another image
        (sums(), release, b"l" * 32, FACTS),
        (sums(), release, KEY, noise_facts("south", "ab" * 32, 1)),
        (sums(), release, KEY, noise_facts("north", "ac" * 32, 1)),
        (sums(), release, KEY, noise_facts("north", "ab" * 32, 2)),
        (sums(), Release(clip=0.5, noise=2.0 + 1e-12), KEY, FACTS),
    ]
    for other in others:
        assert not np.isin(released(*other).sums_MD, first.sums_MD).any()
        assert release_name(*other) != name


def test_the_noise_has_its_deviations_and_lies_on_the_grid() -> None:
    release, exact = Release(clip=0.5, noise=3.0), Sums(np.full((200, 50), 7.0), np.full(200, 11.0))
    sums_drawn, counts_drawn = [], []
    for number in range(40):
        made = released(exact, release, KEY, noise_facts("north", "", number))
        for values, unit in ((made.sums_MD, 0.5 * 2.0**-20), (made.counts_M, 2.0**-20)):
            np.testing.assert_array_equal(values / unit, np.rint(values / unit))
        sums_drawn.append((made.sums_MD - 7.0) / (3.0 * 0.5))
        counts_drawn.append((made.counts_M - 11.0) / (4 * 3.0))
    assert stats.kstest(np.ravel(sums_drawn), "norm").pvalue > 0.01
    assert stats.kstest(np.ravel(counts_drawn), "norm").pvalue > 0.01
