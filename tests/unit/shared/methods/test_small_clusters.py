"""Small clusters that are merged with the nearest large one of their class."""

from __future__ import annotations

import numpy as np

from fedplcc.shared.methods.arithmetic.finch import Clusters
from fedplcc.shared.methods.prototypes import ClusterConfig, local_clusters, merged_clusters


def clusters(centres: list[list[float]], weights: list[float]) -> Clusters:
    labels = np.repeat(np.arange(len(weights)), [int(weight) for weight in weights])
    return Clusters(np.array(centres, np.float32), np.array(weights), np.append(labels, -1), 1)


def test_a_small_cluster_joins_the_nearest_large_one_by_its_samples() -> None:
    found = merged_clusters(clusters([[1, 0], [0, 1], [4, 1], [1, 5]], [6, 4, 2, 1]), 3)
    np.testing.assert_allclose(found.centres_CD, [[(6 + 8) / 8, 2 / 8], [1 / 5, (4 + 5) / 5]])
    assert found.weights_C.tolist() == [8, 5]
    assert np.bincount(found.labels_N + 1).tolist() == [1, 8, 5]


def test_all_become_one_where_none_is_large_and_nothing_changes_where_all_are() -> None:
    few = clusters([[1, 0], [0, 1]], [2, 1])
    assert merged_clusters(few, 3).weights_C.tolist() == [3]
    assert merged_clusters(few, 1) is few


def test_no_prototype_is_below_the_size_and_merging_excludes_fewer() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(120, 8)).astype(np.float32), np.repeat([0, 1, 2], [80, 38, 2])
    reports = {
        rule: local_clusters(
            features, labels, 3, ClusterConfig(partition="first", min_cluster_size=5, small_clusters=rule)
        )
        for rule in ("withhold", "merge")
    }
    assert all(report.prototypes.weights.min() >= 5 for report in reports.values())
    assert reports["merge"].num_excluded == 2, "the class of two samples stays on the client"
    assert reports["withhold"].num_excluded > 2
