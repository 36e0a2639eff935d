"""The published rules that divide a data set among clients."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st

from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data import partition
from tests.support import ROOT

SEEDS = st.integers(0, 2**31 - 1)
LABELS = st.lists(st.integers(0, 5), min_size=1, max_size=200).map(lambda labels: np.array(labels, np.int64))


def every_sample_once(parts: list[np.ndarray], num_samples: int) -> bool:
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(num_samples))


def is_sorted(parts: list[np.ndarray]) -> bool:
    return all(np.all(np.diff(part) > 0) for part in parts)


@st.composite
def dirichlet_requests(draw: st.DrawFn) -> tuple[np.ndarray, int, float, int]:
    """Draw labels, a number of clients, alpha and a smallest size; a draw of 1,000 is nearly always even enough for them."""
    num_clients, min_size, spare = draw(st.integers(1, 8)), draw(st.integers(1, 10)), draw(st.integers(0, 60))
    num_samples = num_clients * min_size + (spare if num_clients == 1 else spare + 4 * num_clients)
    labels = draw(st.lists(st.integers(0, 5), min_size=num_samples, max_size=num_samples))
    return np.array(labels, np.int64), num_clients, draw(st.floats(0.05 if num_clients < 3 else 1, 100)), min_size


@given(dirichlet_requests(), SEEDS)
@example((np.zeros(10, np.int64), 1, 0.05, 10), 0)
def test_dirichlet_gives_every_sample_to_one_client_and_no_client_too_few(
    request: tuple[np.ndarray, int, float, int], seed: int
) -> None:
    labels, num_clients, alpha, min_size = request
    try:
        parts = partition.dirichlet(labels, num_clients, alpha=alpha, min_size=min_size, seed=seed)
    except InvalidData:
        reject()  # no draw was even enough; see the impossible requests below
    assert len(parts) == num_clients
    assert every_sample_once(parts, len(labels))
    assert is_sorted(parts)
    assert min(map(len, parts)) >= min_size


def test_dirichlet_shares_are_uneven_for_a_small_alpha_and_even_for_a_large_one() -> None:
    labels = np.repeat(np.arange(10), 500)

    def classes_held(alpha: float) -> float:
        parts = partition.dirichlet(labels, 10, alpha=alpha)
        return float(np.mean([np.sum(np.bincount(labels[part], minlength=10) > 5) for part in parts]))

    assert classes_held(0.05) < 4
    assert classes_held(1000) == 10


def test_dirichlet_gives_a_client_that_is_full_nothing_more() -> None:
    labels = np.repeat(np.arange(10), 100)
    for seed in range(20):
        for part in partition.dirichlet(labels, 4, alpha=0.1, min_size=1, seed=seed):
            sizes = np.bincount(labels[part], minlength=10)
            before = np.concatenate([[0], np.cumsum(sizes)[:-1]])
            assert not sizes[before >= 250].any()


@given(LABELS, LABELS, st.integers(1, 8), st.integers(1, 4), SEEDS)
def test_sharding_deals_every_client_as_many_shards_and_no_sample_twice(
    labels: np.ndarray, test_labels: np.ndarray, num_clients: int, shards: int, seed: int
) -> None:
    present, sizes = np.unique(labels, return_counts=True)
    per_class = shards * num_clients // len(present)
    try:
        train, test = partition.sharding(labels, test_labels, num_clients, shards=shards, seed=seed)
    except InvalidData:
        assert per_class * len(present) < num_clients or sizes.min() < per_class
        return
    each = per_class * len(present) // num_clients
    for parts, all_labels in ((train, labels), (test, test_labels)):
        assert len(parts) == num_clients
        assert len(set(np.concatenate(parts).tolist())) == sum(map(len, parts))
        assert is_sorted(parts)
        for part in parts:
            assert len(set(all_labels[part].tolist())) <= each
    for mine, theirs in zip(train, test, strict=True):
        held, tested = set(labels[mine].tolist()), set(test_labels[theirs].tolist())
        assert tested <= held
        # a shard of class c has floor(N_c / shards of c) samples, or one more
        low = {c: n // per_class for c, n in zip(present.tolist(), sizes.tolist(), strict=True)}
        dealt = np.bincount(labels[mine], minlength=6)
        fewest = sum(min(1, dealt[c]) for c in held)
        assert fewest <= each
        for c in held:
            assert any(times * low[c] <= dealt[c] <= times * (low[c] + 1) for times in range(1, each + 1))
    if per_class * len(present) == num_clients * each:
        assert every_sample_once(train, len(labels))


def test_sharding_of_the_published_size_deals_three_labels_a_client() -> None:
    labels = np.repeat(np.arange(62), 60)
    train, test = partition.sharding(labels, np.repeat(np.arange(62), 12), 100, shards=4)
    assert {len(part) for part in train} == {30}  # floor(4 * 100 / 62) = 6 shards of 10; 372 labels, 300 of them dealt
    assert {len(part) for part in test} == {6}


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(0, 50), SEEDS)
def test_domain_draws_the_sizes_asked_for_without_replacement(sizes: list[int], rest: int, seed: int) -> None:
    parts = partition.domain(sum(sizes) + rest, sizes, seed=seed)
    assert [len(part) for part in parts] == sizes
    assert is_sorted(parts)
    drawn = np.concatenate(parts)
    assert len(set(drawn.tolist())) == sum(sizes)
    assert drawn.max() < sum(sizes) + rest


@given(st.integers(0, 200), st.integers(1, 20), SEEDS)
def test_an_even_cut_gives_every_sample_once_in_parts_of_almost_one_size(
    num_samples: int, num_clients: int, seed: int
) -> None:
    parts = partition.even_cut(num_samples, num_clients, seed=seed)
    assert len(parts) == num_clients
    assert every_sample_once(parts, num_samples)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(LABELS, st.floats(0.001, 1), SEEDS)
def test_a_long_tail_keeps_the_published_number_of_each_class(labels: np.ndarray, imbalance: float, seed: int) -> None:
    kept = partition.long_tail(labels, 6, imbalance=imbalance, seed=seed)
    assert is_sorted([kept])
    counts = np.bincount(labels, minlength=6)
    wanted = [int(counts.max() * imbalance ** (m / 5)) for m in range(6)]
    assert np.bincount(labels[kept], minlength=6).tolist() == np.minimum(counts, wanted).tolist()


def test_the_ends_of_a_long_tail() -> None:
    labels = np.repeat(np.arange(10), 500)
    counts = np.bincount(labels[partition.long_tail(labels, 10, imbalance=0.01)])
    assert counts.tolist() == [500, 299, 179, 107, 64, 38, 23, 13, 8, 5]
    assert len(partition.long_tail(labels, 10, imbalance=1.0)) == 5000
    assert len(partition.long_tail(np.zeros(7, np.int64), 1, imbalance=0.1)) == 7


def all_rules(seed: int) -> list[np.ndarray]:
    labels = np.random.default_rng(0).integers(10, size=1000)
    return [
        *partition.dirichlet(labels, 5, alpha=0.3, seed=seed),
        *(part for side in partition.sharding(labels, labels[:200], 5, shards=4, seed=seed) for part in side),
        *partition.domain(1000, [100] * 5, seed=seed),
        *partition.even_cut(1000, 3, seed=seed),
        partition.long_tail(labels, 10, imbalance=0.2, seed=seed),
    ]


def test_every_rule_is_a_function_of_its_seed_in_any_process() -> None:
    def digest(seed: int) -> str:
        import hashlib

        return hashlib.sha256(b"|".join(part.tobytes() for part in all_rules(seed))).hexdigest()

    root = ROOT
    code = (
        "import hashlib, runpy; rules = runpy.run_path('tests/property/test_partition.py')['all_rules'];"
        "print(hashlib.sha256(b'|'.join(part.tobytes() for part in rules(1))).hexdigest())"
    )
    fresh = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert fresh.stdout.strip() == digest(1) != digest(2)


def test_what_no_draw_and_no_shard_can_give_ends_in_a_sentence() -> None:
    with pytest.raises(InvalidData, match="none of 1000 draws gave each of 2 clients 10 training images"):
        partition.dirichlet(np.zeros(20, np.int64), 2, alpha=0.001)
    labels = np.repeat(np.arange(10), 5)
    with pytest.raises(InvalidData, match="2 clients with 2 shards each leave no shard for some of 10 classes"):
        partition.sharding(labels, labels, 2, shards=2)
