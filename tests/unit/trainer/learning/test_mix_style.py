"""MixStyle: what it does to maps, which layers do it and when, and where its draws come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.tables.mix_style import MixStyleSettings
from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.methods import METHODS
from fedplcc.trainer.learning.attacks import ImageAttack
from fedplcc.trainer.learning.evaluation import collect_features
from fedplcc.trainer.learning.mix_style import EPSILON, MixStyle, channel_statistics, mixed
from fedplcc.trainer.learning.phases import planned_phases
from tests.unit.trainer.builders import a_config, a_model, digest, some_data, train

ALWAYS = MixStyleSettings(probability=1.0)


def maps(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3 + 1


def trained(method: str = "fedavg", *, round: int = 1, client_id: str = "a", **sections: Any) -> str:
    return digest(train(run_config(method, **sections), round=round, client_id=client_id)[0])


def run_config(method: str = "fedavg", **sections: Any) -> RunConfig:
    return a_config(method, **{"model": {"name": "resnet10", "stem": "cifar3x3"}, **sections})


# -- The mix -----------------------------------------------------------------------------------------------------------


def test_statistics_are_numpys_of_each_map() -> None:
    x = maps(5, 7, 4, 6)
    mean, deviation = channel_statistics(x)
    np.testing.assert_allclose(mean, x.numpy().mean((2, 3)), atol=1e-5)
    np.testing.assert_allclose(deviation, np.sqrt(x.numpy().var((2, 3)) + EPSILON), atol=1e-5)


def test_statistics_of_the_mixed_maps_are_the_mix() -> None:
    x, share = maps(5, 7, 8, 8), torch.tensor([0.0, 0.2, 0.5, 0.9, 1.0])
    own, others = channel_statistics(x), channel_statistics(maps(5, 7, 8, 8, seed=1) * 4)
    found = mixed(x, share, own, others)
    for found_BC, mine_BC, theirs_BC in zip(channel_statistics(found), own, others, strict=True):
        wanted_BC = share[:, None] * mine_BC + (1 - share[:, None]) * theirs_BC
        np.testing.assert_allclose(found_BC, wanted_BC, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[4], x[4], atol=1e-5)
    order = x.flatten(2).argsort(-1)
    assert torch.equal(found.flatten(2).argsort(-1), order), "the picture stays, its style changes"


def test_the_gradient_goes_through_the_map_and_not_through_its_statistics() -> None:
    x = maps(3, 2, 4, 4).requires_grad_()
    own, others = channel_statistics(x), channel_statistics(maps(3, 2, 4, 4, seed=1))
    assert not own[0].requires_grad
    share = torch.tensor([0.3, 0.6, 0.1])
    mixed(x, share, own, others).sum().backward()
    scale = (share[:, None] * own[1] + (1 - share[:, None]) * others[1]) / own[1]
    assert x.grad is not None
    np.testing.assert_allclose(x.grad, scale[:, :, None, None].expand_as(x), rtol=1e-5)


@pytest.mark.parametrize("x", [maps(4, 3, 1, 1), torch.zeros(4, 3, 5, 5), maps(4, 3, 5, 5).half()])
def test_a_map_of_one_value_or_without_a_slope_or_of_lower_precision_is_mixed(x: torch.Tensor) -> None:
    found = MixStyle(ALWAYS, 0).apply(x)
    assert (found.dtype, found.shape) == (x.dtype, x.shape)
    assert torch.isfinite(found).all()


def test_others_are_images_of_the_batch_and_shares_come_from_a_beta_distribution() -> None:
    """Images of constant maps: what is left of each is the mix of two means."""
    x = torch.arange(64.0)[:, None, None, None].expand(64, 1, 3, 3) * 100
    found = MixStyle(ALWAYS.model_copy(update={"alpha": 1e-3}), 3).apply(x)[:, 0, 0, 0] / 100
    # With so small an alpha, nearly all shares are 0 or 1: each image keeps its mean, or has that of another one.
    assert ((found - found.round()).abs() < 0.01).sum() >= 60
    assert 16 <= (found.round() == torch.arange(64.0)).sum() <= 48
    half = MixStyle(ALWAYS.model_copy(update={"alpha": 100.0}), 3).apply(x)[:, 0, 0, 0] / 100
    other = 2 * half - torch.arange(64.0)
    assert (other > -16).all()
    assert (other < 80).all()


def test_a_batch_is_mixed_with_the_probability() -> None:
    one, x = MixStyle(MixStyleSettings(probability=0.3), 0), maps(4, 2, 3, 3)
    is_mixed = [not torch.equal(one.apply(x), x) for _ in range(400)]
    assert 80 <= sum(is_mixed) <= 160


@pytest.fixture
def mixed_channels(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Channels of every batch of maps that is given to be mixed."""
    seen: list[int] = []
    apply = MixStyle.apply

    def noted(mixing: MixStyle, x_BCHW: torch.Tensor) -> torch.Tensor:
        seen.append(x_BCHW.shape[1])
        return apply(mixing, x_BCHW)

    monkeypatch.setattr(MixStyle, "apply", noted)
    return seen


