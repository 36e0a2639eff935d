"""`timm:NAME`, on the tiny models that timm has for tests; nothing is downloaded."""

import sys
from typing import Any

import pytest
import torch
from torch import nn

from fedplcc.shared.config.tables.model import ModelSection, TimmOptions
from fedplcc.shared.errors import InvalidModel, WeightsMissing
from fedplcc.trainer.models import build_model as strictly_build_model
from fedplcc.trainer.models import head_names, load_arrays, state_arrays
from fedplcc.trainer.models.timm_backbone import TimmModel, timm_model
from fedplcc.trainer.owner.consent import Consent
from tests.support.later import later
from tests.unit.trainer.builders import digest

timm = later("timm")

VIT, CONV = "timm:test_vit3", "timm:test_resnet"


def build_model(
    name: str, image_size: int = 32, seed: int = 0, num_classes: int = 7, with_weights: bool = True, **options: Any
) -> Any:
    """Loosely typed: tests reach into layers."""
    section = ModelSection(name=name, options=options)
    return strictly_build_model(
        section, num_classes, image_size, seed, with_weights=with_weights, consent=Consent.to(section)
    )


def theirs(name: str, **arguments: Any) -> Any:
    """timm's own model."""
    sized: dict[str, Any] = {"img_size": 32} if name == VIT else {}
    return timm.create_model(name.removeprefix("timm:"), **arguments, **sized)


def problem(name: str, image_size: int = 32, **options: Any) -> str:
    with pytest.raises(InvalidModel) as caught:
        build_model(name, image_size, **options)
    assert "\n" not in caught.value.detail
    return caught.value.detail


@pytest.mark.parametrize("name", [VIT, CONV])
@pytest.mark.parametrize("image_size", [32, 48])
def test_logits_are_the_classifier_of_the_rectified_hidden_layer(name: str, image_size: int) -> None:
    model = build_model(name, image_size, hidden_dim=24).eval()
    x = torch.randn(3, 3, image_size, image_size, generator=torch.Generator().manual_seed(0))
    features = model.features(x)
    assert features.shape == (3, 24)
    assert features.min() == 0
    assert features.max() > 0
    assert torch.equal(model(x), model.classifier(features))
    assert torch.equal(features, torch.relu(model.hidden[0](model.backbone(x))))


def test_without_a_hidden_layer_the_features_are_the_backbones_and_may_be_negative() -> None:
    model = build_model(VIT, hidden_dim=0).eval()
    features = model.features(torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert features.shape == (3, 96)
    assert features.min() < 0


@pytest.mark.parametrize("name", [VIT, CONV])
def test_the_parameters_are_timms_and_the_heads(name: str) -> None:
    backbone = theirs(name, num_classes=0)
    count = sum(parameter.numel() for parameter in backbone.parameters())
    head = (backbone.num_features + 1) * 128 + 129 * 7
    assert sum(parameter.numel() for parameter in build_model(name).parameters()) == count + head


# Weights


def weights_of(name: str, seed: int = 3, **arguments: Any) -> dict[str, torch.Tensor]:
    """A backbone as a store has it, for the size that the model was trained with."""
    torch.manual_seed(seed)
    made: Any = timm.create_model(name.removeprefix("timm:"), num_classes=0, **arguments)
    return dict(made.state_dict())


def begun(name: str, weights: dict[str, torch.Tensor], image_size: int = 32) -> TimmModel:
    return timm_model(name.removeprefix("timm:"), 7, image_size, TimmOptions(), weights)


def test_weights_are_loaded_under_the_new_head_and_fitted_to_the_image_size() -> None:
    weights, drawn = weights_of(VIT), build_model(VIT)
    model = begun(VIT, weights)
    for name, tensor in model.backbone.state_dict().items():
        assert tensor.shape == drawn.backbone.state_dict()[name].shape
        if name != "pos_embed":
            assert torch.equal(tensor, weights[name])
    assert model.backbone.state_dict()["pos_embed"].shape != weights["pos_embed"].shape
    torch.manual_seed(0)
    first = begun(CONV, weights_of(CONV))
    torch.manual_seed(0)
    assert digest(begun(CONV, weights_of(CONV))) == digest(first), "the head is drawn"


def test_weights_of_another_model_are_named() -> None:
    with pytest.raises(InvalidModel, match=r"of another model than 'timm:test_resnet': they differ in"):
        begun(CONV, weights_of(VIT))
    lacking = weights_of(VIT)
    del lacking["blocks.3.mlp.fc1.weight"]
    with pytest.raises(InvalidModel, match=r"they differ in blocks\.3\.mlp\.fc1\.weight"):
        begun(VIT, lacking)


def test_a_model_that_is_loaded_whole_needs_no_weights() -> None:
    section = ModelSection(name=CONV, weights="mine", weights_sha256="0" * 64)
    received = strictly_build_model(section, 7, 32, 0, with_weights=False)
    load_arrays(received, state_arrays(begun(CONV, weights_of(CONV))))
    with pytest.raises(WeightsMissing):
        strictly_build_model(section, 7, 32, 0)


# Mistakes


@pytest.mark.parametrize(
    ("name", "image_size"), [("timm:test_vit3", 8), ("timm:test_vit", 33), ("timm:test_convnext", 8)]
)
def test_images_that_a_model_does_not_take_are_a_sentence(name: str, image_size: int) -> None:
    sentence = problem(name, image_size)
    assert name in sentence
    assert str(image_size) in sentence
    assert "image" in sentence


class Maps(nn.Module):
    """A backbone that keeps its maps, and a buffer that cannot travel."""

    def __init__(self, is_pooled: bool) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.is_pooled = is_pooled
        self.register_buffer("mask", torch.ones(4, dtype=torch.bool))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps: torch.Tensor = self.convolution(x)
        return maps.mean(dim=(2, 3)) if self.is_pooled else maps


@pytest.mark.parametrize(
    ("is_pooled", "sentence"),
    [
        (False, "model 'timm:net_False' gives no vector for an image; choose a classification model of timm"),
        (True, "model 'timm:net_True' cannot travel: tensor 'backbone.mask' is bool; choose another of timm's"),
    ],
)
def test_a_model_that_the_contract_cannot_carry_is_a_sentence(is_pooled: bool, sentence: str) -> None:
    def entry_point(pretrained: bool = False, **kwargs: Any) -> nn.Module:
        return Maps(is_pooled)

    entry_point.__name__ = f"net_{is_pooled}"
    timm.models.register_model(entry_point)
    assert problem(f"timm:net_{is_pooled}") == sentence


def test_the_hidden_layer_has_128_units_and_the_head_is_the_classifier() -> None:
    model = build_model(VIT)
    assert model.feature_dim == 128
    assert head_names(model) == ("classifier.weight", "classifier.bias")


def test_an_unknown_name_is_told_the_nearest_ones() -> None:
    assert "no model 'vit_tiny_patch16_223'; did you mean 'vit_tiny_patch16_224' or" in problem(
        "timm:vit_tiny_patch16_223"
    )
    assert "timm.list_models() lists them" in problem("timm:qqqqqqqqq")
    assert problem("timm:test_vit3.mine").endswith("no weights 'mine' of 'test_vit3'; known: test_vit3.r160_in1k")
    assert problem("timm:resnetblur18.mine").endswith("no weights 'mine' of 'resnetblur18'; it has none")


def test_without_timm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    assert problem(VIT) == "model 'timm:test_vit3' needs timm, which is not installed: pip install 'fedplcc[timm]'"
