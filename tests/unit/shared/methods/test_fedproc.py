"""FedProc: values by hand and by torch's cross-entropy, the course of the shares, and centres that outlive a round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from fedplcc.method_contract.client_losses import Situation, a_point, on_numpy, values
from fedplcc.shared.methods.prototypical.fedproc import (
    METHOD,
    Config,
    carry_prototypes,
    client_loss,
    server_prototypes,
    task_share,
)
from fedplcc.shared.tensors import prototypes_to_bytes
from fedplcc.shared.types import PrototypeSet

CENTRES = PrototypeSet.of([(2, 0), (0, 5), (1, 1)], [0, 1, 2], [1, 1, 1])


def of(labels: list[int], prototypes: PrototypeSet | None = CENTRES, round_number: int = 2) -> Situation:
    return Situation(labels_B=labels, num_classes=4, prototypes=prototypes, round=round_number)


def proc(features: Any, labels: list[int], **hyper: Any) -> float:
    return values(client_loss, Config(**hyper), a_point(features, 4), of(labels))["proc"]


class TestValues:
    @pytest.mark.parametrize(("similarity", "expected"), [("dot", 2.374459), ("cosine", 1.307876)])
    def test_the_value_of_the_page_of_algorithms(self, similarity: str, expected: float) -> None:
        if similarity == "cosine":
            # cos = 0.6, 0.8, 0.98995
            by_hand = np.log(np.exp([0.6, 0.8, 7 / np.sqrt(50)]).sum()) - 0.6
            assert by_hand == pytest.approx(expected, abs=5e-7)
        assert proc([(3, 4)], [0], similarity=similarity) == pytest.approx(expected, abs=5e-7)

    @pytest.mark.parametrize("seed", range(3))
    def test_with_all_classes_known_it_is_torchs_cross_entropy_of_the_similarities(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        centres, features = rng.normal(size=(4, 5)).astype(np.float32), rng.normal(size=(6, 5))
        labels = [0, 3, 2, 1, 1, 0]
        situation = of(labels, PrototypeSet.of(centres, range(4), np.ones(4)))
        units = normalize(torch.tensor(centres, dtype=torch.float64))
        for similarity, rows in (("dot", torch.tensor(features)), ("cosine", normalize(torch.tensor(features)))):
            found = values(
                client_loss, Config.model_validate({"similarity": similarity}), a_point(features, 4), situation
            )
            assert found["proc"] == pytest.approx(cross_entropy(rows @ units.T, torch.tensor(labels)).item(), rel=1e-6)

    def test_a_sample_of_an_unknown_class_adds_nothing_and_counts(self) -> None:
        for similarity in ("dot", "cosine"):
            alone, beside = (proc([(3, 4)] * len(ys), ys, similarity=similarity) for ys in ([0], [0, 3]))
            assert beside == pytest.approx(alone / 2, rel=1e-12)

    def test_a_zero_feature_has_a_product_and_no_cosine(self) -> None:
        assert proc([(0, 0)], [0]) == pytest.approx(np.log(3))
        assert proc([(0, 0)], [0], similarity="cosine") == 0


class TestShares:
    def test_they_sum_to_1_and_the_cross_entropys_grows_to_it(self) -> None:
        found = []
        for number in range(1, 13):
            terms = client_loss(on_numpy(a_point([(3, 4)], 4), of([0], round_number=number)), Config())
            found.append([term.coefficient for term in terms.values()])
        assert [shares[0] for shares in found[1:]] == [(number - 1) / 10 for number in range(2, 11)] + [1, 1]
        assert all(sum(shares) == pytest.approx(1) for shares in found)
        assert [len(shares) for shares in found[1:]] == [2] * 9 + [1, 1]

    def test_a_length_of_its_own_takes_the_place_of_all_rounds(self) -> None:
        assert [task_share(number, 100, Config(anneal_rounds=4)) for number in range(1, 7)] == [
            0,
            0.25,
            0.5,
            0.75,
            1,
            1,
        ]
        assert [task_share(number, 100, Config(anneal_rounds=0)) for number in (1, 2, 50)] == [1, 1, 1]
        assert task_share(100, 100, Config()) == 0.99

    def test_only_a_run_with_a_length_of_its_own_may_go_on_to_more_rounds(self) -> None:
        assert Config().length_key == "anneal_rounds"
        assert Config(anneal_rounds=0).length_key is Config(anneal_rounds=5).length_key is None

    def test_without_a_centre_the_loss_is_the_cross_entropy_alone_in_any_round(self) -> None:
        for number in (1, 2, 9):
            terms = client_loss(on_numpy(a_point([(3, 4)], 4), of([0], None, number)), Config())
            assert {name: term.coefficient for name, term in terms.items()} == {"ce": 1}


class TestServer:
    def test_a_centre_is_the_mean_of_all_samples_of_its_class(self) -> None:
        clients = [PrototypeSet.of([(1, 0), (4, 4)], [0, 2], [3, 5]), PrototypeSet.of([(5, 8)], [0], [1])]
        made = server_prototypes(clients, 3, Config())
        assert made.class_ids.tolist() == [0, 2]
        assert made.vectors.tolist() == [[2, 2], [4, 4]]

    def test_a_class_that_nobody_reported_keeps_its_centre_for_as_long_as_it_takes(self) -> None:
        config, sets = Config(), [PrototypeSet.of([(7, 7)], [1], [2])]
        first = METHOD.global_prototypes(sets, CENTRES, 4, config)
        assert first.class_ids.tolist() == [0, 1, 2]
        assert first.vectors.tolist() == [[2, 0], [7, 7], [1, 1]]
        second = METHOD.global_prototypes([PrototypeSet.empty()], first, 4, config)
        assert prototypes_to_bytes(second) == prototypes_to_bytes(first)

    def test_what_everybody_reports_leaves_nothing_of_the_round_before(self) -> None:
        made = replace(CENTRES, vectors=CENTRES.vectors + 1)
        assert prototypes_to_bytes(carry_prototypes(made, CENTRES, len(CENTRES), Config())) == prototypes_to_bytes(made)
