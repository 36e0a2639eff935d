"""Partition of one data set among many simulated clients: the published rules, as pure functions of labels and a seed.

A rule returns sample numbers, sorted, one list for each client. No sample is in two lists; where a rule drops nothing, every
sample is in one. The same arguments give the same lists in every process.

- `dirichlet`: label shares drawn from a Dirichlet distribution, as in MOON, FedProc and FedNTD.
- `sharding`: a few shards of single labels a client, as in FedRep, FedNTD and FedPRP.
- `domain`: random samples of a domain without replacement, as in FPL.
- `long_tail`: class sizes that fall geometrically, as in CReFF and FedPRP; applied before one of the others.

Shape legend: N samples, M classes, K clients, S shards of one client.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedplcc.shared.errors import InvalidData
from fedplcc.shared.types import IntArray
from fedplcc.trainer.reproducibility.randomness import derive_seed

MAX_ATTEMPTS = 1000
"""Number of draws after which a Dirichlet partition is refused as impossible."""


def dirichlet(
    labels_N: IntArray, num_clients: int, *, alpha: float, min_size: int = 10, seed: int = 0
) -> list[IntArray]:
    """Divide all samples so that the clients' shares of each class are drawn from Dir(alpha, ..., alpha).

    A client that already holds N / K samples or more gets nothing of the classes that follow. The shares of all classes are
    drawn again until the smallest client has `min_size` samples. Which samples of a class make up the shares is drawn once,
    afterwards: sizes do not depend on it.

    Args:
        num_clients: K.
        alpha: Concentration > 0; the smaller, the fewer classes a client has.
        min_size: Samples of the smallest client, at least.

    Raises:
        InvalidData: The samples are too few, or no draw of `MAX_ATTEMPTS` gave every client enough.
    """
    num_samples = len(labels_N)
    if num_samples < num_clients * min_size:
        raise InvalidData(
            f"{num_samples} training images are too few for {num_clients} clients of {min_size} or more (min_size); "
            "ask for fewer clients or a smaller min_size"
        )
    rng = np.random.default_rng(derive_seed("partition", "dirichlet", seed))
    class_sizes_M = np.bincount(labels_N)
    for _ in range(MAX_ATTEMPTS):
        shares_MK = _drawn_shares(class_sizes_M, num_clients, alpha, rng)
        if shares_MK is not None and shares_MK.sum(axis=0).min() >= min_size:
            break
    else:
        raise InvalidData(
            f"none of {MAX_ATTEMPTS} draws gave each of {num_clients} clients {min_size} training images (min_size); "
            "ask for fewer clients, a larger alpha or a smaller min_size"
        )
    pieces: list[list[IntArray]] = [[] for _ in range(num_clients)]
    for label, shares_K in enumerate(shares_MK):
        shuffled = rng.permutation(np.flatnonzero(labels_N == label))
        for piece, part in zip(pieces, np.split(shuffled, np.cumsum(shares_K)[:-1]), strict=True):
            piece.append(part)
    return [np.sort(np.concatenate(piece)) for piece in pieces]


def _drawn_shares(class_sizes_M: IntArray, num_clients: int, alpha: float, rng: np.random.Generator) -> IntArray | None:
    """Return the samples of each class for each client `[M, K]`; None where only full clients would get a class."""
    shares_MK = np.zeros((len(class_sizes_M), num_clients), np.int64)
    held_K = np.zeros(num_clients, np.int64)
    full = class_sizes_M.sum() / num_clients
    for shares_K, size in zip(shares_MK, class_sizes_M, strict=True):
        if not size:
            continue
        p_K = rng.dirichlet(np.full(num_clients, alpha)) * (held_K < full)
        if not p_K.sum() > 0:
            return None
        cuts_K = (np.cumsum(p_K / p_K.sum()) * size).astype(np.int64)
        cuts_K[np.flatnonzero(p_K)[-1] :] = size  # the remainder of rounding goes to the last client that is not full
        shares_K[:] = np.diff(cuts_K, prepend=0)
        held_K += shares_K
    return shares_MK


def sharding(
    labels_N: IntArray, test_labels_N: IntArray, num_clients: int, *, shards: int, seed: int = 0
) -> tuple[list[IntArray], list[IntArray]]:
    """Give each client a few shards, each of a single class; test samples are divided by the same list of labels.

    Every class is split into floor(shards * K / M) shards of equal size; the first ones are larger by one where samples
    are left over. A list with every label that many times is shuffled and shortened to a multiple of K. Each client
    gets the same number of labels of it, a label perhaps twice, and for each label a random shard of the class.

    Args:
        labels_N: Class of each training sample. M counts the classes that have any.
        num_clients: K.

    Returns:
        The clients' training samples and their test samples.

    Raises:
        InvalidData: There are fewer shards than classes, or fewer samples of a class than shards of it.
    """
    present_M, sizes_M = np.unique(labels_N, return_counts=True)
    shards_per_class = shards * num_clients // max(len(present_M), 1)
    if not shards_per_class or shards_per_class * len(present_M) < num_clients:
        raise InvalidData(
            f"{num_clients} clients with {shards} shards each leave no shard for some of {len(present_M)} classes; "
            "ask for more shards"
        )
    if sizes_M.min() < shards_per_class:
        raise InvalidData(
            f"the smallest class has {sizes_M.min()} training images, too few for {shards_per_class} shards of it; "
            "ask for fewer clients or fewer shards"
        )
    rng = np.random.default_rng(derive_seed("partition", "sharding", seed))
    labels = rng.permutation(np.repeat(present_M, shards_per_class))
    num_each = len(labels) // num_clients
    labels_KS = labels[: num_each * num_clients].reshape(num_clients, num_each)
    return (
        _samples_of_shards(labels_N, labels_KS, shards_per_class, rng),
        _samples_of_shards(test_labels_N, labels_KS, shards_per_class, rng),
    )


def _samples_of_shards(
    labels_N: IntArray, labels_KS: IntArray, shards_per_class: int, rng: np.random.Generator
) -> list[IntArray]:
    """Return the samples of each client's shards; row k of `labels_KS` has the labels of client k's shards."""
    left: dict[int, list[IntArray]] = {}
    for label in np.unique(labels_KS).tolist():
        shards = np.array_split(rng.permutation(np.flatnonzero(labels_N == label)), shards_per_class)
        left[label] = [shards[i] for i in rng.permutation(shards_per_class)]
    return [np.sort(np.concatenate([left[label].pop() for label in labels])) for labels in labels_KS.tolist()]


def domain(num_samples: int, sizes_K: Sequence[int], *, seed: int = 0) -> list[IntArray]:
    """Draw samples of one domain for each client, without replacement.

    Raises:
        InvalidData: The sizes add up to more than `num_samples`.
    """
    wanted = sum(sizes_K)
    if wanted > num_samples:
        raise InvalidData(
            f"{len(sizes_K)} clients ask for {wanted} of {num_samples} training images; ask for a smaller fraction or count"
        )
    order_N = np.random.default_rng(derive_seed("partition", "domain", seed)).permutation(num_samples)
    return [np.sort(part) for part in np.split(order_N[:wanted], np.cumsum(sizes_K)[:-1])]


def even_cut(num_samples: int, num_clients: int, *, seed: int = 0) -> list[IntArray]:
    """Divide all samples at random into parts that differ by at most one.

    Test sets are divided this way: counts added over the clients are those of the whole test set.
    """
    order_N = np.random.default_rng(derive_seed("partition", "cut", seed)).permutation(num_samples)
    return [np.sort(part) for part in np.array_split(order_N, num_clients)]


def long_tail(labels_N: IntArray, num_classes: int, *, imbalance: float, seed: int = 0) -> IntArray:
    """Return the samples kept when class sizes fall geometrically, to the fraction `imbalance` of the largest.

    Class m keeps floor(n_max * imbalance^(m / (M - 1))) samples drawn at random, n_max being the size of the largest class;
    a class that has fewer keeps them all. The classes' order is that of the data set.

    Args:
        num_classes: M.
        imbalance: N_min / N_max in (0, 1]; 1 keeps everything.
        seed: Decides the samples of a class that are kept.
    """
    rng = np.random.default_rng(derive_seed("partition", "long_tail", seed))
    n_max = int(np.bincount(labels_N, minlength=1).max())
    kept = []
    for label in range(num_classes):
        size = int(n_max * imbalance ** (label / max(num_classes - 1, 1)))
        kept.append(rng.permutation(np.flatnonzero(labels_N == label))[:size])
    return np.sort(np.concatenate(kept)) if kept else np.zeros(0, np.int64)
