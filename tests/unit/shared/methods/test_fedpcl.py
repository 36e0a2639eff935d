"""FedPCL: values by hand and by torch's cross-entropy, what the terms apply to, and the sets that the server completes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity, cross_entropy

from fedplcc.method_contract.client_losses import Situation, a_point, values
from fedplcc.shared.methods.prototypical.fedpcl import Config, client_loss, server_prototypes
from fedplcc.shared.types import PrototypeSet

CLIENTS = (PrototypeSet.of([(1, 0), (0.6, 0.8)], [0, 1], [5, 1]), PrototypeSet.of([(0.8, 0.6), (0, 1)], [0, 1], [1, 9]))
SENT = server_prototypes(CLIENTS, 3, Config())


def of(labels: list[int], prototypes: PrototypeSet = SENT) -> Situation:
    return Situation(labels_B=labels, num_classes=3, prototypes=prototypes)


def terms(features: Any, labels: list[int], prototypes: PrototypeSet = SENT, **hyper: Any) -> dict[str, float]:
    return values(client_loss, Config(**hyper), a_point(features, 3), of(labels, prototypes))


class TestValues:
    def test_the_values_of_the_page_of_algorithms(self) -> None:
        found = terms([(1, 0)], [0])
        assert found["global"] == pytest.approx(1.19149e-4, rel=2e-5)
        assert found["local"] == pytest.approx((3.293078e-3 + 1.08801e-5) / 2, rel=1e-5)
        one_by_one = [terms([(1, 0)], [0], server_prototypes([each], 3, Config())) for each in CLIENTS]
        assert [each["local"] for each in one_by_one] == pytest.approx([3.293078e-3, 1.08801e-5], rel=1e-5)
        assert all(each["global"] == each["local"] for each in one_by_one), "the average of one client is its own"

    @pytest.mark.parametrize("tau", [0.07, 1.0])
    @pytest.mark.parametrize("seed", range(3))
    def test_every_contrast_is_torchs_cross_entropy_of_the_cosines(self, seed: int, tau: float) -> None:
        rng = np.random.default_rng(seed)
        sets = [PrototypeSet.of(rng.normal(size=(3, 4)), range(3), [1, 2, 3]) for _ in range(4)]
        sent, labels = server_prototypes(sets, 3, Config()), [0, 2, 1, 1, 0]
        features = rng.normal(size=(5, 4))
        found = terms(features, labels, sent, tau=tau)
        groups = torch.tensor(sent.vectors, dtype=torch.float64).reshape(5, 3, 4)
        expected = [
            cross_entropy(
                cosine_similarity(torch.tensor(features)[:, None], rows[None], -1) / tau, torch.tensor(labels)
            ).item()
            for rows in groups
        ]
        assert found["global"] == pytest.approx(expected[-1], rel=1e-6)
        assert found["local"] == pytest.approx(np.mean(expected[:-1]), rel=1e-6)

    def test_a_sample_of_an_unknown_class_and_a_zero_feature_add_nothing_and_count(self) -> None:
        alone = terms([(1, 0.5)], [0], tau=1.0)
        for beside in (terms([(1, 0.5), (1, 0.5)], [0, 2], tau=1.0), terms([(1, 0.5), (0, 0)], [0, 1], tau=1.0)):
            assert {name: 2 * beside[name] for name in ("global", "local")} == pytest.approx(
                {name: alone[name] for name in ("global", "local")}, rel=1e-12
            )

    def test_the_defaults_are_the_papers(self) -> None:
        assert (Config().tau, Config().lambda1, Config().lambda2) == (0.07, 1, 1)


class TestServer:
    def test_it_sends_each_clients_means_and_then_their_plain_averages(self) -> None:
        assert SENT.group_ids.tolist() == [0, 0, 1, 1, -1, -1]
        assert SENT.class_ids.tolist() == [0, 1] * 3
        np.testing.assert_allclose(
            SENT.vectors, [(1, 0), (0.6, 0.8), (0.8, 0.6), (0, 1), (0.9, 0.3), (0.3, 0.9)], rtol=1e-6
        )

    def test_a_class_that_a_client_lacks_is_the_average_over_the_others(self) -> None:
        sets = [
            PrototypeSet.of([(1, 0)], [2], [1]),
            PrototypeSet.of([(2, 2), (3, 0)], [0, 2], [1, 1]),
            PrototypeSet.of([(4, 4)], [0], [7]),
        ]
        made = server_prototypes(sets, 4, Config())
        assert made.class_ids.tolist() == [0, 2] * 4
        assert made.vectors.reshape(4, 2, 2).tolist() == [
            [[3, 3], [1, 0]],
            [[2, 2], [3, 0]],
            [[4, 4], [2, 0]],
            [[3, 3], [2, 0]],
        ]
