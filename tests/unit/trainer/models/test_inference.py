import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedplcc
from fedplcc.trainer.learning.attacks import ImageAttack
from fedplcc.trainer.learning.evaluation import collect_features, evaluate, logits_of, predicted_classes
from fedplcc.trainer.models import build_model
from fedplcc.trainer.models.inference import HAS_LAYOUT, FoldedStages, inference
from fedplcc.trainer.models.resnet import ResNet
from tests.unit.trainer.builders import CPU, a_config, digest, some_data

WITHOUT_GRADIENTS = {
    "fedplcc/models/onnx_export.py": "what onnxruntime is compared with is the module that is exported",
    "trainer/learning/losses.py": "reference models of a training step compute as the model that is trained",
    "trainer/learning/site_statistics.py": "BatchNorm layers are in training mode",
    "trainer/learning/update_rules.py": "no model computes",
    "trainer/models/contract.py": "a model is tried",
    "trainer/models/cut.py": "a graph is tried",
    "trainer/models/frozen.py": "a frozen backbone has one form of its own",
    "trainer/models/inference.py": "the form",
    "trainer/models/state.py": "no model computes",
    "trainer/models/timm_backbone.py": "a model is tried",
}
"""Files that compute without gradients by themselves, and why."""


def test_whatever_computes_without_gradients_does_it_in_the_one_form() -> None:
    root = Path(fedplcc.__file__).parents[1]
    files = [path for folder in ("fedplcc", "trainer", "shared") for path in (root / folder).rglob("*.py")]
    found = {
        str(path.relative_to(root)) for path in files if re.search(r"inference_mode\(|no_grad\(", path.read_text())
    }
    assert found == WITHOUT_GRADIENTS.keys()


def a_resnet(name: str = "resnet10", **keys: str) -> tuple[Any, Any]:
    """A ResNet whose BatchNorm layers have seen images, and its run."""
    config = a_config(model={"name": name, **keys}, training={"evaluation_batch_size": 4})
    model = build_model(config.model, 3, 16, 0)
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(1)) * 2 + 1)
    return model, config


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("resnet10", {"stem": "imagenet7x7"}),
        ("resnet10", {"stem": "cifar3x3"}),
        ("resnet18", {"stem": "imagenet7x7"}),
        ("resnet10", {"stem": "imagenet7x7", "norm": "group"}),
    ],
)
def test_a_resnets_features_are_those_of_its_modules_but_for_rounding(name: str, keys: dict[str, str]) -> None:
    model, config = a_resnet(name, **keys)
    data, before = some_data(10, config), digest(model)
    features_ND, _ = collect_features(model, data, config)
    with torch.no_grad():
        plain_ND = model.features(data.batch(torch.arange(10))[0]).numpy()
    np.testing.assert_allclose(features_ND, plain_ND, rtol=1e-4, atol=1e-5)
    assert digest(model) == before


@pytest.mark.skipif(not HAS_LAYOUT, reason="no x86 processor with AVX")
def test_all_passes_go_the_folded_way_and_agree_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[int] = []
    compute = FoldedStages.__call__

    def counted(self: FoldedStages, x_BCHW: torch.Tensor) -> torch.Tensor:
        ways.append(len(x_BCHW))
        return compute(self, x_BCHW)

    monkeypatch.setattr(FoldedStages, "__call__", counted)
    model, config = a_resnet()
    data = some_data(10, config)
    features_ND, labels_N = collect_features(model, data, config)
    logits_NM = logits_of(model, data, config)
    (predicted_N,) = predicted_classes(model, data, config)
    counts = evaluate(model, data, config)
    with inference(model, config, CPU):
        alone = [model(x_B3SS) for x_B3SS, _ in data.in_order(4)]
    assert ways == 5 * [4, 4, 2]
    with torch.no_grad():
        assert torch.equal(model.classifier(torch.from_numpy(features_ND[:4])), logits_NM[:4])
    assert torch.equal(torch.cat(alone), logits_NM)
    assert predicted_N.tolist() == logits_NM.argmax(-1).tolist()
    assert sum(counts.correct) == int((predicted_N == labels_N).sum())


def test_an_attack_follows_the_gradients_of_the_modules() -> None:
    model, config = a_resnet()
    data = some_data(8, config)
    x_B3SS, labels_B = data.batch(torch.arange(8))
    attack = ImageAttack.named("fgsm", 0.03, data)
    outside = attack.changed(model.eval(), x_B3SS, labels_B)
    with inference(model, config, CPU, is_attacked=True):
        assert torch.equal(attack.changed(model, x_B3SS, labels_B), outside)


@pytest.mark.parametrize("factor", [1e30, torch.nan, torch.inf])
def test_maps_that_overflow_name_no_class(factor: float) -> None:
    model, config = a_resnet()
    with torch.no_grad():
        model.stages[1].conv1.weight.mul_(factor)
        model.stages[2].conv1.weight.mul_(1e30)
    (predicted_N,) = predicted_classes(model, some_data(6, config), config)
    assert set(predicted_N.tolist()) == {-1}


def test_after_the_block_a_resnet_computes_with_its_values_of_then() -> None:
    model, config = a_resnet()
    assert isinstance(model, ResNet)
    x_B3SS, _ = some_data(4, config).batch(torch.arange(4))
    with inference(model, config, CPU):
        before = model.features(x_B3SS).clone()
    with torch.no_grad():
        model.get_parameter("stages.3.bn2.bias").add_(1)
        assert (model.features(x_B3SS) - before).mean() > 0.3
