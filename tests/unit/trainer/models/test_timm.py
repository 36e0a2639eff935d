"""`timm:NAME`, on the tiny models that timm has for tests; nothing is downloaded."""

import sys
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from fedplcc.shared.config.model import ModelSection
from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.methods import METHODS
from fedplcc.trainer.consent import Consent
from fedplcc.trainer.learning.training import RoundInputs, local_train
from fedplcc.trainer.models import build_model as strictly_build_model
from fedplcc.trainer.models import head_names, load_arrays, state_arrays
from tests.unit.trainer.builders import a_config, digest, some_data, some_prototypes

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


def test_the_hidden_layer_has_128_units_and_the_head_is_the_classifier() -> None:
    model = build_model(VIT)
    assert model.feature_dim == 128
    assert head_names(model) == ("classifier.weight", "classifier.bias")


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


@pytest.mark.parametrize("name", [VIT, CONV])
def test_weights_are_a_function_of_specification_and_seed_alone(name: str) -> None:
    first = digest(build_model(name, seed=5))
    torch.rand(17)
    assert digest(build_model(name, seed=5)) == first
    assert digest(build_model(name, seed=6)) != first


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("name", [VIT, CONV])
def test_fedplcc_trains_it_finite_and_a_frozen_backbone_does_not_move(name: str, freeze: bool) -> None:
    """Without hidden layer: the vision transformer's features, and so the cosines with them, are of both signs."""
    options: dict[str, Any] = {"freeze_backbone": freeze, "hidden_dim": 0}
    config = a_config("fedplcc", model={"name": name, "options": options}, data={"image_size": 32})
    model = build_model(name, num_classes=3, **options)
    before = state_arrays(model)
    trained = local_train(
        model,
        some_data(config=config),
        RoundInputs(
            config=config,
            method=METHODS["fedplcc"],
            prototypes=some_prototypes(dim=model.feature_dim),
            round=2,
            client_id="a",
        ),
    )
    assert set(trained.losses) == {"ce", "contra", "corr"}
    after = state_arrays(model)
    changed = {name for name, array in after.items() if not (array == before[name]).all()}
    assert {"classifier.weight", "classifier.bias"} <= changed
    assert any(name.startswith("backbone.") for name in changed) is not freeze


def test_a_frozen_backbone_stays_in_eval_mode() -> None:
    model = build_model(CONV, freeze_backbone=True)
    model.train()
    assert model.training
    assert model.hidden.training
    assert not any(module.training for module in model.backbone.modules())
    assert not any(parameter.requires_grad for parameter in model.backbone.parameters())
    model = build_model(CONV)
    assert model.backbone.training


# Weights


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Weights as timm publishes them: of a whole classifier, for the size that the model was trained with."""
    torch.manual_seed(3)
    path = tmp_path / "weights.safetensors"
    save_file(timm.create_model("test_vit3").state_dict(), path)
    return path


def test_a_checkpoint_is_loaded_under_the_new_head_and_fitted_to_the_image_size(checkpoint: Path) -> None:
    model, other = build_model(VIT, checkpoint=str(checkpoint)), build_model(VIT)
    torch.manual_seed(3)
    original = timm.create_model("test_vit3")
    for name, tensor in model.backbone.state_dict().items():
        assert tensor.shape == other.backbone.state_dict()[name].shape
        if tensor.shape == original.state_dict()[name].shape:
            assert torch.equal(tensor, original.state_dict()[name])
    assert model.backbone.pos_embed.shape != original.pos_embed.shape
    assert digest(build_model(VIT, checkpoint=str(checkpoint))) == digest(model)


def test_a_model_that_is_loaded_whole_needs_neither_file_nor_download(checkpoint: Path) -> None:
    section: dict[str, Any] = {"checkpoint": str(checkpoint)}
    trained = build_model(VIT, **section)
    checkpoint.unlink()
    received = build_model(VIT, with_weights=False, **section)
    load_arrays(received, state_arrays(trained))
    assert digest(received) == digest(trained)
    assert build_model(CONV, with_weights=False, pretrained=True).feature_dim == 128


def test_wrong_checkpoints_are_named(tmp_path: Path, checkpoint: Path) -> None:
    assert "there is no file" in problem(VIT, checkpoint=str(tmp_path / "none.safetensors"))
    assert "no .safetensors file" in problem(VIT, checkpoint=str(tmp_path / "weights.pth"))
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"nothing")
    assert "its weights cannot be had" in problem(VIT, checkpoint=str(broken))
    sentence = problem(CONV, checkpoint=str(checkpoint))
    assert "its weights cannot be had (ValueError: the file has no conv1" in sentence


def test_a_checkpoint_that_lacks_a_layer_is_not_filled_up_with_random_weights(checkpoint: Path) -> None:
    tensors = load_file(checkpoint)
    del tensors["blocks.3.mlp.fc1.weight"]
    save_file(tensors, checkpoint)
    assert "the file has no blocks.3.mlp.fc1.weight" in problem(VIT, checkpoint=str(checkpoint))


def test_weights_that_cannot_be_downloaded_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    sentence = problem(VIT, pretrained=True)
    assert "its weights cannot be had" in sentence
    assert "name it in model.options.checkpoint" in sentence
    assert "its weights cannot be had" in problem("timm:resnetblur18", pretrained=True)  # nobody has published any


# Mistakes


def test_an_unknown_name_is_told_the_nearest_ones() -> None:
    assert "no model 'vit_tiny_patch16_223'; did you mean 'vit_tiny_patch16_224' or" in problem(
        "timm:vit_tiny_patch16_223"
    )
    assert "timm.list_models() lists them" in problem("timm:qqqqqqqqq")
    assert problem("timm:test_vit3.mine").endswith("no weights 'mine' of 'test_vit3'; known: test_vit3.r160_in1k")
    assert problem("timm:resnetblur18.mine").endswith("no weights 'mine' of 'resnetblur18'; it has none")


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


def test_without_timm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    assert problem(VIT) == "model 'timm:test_vit3' needs timm, which is not installed: pip install 'fedplcc[timm]'"
