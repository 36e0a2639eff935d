"""FedRep: what a client keeps of its model and trains in which order, and its way to FedBN and FedAvg."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods.fedrep import METHOD, Config
from fedplcc.shared.methods.parts.part import ClientEnd
from fedplcc.shared.methods.parts.phases import Phase


def a_model(value: float) -> dict[str, np.ndarray]:
    return {name: np.full(2, value, np.float32) for name in ("base.weight", "bn.weight", "classifier.weight")}


class TestParts:
    def test_a_client_keeps_its_head_and_trains_it_before_the_base(self) -> None:
        config = Config()
        assert METHOD.personal_part(config) == "head"
        assert METHOD.withheld_part(config) == "none"
        assert METHOD.phases(config) == (Phase(trains="head", epochs=10), Phase(trains="base"))
        assert METHOD.evaluated_models(config) == ("global", "local")
        assert METHOD.needed_tensor_lists(config) == ("head",)

    def test_a_head_that_is_not_uploaded_leaves_only_local_models_to_evaluate(self) -> None:
        config = Config(upload_head=False, head_epochs=4)
        assert METHOD.withheld_part(config) == "head"
        assert METHOD.phases(config)[0].epochs == 4
        assert METHOD.evaluated_models(config) == ("local",)
        assert METHOD.shares_model(config)

    def test_fedbn_is_one_setting_away(self) -> None:
        config = Config(personal="batch_norm")
        assert (METHOD.personal_part(config), METHOD.withheld_part(config)) == ("batch_norm", "none")
        assert METHOD.phases(config) == (Phase(),)
        assert METHOD.needed_tensor_lists(config) == ("batch_norm",)

    def test_without_personal_tensors_it_is_fedavg(self) -> None:
        config = Config(personal="none")
        assert (METHOD.personal_part(config), METHOD.phases(config)) == ("none", (Phase(),))
        assert METHOD.evaluated_models(config) == ("global",)
        assert METHOD.needed_tensor_lists(config) == ()


class TestState:
    def test_a_client_keeps_its_trained_tensors_and_puts_them_into_the_next_model(self) -> None:
        end = ClientEnd(
            received=a_model(0.0), trained=a_model(1.0), state=None, round=1, personal=("classifier.weight",)
        )
        state = METHOD.kept_after(end, Config())
        assert list(state) == ["classifier.weight"]
        for own in (METHOD.start_of(a_model(2.0), state, Config()), METHOD.own_model(a_model(2.0), state, Config())):
            assert own is not None
            assert {name: float(value[0]) for name, value in own.items()} == {
                "base.weight": 2.0,
                "bn.weight": 2.0,
                "classifier.weight": 1.0,
            }

    def test_a_client_that_comes_later_begins_with_the_received_head(self) -> None:
        assert METHOD.start_of(a_model(2.0), None, Config()) is None
        assert METHOD.own_model(a_model(2.0), None, Config()) is None


class TestConfiguration:
    def parsed(self, **hyper: Any) -> Any:
        return parse_run_config(
            {"run": {"method": "fedrep", "clients": ["a", "b"]}, "data": {"classes": ["x", "y"]}, "method": hyper}
        )

    @pytest.mark.parametrize("personal", ["batch_norm", "none"])
    def test_only_a_personal_head_can_stay_with_its_client(self, personal: str) -> None:
        with pytest.raises(InvalidConfig, match=r"method\.upload_head.*only a personal head can stay"):
            self.parsed(personal=personal, upload_head=False)

    @pytest.mark.parametrize("head_epochs", [0, 10_001, 1.5])
    def test_a_head_is_trained_for_one_pass_or_more(self, head_epochs: float) -> None:
        with pytest.raises(InvalidConfig, match=r"method\.head_epochs"):
            self.parsed(head_epochs=head_epochs)
