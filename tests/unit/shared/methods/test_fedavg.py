"""FedAvg: cross-entropy on the client, the sample-weighted mean on the server."""

from __future__ import annotations

import numpy as np
import pytest

from fedplcc.shared.methods.arrays import Block
from fedplcc.shared.methods.config import fold_weights
from fedplcc.shared.methods.fedavg import Config, client_loss, fold
from fedplcc.shared.types import PrototypeSet
from tests.support.mini_batch import a_step


def test_the_loss_is_the_cross_entropy_alone() -> None:
    prototypes = PrototypeSet.of([(1, 0)], [0], [1])
    step = a_step([(2.0, 0.0), (0.0, 0.0)], [0, 1], prototypes)
    terms = client_loss(step, Config())
    assert list(terms) == ["ce"]
    assert terms["ce"].value == pytest.approx((np.log(1 + np.exp(-2)) + np.log(2)) / 2)


def test_clients_weigh_as_many_samples_as_they_have() -> None:
    blocks = [np.array([1.0], np.float32), np.array([5.0], np.float32)]
    folded = fold(lambda: np.zeros(1, np.float32), iter(blocks), fold_weights([30, 10], Config()), Config())
    assert folded.tolist() == [2.0]


def test_clients_weigh_alike_when_asked() -> None:
    config = Config(averaging="equal")
    blocks = [np.array([1.0], np.float32), np.array([5.0], np.float32)]
    assert fold(lambda: np.zeros(1, np.float32), iter(blocks), fold_weights([30, 10], config), config).tolist() == [3.0]


def test_the_model_before_the_round_is_not_even_read() -> None:
    def never_called() -> Block:
        raise AssertionError("the old model was read")

    assert fold(never_called, iter([np.array([1.0, 2.0], np.float32)]), [7.0], Config()).tolist() == [1.0, 2.0]
