"""The median of class means, of clients' class sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.methods.arithmetic.fixed_point import widened
from fedplcc.shared.methods.arrays import ArrayGroup
from fedplcc.shared.methods.folds import class_medians
from fedplcc.shared.methods.folds.class_medians import median_upload, with_medians
from fedplcc.shared.methods.heads import classsums
from fedplcc.shared.methods.heads.class_heads import ABSENT
from fedplcc.shared.methods.parts.arrays import ServerArrays
from fedplcc.shared.methods.parts.part import BeforeTraining, ServerRound
from tests.support import present

DIM, CLASSES = 4, 3
HEAD = {"weight": np.zeros((CLASSES, DIM), np.float32), "bias": np.zeros(CLASSES, np.float32)}


def upload(seed: int, counts: tuple[int, ...] = (5, 6, 4), **hyper: Any) -> Mapping[str, ArrayGroup]:
    rng, labels = np.random.default_rng(seed), np.repeat(np.arange(CLASSES), counts)
    features = (np.eye(CLASSES, DIM)[labels] * 3 + rng.normal(size=(len(labels), DIM)) / 4).astype(np.float32)
    before = BeforeTraining(features_ND=features, labels_N=labels, num_classes=CLASSES, head=HEAD, received={})
    return classsums.before_training(before, classsums.Config.model_validate({"shrinkage": 0.3, **hyper}))


def means(group: ArrayGroup) -> np.ndarray:
    found: np.ndarray = widened(group["sums"]) / np.maximum(group["counts"], 1)[:, None]
    return found


def test_a_class_has_the_median_of_the_means_of_the_clients_that_have_it() -> None:
    uploads = [upload(0, (5, 6, 0)), upload(1), upload(2, (1, 9, 2)), upload(3, (30, 1, 0))]
    found = median_upload(uploads)[classsums.SUMS]
    sent = [means(each[classsums.SUMS]) for each in uploads]
    assert found["counts"].tolist() == [41, 22, 6]
    for label, having in ((0, (0, 1, 2, 3)), (1, (0, 1, 2, 3)), (2, (1, 2))):
        expected = np.median([sent[client][label] for client in having], axis=0)
        np.testing.assert_allclose(means(found)[label], expected, atol=1e-9)


def test_the_scatter_of_one_client_is_its_own_and_of_many_their_median(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = (upload(7)[classsums.SUMS],)
    found = median_upload([{classsums.SUMS: one}])[classsums.SUMS]
    for name in one:
        np.testing.assert_allclose(widened(found[name]), widened(one[name]), atol=1e-8)
    uploads = [upload(seed) for seed in range(4)]
    whole = median_upload(uploads)[classsums.SUMS]
    monkeypatch.setattr(class_medians, "MOST_NUMBERS", 7)  # one number of the triangle at a time
    for order in (uploads, uploads[::-1]):
        again = median_upload(order)[classsums.SUMS]
        assert all(again[name].tobytes() == whole[name].tobytes() for name in whole)


@pytest.mark.parametrize("head", ["means", "lda", "ridge"])
def test_one_liar_of_four_changes_little_where_it_turns_the_sum(head: str) -> None:
    config = classsums.Config.model_validate({"head": head, "shrinkage": 0.3})
    uploads = [upload(seed, head=head) for seed in range(4)]
    sums = uploads[0][classsums.SUMS]
    lies = {**sums, "sums": (sums["sums"] * -10).astype(sums["sums"].dtype)}
    part = present(classsums.METHOD.part(ServerArrays))

    def head_of(cohort: list[Mapping[str, ArrayGroup]], which: ServerArrays) -> np.ndarray:
        step = ServerRound(
            round=1, seed=0, num_classes=CLASSES, feature_dim=DIM, uploads=cohort, arrays={}, start_head=HEAD, head=HEAD
        )
        made = which.step(step, config)
        assert made.head is not None
        assert (made.head["bias"] > ABSENT).all()
        return np.asarray((np.eye(CLASSES, DIM) @ made.head["weight"].T + made.head["bias"]).argmax(1))

    lying = [{classsums.SUMS: lies}, *uploads[1:]]
    assert head_of(uploads, part).tolist() == [0, 1, 2]
    assert head_of(lying, part).tolist() != [0, 1, 2]
    assert head_of(lying, with_medians(part)).tolist() == [0, 1, 2]


def test_another_part_stays_as_it_is() -> None:
    part = present(classsums.METHOD.part(ServerArrays))
    other = replace(part, step=lambda step, config: part.step(step, config))
    assert with_medians(other) is other