# -- Where and when ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "blocks"), [("resnet10", 1), ("resnet18", 2)])
def test_the_stem_and_the_ends_of_the_first_two_stages_mix(name: str, blocks: int, mixed_channels: list[int]) -> None:
    model = a_model(run_config(model={"name": name, "stem": "cifar3x3"})).train()
    parts = model.early_parts
    assert parts == (model.stem, model.stages[blocks - 1], model.stages[2 * blocks - 1])
    with MixStyle(ALWAYS, 0).of(model, name):
        model.features(maps(2, 3, 16, 16))
        assert mixed_channels == [64, 64, 128]
        model.eval()
        model.features(maps(2, 3, 16, 16))
    model.train()
    model.features(maps(2, 3, 16, 16))
    assert mixed_channels == [64, 64, 128], "in training mode, within the block"


def test_a_model_without_such_parts_is_refused() -> None:
    with pytest.raises(InvalidModel, match=r"mixes features of resnet10 and resnet18, and the model is 'm:Net'"):
        MixStyle(ALWAYS, 0).of(nn.Linear(2, 2), "m:Net").__enter__()


def test_attacks_prototypes_and_reference_models_see_nothing_mixed(mixed_channels: list[int]) -> None:
    mixing = {"mix_style": {"probability": 1.0}}
    trained("fedavg", training=mixing)
    plain = len(mixed_channels)
    assert plain == 3 * 3, "three places in each of three steps"
    trained("fedavg", training={**mixing, "adversarial": {"steps": 2}})
    trained("fedntd", training=mixing)
    assert len(mixed_channels) == 3 * plain
    config = run_config("fedplcc", training=mixing)
    collect_features(a_model(config), some_data(12, config), config)
    attack = ImageAttack.named("fgsm", 0.1, some_data(12, config))
    attack.changed(a_model(config), *some_data(12, config).batch(torch.arange(4)))
    assert len(mixed_channels) == 3 * plain


def test_a_phase_that_trains_the_head_alone_mixes_nothing(mixed_channels: list[int]) -> None:
    config = run_config("fedrep", training={"mix_style": {}})
    phases = planned_phases(a_model(config), config, 12)
    trained("fedrep", training={"mix_style": {}})
    assert len(mixed_channels) == 3 * sum(phase.steps for phase in phases if phase.trains != "head")
    assert any(phase.trains == "head" for phase in phases)


# -- Draws -------------------------------------------------------------------------------------------------------------


def test_draws_follow_from_seed_round_and_client() -> None:
    mixing: dict[str, Any] = {"training": {"mix_style": {}}}
    first = trained(**mixing)
    assert first == trained(**mixing)
    others = {trained(round=2, **mixing), trained(client_id="b", **mixing), trained()}
    assert len(others | {first}) == 4


@pytest.mark.parametrize("method", ["fedavg", "fedplcc", "moon", "fcclplus"])
def test_methods_train_on_mixed_features(method: str) -> None:
    uses_public = METHODS[method].uses_public(METHODS[method].config())
    public: dict[str, Any] = {"public": {"data": "digits:mnist"}} if uses_public else {}
    mixing: Any = {"training": {"mix_style": {"probability": 1.0}, "local_steps": 2}}
    _, result = train(run_config(method, **mixing, **public))
    assert np.isfinite(list(result.losses.values())).all()
