"""FedOpt: the server's recursions by hand, in float64 and as blocks, and the setting that is FedAvg."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fedplcc.shared.methods.arrays import Block
from fedplcc.shared.methods.fedopt import METHOD, Config, server_slots, slot_fold, stepped
from fedplcc.shared.methods.parts.slots import ServerView

VIEW = ServerView(round=1, num_eligible=2)
VECTORS = {
    "adam": (1.00905028, 1.01233450),
    "yogi": (1.00904988, 1.01232187),
    "adagrad": (1.00099005, 1.00134464),
    "sgdm": (1.1, 1.14),
}
"""w = 1 after changes of 0.1 and -0.05, with every hyper-parameter's default (docs/algorithms.md, rule 16.3)."""


def first_slots(config: Config) -> dict[str, Block]:
    return {name: np.array([value]) for name, value in server_slots(config).items()}


class TestRecursions:
    @pytest.mark.parametrize("server_opt", VECTORS)
    def test_two_steps_come_to_the_published_recursions_to_1e_8(self, server_opt: str) -> None:
        config = Config.model_validate({"server_opt": server_opt})
        w, slots = np.array([1.0]), first_slots(config)
        for delta, expected in zip((0.1, -0.05), VECTORS[server_opt], strict=True):
            w, slots = stepped(w, np.array([delta]), slots, config)  # type: ignore[assignment]
            assert w[0] == pytest.approx(expected, abs=1e-8)

    @pytest.mark.parametrize("server_opt", VECTORS)
    def test_a_fold_is_the_step_of_the_weighted_mean_rounded_once(self, server_opt: str) -> None:
        config = Config.model_validate({"server_opt": server_opt})
        rng = np.random.default_rng(1)
        start, ann, bob = rng.normal(size=(3, 50)).astype(np.float32)
        slots = {name: np.full(50, value, np.float32) for name, value in server_slots(config).items()}
        for _round in range(3):
            folded = slot_fold(start, iter([ann, bob]), [3.0, 1.0], slots, VIEW, config)
            mean = (3.0 * ann.astype(np.float64) + 1.0 * bob.astype(np.float64)) / 4.0
            exact = start.astype(np.float64)
            after, kept = stepped(
                exact, mean - exact, {name: slot.astype(np.float64) for name, slot in slots.items()}, config
            )
            assert folded.result.tobytes() == after.astype(np.float32).tobytes()
            assert {name: slot.tobytes() for name, slot in folded.slots.items()} == {
                name: slot.astype(np.float32).tobytes() for name, slot in kept.items()
            }
            start, slots = folded.result, dict(folded.slots)

    def test_v_begins_at_the_square_of_tau_and_m_at_nothing(self) -> None:
        for server_opt in ("adam", "yogi", "adagrad"):
            assert server_slots(Config.model_validate({"server_opt": server_opt, "adaptivity": 0.5})) == {
                "m": 0,
                "v": 0.25,
            }
        assert server_slots(Config(server_opt="sgdm")) == {"m": 0}

    def test_yogis_v_falls_no_faster_than_the_squares_and_never_below_zero(self) -> None:
        config = Config(server_opt="yogi", adaptivity=1.0)
        w, slots = np.zeros(1), first_slots(config)
        seen = [float(slots["v"][0])]
        for _step in range(2000):
            w, slots = stepped(w, np.array([0.1]), slots, config)  # type: ignore[assignment]
            seen.append(float(slots["v"][0]))
        assert all(0 < before - after <= 0.0100001 * 0.1**2 for before, after in pairwise(seen))


class TestConfig:
    def test_the_rate_is_a_hundredth_and_one_for_sgdm_unless_it_is_set(self) -> None:
        assert Config().rate == Config(server_opt="yogi").rate == 0.01
        assert Config(server_opt="sgdm").rate == 1
        assert Config(server_opt="sgdm", server_lr=0.5).rate == 0.5

    def test_the_mean_itself_keeps_no_slot_and_every_other_step_does(self) -> None:
        assert server_slots(Config.model_validate(METHOD.neutral)) == {}
        assert server_slots(Config(server_opt="sgdm", beta1=0.0)) == {}
        assert server_slots(Config(server_opt="sgdm", beta1=0.0, server_lr=0.5)) == {"m": 0}
