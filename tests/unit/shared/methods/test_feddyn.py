"""FedDyn: the regulariser by hand and by its gradient, a client's h_k, the server's h, and their agreement."""

from __future__ import annotations

import numpy as np
import pytest

from fedplcc.method_contract.client_losses import Situation, a_point, gradients, on_numpy
from fedplcc.shared.methods.feddyn import Config, client_loss, next_client_state, scalars, slot_fold
from fedplcc.shared.methods.parts.part import ClientEnd, TaskView
from fedplcc.shared.methods.parts.slots import ServerView
from fedplcc.shared.methods.step import ClientStep


def _on_numpy(situation: Situation) -> tuple[ClientStep, Config]:

    return on_numpy(POINT, situation), Config()


POINT = a_point([(1, 0)], 2, w=np.array([1.2]))


def a_situation(**changes: object) -> Situation:
    """w^t = 1, h = 0.3, alpha_k = 0.1."""
    fields = {"start": {"w": np.array([1.0])}, "kept": {"w": np.array([0.3])}, "scalars": {"alpha": 0.1}, **changes}
    return Situation(labels_B=[0], num_classes=2, **fields)  # type: ignore[arg-type]


class TestLoss:
    def test_penalty_and_gradient_are_those_worked_out_by_hand(self) -> None:
        found = gradients(client_loss, Config(), POINT, a_situation())
        assert list(found) == ["ce", "linear", "prox"]
        assert 0.1 * (found["linear"][0] + found["prox"][0]) == pytest.approx(0.038, abs=1e-12)
        slope = 0.1 * (found["linear"][1]["w"] + found["prox"][1]["w"])
        assert slope == pytest.approx(0.05, abs=1e-12)

    def test_the_coefficient_of_both_is_the_number_beside_the_task(self) -> None:
        terms = client_loss(*_on_numpy(a_situation()))
        assert {name: term.coefficient for name, term in terms.items()} == {"ce": 1, "linear": 0.1, "prox": 0.1}

    def test_a_client_that_takes_part_for_the_first_time_has_no_linear_term(self) -> None:
        assert list(client_loss(*_on_numpy(a_situation(kept={})))) == ["ce", "prox"]

    def test_with_an_alpha_of_zero_both_are_left_out(self) -> None:
        assert list(client_loss(*_on_numpy(a_situation(scalars={"alpha": 0.0})))) == ["ce"]


class TestScalars:
    def test_a_small_client_is_held_the_more_by_its_share_of_the_mean(self) -> None:
        assert scalars(TaskView(round=1, num_examples=50, mean_examples=100.0), Config()) == {"alpha": 0.02}
        assert scalars(TaskView(round=1, num_examples=200, mean_examples=100.0), Config(alpha=1.0)) == {"alpha": 0.5}

    def test_without_adapting_and_where_no_count_was_recorded_it_is_alpha(self) -> None:
        assert scalars(TaskView(round=1, num_examples=50, mean_examples=100.0), Config(adaptive=False)) == {
            "alpha": 0.01
        }
        assert scalars(TaskView(round=1, num_examples=0, mean_examples=0.0), Config()) == {"alpha": 0.01}


class TestState:
    def test_it_adds_up_the_changes_of_what_is_trained(self) -> None:
        received = {"w": np.array([1.0, 2.0], np.float32), "mean": np.zeros(1, np.float32), "n": np.array(3)}
        trained = {"w": np.array([1.5, 1.0], np.float32), "mean": np.ones(1, np.float32), "n": np.array(4)}
        first = next_client_state(
            ClientEnd(received=received, trained=trained, state=None, round=1, parameters=("w",)), Config()
        )
        again = next_client_state(
            ClientEnd(received=received, trained=trained, state=first, round=2, parameters=("w",)), Config()
        )
        assert {name: value.tolist() for name, value in first.items()} == {"w": [0.5, -1.0]}
        assert {name: value.tolist() for name, value in again.items()} == {"w": [1.0, -2.0]}
        assert again["w"].dtype == np.float32

    @pytest.mark.parametrize("evaluate", ["mean", "sent"])
    def test_the_servers_h_is_the_mean_of_all_clients_whoever_takes_part(self, evaluate: str) -> None:
        rng = np.random.default_rng(3)
        config = Config.model_validate({"evaluate": evaluate})
        start, slots = np.zeros(40, np.float32), {"h": np.zeros(40, np.float32)}
        states: dict[int, np.ndarray] = {}
        for number in range(1, 21):
            cohort = sorted(rng.choice(5, rng.integers(1, 6), replace=False).tolist())
            models = [(start + 0.01 * rng.normal(size=40)).astype(np.float32) for _ in cohort]
            for client, model in zip(cohort, models, strict=True):
                kept = {"w": states[client]} if client in states else None
                end = ClientEnd(
                    received={"w": start}, trained={"w": model}, state=kept, round=number, parameters=("w",)
                )
                states[client] = next_client_state(end, config)["w"]
            view = ServerView(round=number, num_eligible=5)
            folded = slot_fold(start, iter(models), [7.0] * len(models), slots, view, config)
            slots = dict(folded.slots)
            np.testing.assert_allclose(sum(states.values()) / 5, slots["h"], rtol=0, atol=1e-6)
            mean = np.mean(np.asarray(models, np.float64), axis=0)
            ahead = folded.result if folded.start is None else folded.start
            np.testing.assert_allclose(ahead, mean + slots["h"], rtol=0, atol=1e-6)
            assert (folded.start is None) == (evaluate == "sent")
            if folded.start is not None:
                np.testing.assert_allclose(folded.result, mean, rtol=0, atol=1e-6)
            start = ahead
