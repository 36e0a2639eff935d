"""What a client keeps reaches its loss, and what it keeps next is made of that and of this training."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedplcc.shared.methods.arrays import ClientState
from fedplcc.trainer.learning.training import LocalTraining
from fedplcc.trainer.models import state_arrays
from tests.unit.trainer.builders import a_config, a_model, digest, train


def trained(
    method: str, state: ClientState | None = None, alpha: float = 0.1
) -> tuple[Any, dict[str, Any], LocalTraining]:
    """The model, what it was before, and what the training came to."""
    config = a_config(method, training={"clip_norm": 10.0})
    model = a_model(config)
    before = {name: array.copy() for name, array in state_arrays(model).items()}
    _, result = train(config, model, round=2, client_state=state, scalars={"alpha": alpha})
    return model, before, result


def test_a_first_update_keeps_the_change_of_what_was_trained() -> None:
    model, before, result = trained("feddyn")
    assert list(result.losses) == ["ce", "prox"]
    assert result.client_state is not None
    assert list(result.client_state) == [name for name, _value in model.named_parameters()]
    after = state_arrays(model)
    for name, kept in result.client_state.items():
        assert kept.tobytes() == (after[name].astype(np.float64) - before[name]).astype(np.float32).tobytes()


def test_a_later_one_adds_to_it_and_trains_otherwise() -> None:
    first_model, _before, first = trained("feddyn")
    model, before, second = trained("feddyn", first.client_state)
    assert list(second.losses) == ["ce", "linear", "prox"]
    assert digest(model) != digest(first_model)
    assert first.client_state is not None
    assert second.client_state is not None
    after = state_arrays(model)
    for name, kept in second.client_state.items():
        expected = first.client_state[name] + (after[name].astype(np.float64) - before[name])
        assert kept.tobytes() == expected.astype(np.float32).tobytes()


def test_without_its_terms_a_client_trains_as_fedavgs_does_and_keeps_its_changes_all_the_same() -> None:
    model, _before, result = trained("feddyn", alpha=0.0)
    assert list(result.losses) == ["ce"]
    assert digest(model) == digest(trained("fedavg")[0])
    assert result.client_state
