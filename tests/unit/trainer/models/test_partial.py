"""What of a timm model is trained is its state; the rest of the backbone is as every site has it, and stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import InvalidConfig, InvalidModel, WeightsMissing
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.models import build_model, load_arrays, state_arrays
from fedplcc.trainer.models.cut import cut
from fedplcc.trainer.models.partial import trained_layers
from fedplcc.trainer.models.timm_backbone import timm_backbone
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.weights.store import Source, WeightsStore
from tests.support.later import later
from tests.unit.trainer.builders import a_config, some_data, some_prototypes
from tests.unit.trainer.builders import train as train_round

timm = later("timm")

VIT, CONV = "timm:test_vit3", "timm:test_resnet"


@pytest.fixture(scope="module")
def consent(tmp_path_factory: pytest.TempPathFactory) -> Consent:
    """A site that keeps both backbones."""
    store = WeightsStore(tmp_path_factory.mktemp("weights"))
    for name in (VIT, CONV):
        torch.manual_seed(3)
        made: Any = timm.create_model(name.removeprefix("timm:"), num_classes=0)
        arrays = {key: tensor.numpy() for key, tensor in made.state_dict().items()}
        store.add(arrays, name=name.removeprefix("timm:"), model=name, source=Source(place="here"))
    return Consent(weights=store)


def config_of(consent: Consent, model: str, train: str, method: str = "fedavg", **options: Any) -> RunConfig:
    known = consent.weights.find(model.removeprefix("timm:"))
    assert known is not None
    section = {"name": model, "weights": known.name, "weights_sha256": known.sha256, "options": options}
    return a_config(method, model=section, data={"image_size": 32}, training={"train": train})


def built(consent: Consent, config: RunConfig, *, with_weights: bool = True) -> Any:
    return build_model(config.model, 3, 32, 0, with_weights=with_weights, consent=consent, train=config.training.train)


def trained(model: Any, config: RunConfig, data: DeviceImages) -> None:
    train_round(config, model, data, prototypes=some_prototypes(dim=model.feature_dim), round=2)


@pytest.mark.parametrize(
    ("model", "train"),
    [(CONV, "head"), (CONV, "norm"), (CONV, "last:1"), (CONV, "last:2"), (VIT, "last:1"), (VIT, "norm")],
)
@pytest.mark.parametrize("method", ["fedplcc", "fedrep"])
def test_only_what_is_trained_is_the_models_state_and_moves(
    model: str, train: str, method: str, consent: Consent
) -> None:
    config = config_of(consent, model, train, method, hidden_dim=8)
    made = built(consent, config)
    before = state_arrays(made)
    names = [name for name in before if name.startswith("backbone.")]
    assert {"hidden.0.weight", "classifier.weight"} < set(before)
    assert bool(names) == (train != "head")
    whole = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    trained(made, config, some_data(config=config))
    moved = {name for name, tensor in made.state_dict().items() if not torch.equal(tensor, whole[name])}
    assert moved <= set(before)
    assert not names or any(name.startswith("backbone.") for name in moved)


@pytest.mark.parametrize("train", ["head", "norm", "lora", "last:1"])
def test_what_is_trained_computes_the_same_in_a_run_of_another_seed(train: str, consent: Consent) -> None:
    config = config_of(consent, VIT, train, hidden_dim=8)
    model, images = built(consent, config), some_data(config=config)
    trained(model, config, images)
    other: Any = build_model(config.model, 3, 32, 1, with_weights=True, consent=consent, train=train)
    load_arrays(other, state_arrays(model))
    x, _ = next(images.in_order(20))
    with torch.no_grad():
        assert torch.equal(other.eval()(x), model.eval()(x))


@pytest.mark.parametrize(("model_name", "train"), [(CONV, "head"), (CONV, "last:2"), (VIT, "last:1"), (VIT, "last:3")])
def test_frozen_layers_give_the_same_for_images_and_for_what_they_made_of_them(
    model_name: str, train: str, consent: Consent
) -> None:
    config = config_of(consent, model_name, train, hidden_dim=8)
    model, images = built(consent, config).eval(), some_data(20, config)
    x, _ = next(images.in_order(20))
    rows = model.frozen(x)
    with torch.no_grad():
        assert torch.equal(model(x), model(rows))
        assert torch.equal(model.frozen(x)[3:7], model.frozen(x[3:7])), "whatever is in the batch"
    of_features = images.with_features(rows.numpy()[:, None])
    other = built(consent, config)
    trained(model, config, images)
    trained(other, config, of_features)
    assert all(np.array_equal(array, state_arrays(other)[name]) for name, array in state_arrays(model).items())


@pytest.mark.parametrize("train", ["last:1", "last:2", "last:4"])
@pytest.mark.parametrize("name", [CONV, VIT])
def test_a_backbone_that_is_cut_computes_what_it_did_and_loses_no_tensor(name: str, train: str) -> None:
    backbone, _ = timm_backbone(name.removeprefix("timm:"), 32, None)
    backbone.eval()
    state, images = set(backbone.state_dict()), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        before = backbone(images)
        front, rest, width = cut(backbone, trained_layers(backbone, train, name), 32, name)
        rows = front(images)
        assert rows.shape == (2, width)
        torch.testing.assert_close(rest(rows), before, rtol=0, atol=1e-6)
    assert {*front.state_dict(), *rest.state_dict()} == state


class _Two(torch.nn.Module):
    """Hands two tensors on to its last layer, or decides by values."""

    def __init__(self, *, decides: bool) -> None:
        super().__init__()
        self.first, self.last, self.decides = torch.nn.Conv2d(3, 4, 3), torch.nn.Bilinear(4, 4, 2), decides

    def forward(self, x: torch.Tensor) -> Any:
        pooled = self.first(x).mean((2, 3))
        if self.decides and pooled.sum() > 0:
            return self.last(pooled, pooled)
        return self.last(pooled, pooled.relu())


@pytest.mark.parametrize(("decides", "why"), [(False, "2 tensors go from"), (True, "control flow")])
def test_a_backbone_that_has_no_one_place_to_cut_is_refused_with_the_reason(decides: bool, why: str) -> None:
    model = _Two(decides=decides)
    with pytest.raises(InvalidModel, match=why):
        cut(model, frozenset({model.last}), 8, "two")


def test_above_frozen_layers_statistics_of_batch_normalisation_stay(consent: Consent) -> None:
    for train, moves in (("last:2", False), ("norm", True)):
        config = config_of(consent, CONV, train)
        model = built(consent, config)
        before = state_arrays(model)
        trained(model, config, some_data(config=config))
        moved = {name for name, array in state_arrays(model).items() if not np.array_equal(array, before[name])}
        assert any(name.endswith("running_mean") for name in before)
        assert any(name.endswith("running_mean") for name in moved) == moves


def test_the_first_model_is_the_same_whether_the_backbone_is_there_already_or_not(consent: Consent) -> None:
    config = config_of(consent, CONV, "head", hidden_dim=9)
    fresh = Consent(weights=consent.weights, code=frozenset({"a.fresh:one"}))
    first, again = state_arrays(built(fresh, config)), state_arrays(built(fresh, config))
    assert all(np.array_equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize(("norm", "power"), [("l2", 1.0), ("sqrt_l2", 0.5)])
def test_features_are_normalised_as_the_options_say(norm: str, power: float, consent: Consent) -> None:
    config = config_of(consent, CONV, "head", hidden_dim=0, feature_norm=norm)
    model = built(consent, config).eval()
    rows = torch.randn(5, model.feature_dim, generator=torch.Generator().manual_seed(0))
    wanted = rows.sign() * rows.abs() ** power
    torch.testing.assert_close(model.features(rows), wanted / wanted.norm(dim=1, keepdim=True))


def test_layers_that_a_model_has_not_are_refused(consent: Consent) -> None:
    for train in ("last:5", "last:9"):
        with pytest.raises(InvalidModel, match="has 5 groups of layers"):
            built(consent, config_of(consent, CONV, train))


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"model": {"name": "cnn4"}, "training": {"train": "head"}}, "leaves a backbone as every site has it"),
        ({"training": {"train": "last:0"}}, "training.train"),
        ({"training": {"augment": ["flip"], "views": 1}}, "features are computed once"),
        ({"training": {"train": "heads"}}, "training.train"),
    ],
)
def test_what_cannot_be_trained_so_is_refused_with_the_configuration(sections: Any, key: str) -> None:
    with pytest.raises(InvalidConfig, match=key):
        a_config(**sections)


@pytest.mark.parametrize(
    "extra",
    [
        {"training": {"augment": ["flip"]}},
        {"training": {"adversarial": {}}},
        {"evaluation": {"attacks": ["fgsm"]}},
        {"training": {"augment": ["flip", "other.package:change"], "views": 2}},
    ],
)
def test_what_changes_images_is_refused_where_features_are_computed_once(extra: Any, consent: Consent) -> None:
    document = config_of(consent, CONV, "head").model_dump(mode="json")
    for section, values in extra.items():
        document[section] |= values
    with pytest.raises(InvalidConfig, match="computes features once"):
        a_config(**{name: document[name] for name in ("model", "training", "evaluation")})


def test_a_site_without_the_backbone_makes_no_model(consent: Consent, tmp_path: Path) -> None:
    for train in ("head", "norm"):
        config = config_of(consent, CONV, train)
        with pytest.raises(WeightsMissing):
            built(Consent(weights=WeightsStore(tmp_path)), config, with_weights=False)
