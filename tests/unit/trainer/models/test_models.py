import random
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

from fedplcc.shared.config.tables.model import RESNETS, STEMS, ModelSection
from fedplcc.shared.errors import InvalidModel
from fedplcc.trainer.models import build_model as strictly_build_model
from fedplcc.trainer.models import head_names, load_arrays, state_arrays, tensor_lists
from fedplcc.trainer.owner.consent import Consent
from tests.unit.trainer.builders import digest


def build_model(section: ModelSection, num_classes: int, image_size: int, seed: int) -> Any:
    """Loosely typed: tests reach into layers."""
    return strictly_build_model(section, num_classes, image_size, seed, consent=Consent.to(section))


BUILTIN = [ModelSection(name=name, stem=stem) for name, stems in STEMS.items() for stem in stems or (None,)]
GROUPED = [ModelSection(name=name, norm="group") for name in RESNETS]
every_builtin = pytest.mark.parametrize("section", [*BUILTIN, *GROUPED], ids=lambda section: section.kind)


def num_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("stem", "count"), [("imagenet5x5", 4_906_314), ("cifar3x3", 4_903_242)])
def test_resnet10_has_the_published_number_of_parameters(stem: str, count: int) -> None:
    model = build_model(ModelSection(stem=stem), 10, 32, 0)
    assert num_parameters(model) == count
    assert model.feature_dim == 512


@pytest.mark.parametrize(("stem", "side"), [("imagenet7x7", 7), ("cifar3x3", 3)])
@pytest.mark.parametrize(("name", "blocks"), [("resnet10", 1), ("resnet18", 2)])
def test_a_resnet_has_the_parameters_that_its_layers_add_up_to(name: str, blocks: int, stem: str, side: int) -> None:
    count = side**2 * 3 * 64 + 2 * 64
    for before, width in pairwise((64, 64, 128, 256, 512)):
        first = 9 * before * width + 9 * width**2 + 4 * width
        shortcut = before * width + 2 * width if before != width else 0
        count += first + shortcut + (blocks - 1) * (18 * width**2 + 4 * width)
    assert num_parameters(build_model(ModelSection(name=name, stem=stem), 7, 32, 0)) == count + 7 * 513


def test_resnet18_is_torchvisions_under_other_names() -> None:
    theirs = torchvision.models.resnet18(weights=None, num_classes=7).train()
    ours = build_model(ModelSection(name="resnet18"), 7, 32, 0).train()
    assert num_parameters(ours) == num_parameters(theirs)
    x = torch.randn(4, 3, 40, 40, generator=torch.Generator().manual_seed(0))
    for _ in range(2):  # the second time with running statistics that the first one moved
        values = zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True)
        with torch.no_grad():
            for mine, other in values:
                other.copy_(mine)
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)
        ours.eval(), theirs.eval()


def test_convolutions_of_a_resnet_begin_with_the_spread_of_kaiming_fan_out() -> None:
    model = build_model(ModelSection(name="resnet18"), 10, 32, 0)
    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv2d):
            fan_out = layer.out_channels * layer.kernel_size[0] ** 2
            assert layer.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.05)


@pytest.mark.parametrize("name", RESNETS)
def test_a_resnet_with_groups_differs_in_its_normalisation_alone(name: str) -> None:
    batch, group = (build_model(ModelSection(name=name, norm=norm), 7, 32, 0) for norm in ("batch", "group"))
    assert [(key, value.shape) for key, value in group.named_parameters()] == [
        (key, value.shape) for key, value in batch.named_parameters()
    ]
    drawn = zip(group.parameters(), batch.parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in drawn), "the same draws"
    assert not any(isinstance(part, nn.BatchNorm2d) for part in group.modules())
    assert list(group.buffers()) == []
    assert set(state_arrays(group)) == {key for key, _ in batch.named_parameters()}
    lists = tensor_lists(group, list(state_arrays(group)))
    assert lists["batch_norm"] == ()


def test_groups_are_thirty_two_and_normalised_image_by_image() -> None:
    layers = [
        part for part in build_model(ModelSection(norm="group"), 7, 32, 0).modules() if type(part) is nn.GroupNorm
    ]
    assert {(part.num_groups, part.num_channels) for part in layers} == {(32, width) for width in (64, 128, 256, 512)}
    layer = next(part for part in layers if part.num_channels == 128)
    x = np.random.default_rng(0).standard_normal((3, 128, 5, 5)).astype(np.float32)
    grouped = x.reshape(3, 32, -1).astype(np.float64)
    gap = grouped - grouped.mean(-1, keepdims=True)
    wanted = gap / np.sqrt((gap**2).mean(-1, keepdims=True) + 1e-5)
    with torch.no_grad():
        found = layer(torch.from_numpy(x))
        alone = layer(torch.from_numpy(x[:1]))
    np.testing.assert_allclose(found.numpy().reshape(3, 32, -1), wanted, atol=1e-5)
    assert torch.equal(alone[0], found[0])


def test_cnn4_has_two_convolutions_and_two_linear_layers() -> None:
    model = build_model(ModelSection(name="cnn4"), 10, 28, 0)
    shapes = [tuple(parameter.shape) for parameter in model.parameters() if parameter.ndim > 1]
    assert shapes == [(32, 3, 5, 5), (64, 32, 5, 5), (128, 64 * 4 * 4), (10, 128)]


def test_cnn5_has_two_convolutions_and_three_linear_layers() -> None:
    model = build_model(ModelSection(name="cnn5"), 10, 32, 0)
    shapes = [tuple(parameter.shape) for parameter in model.parameters() if parameter.ndim > 1]
    assert shapes == [(64, 3, 5, 5), (64, 64, 5, 5), (256, 64 * 5 * 5), (128, 256), (10, 128)]
    assert model.feature_dim == 128


@every_builtin
@pytest.mark.parametrize("image_size", [16, 33])
def test_logits_are_the_classifier_of_non_negative_features(section: ModelSection, image_size: int) -> None:
    model = build_model(section, 7, image_size, 0).eval()
    x = torch.randn(3, 3, image_size, image_size, generator=torch.Generator().manual_seed(0))
    features = model.features(x)
    assert features.shape == (3, model.feature_dim)
    assert features.min() >= 0
    assert features.max() > 0
    assert torch.equal(model(x), model.classifier(features))
    assert model(x).shape == (3, 7)


def listed(model: nn.Module, names: Sequence[str]) -> dict[str, list[str]]:
    return {role: [names[place] for place in places] for role, places in tensor_lists(model, names).items()}


def test_lists_say_which_tensors_are_trained_of_the_head_and_of_batch_norm() -> None:
    model: Any = nn.Module()
    model.body = nn.Sequential(nn.Conv2d(3, 2, 1, bias=False), nn.BatchNorm2d(2))
    model.classifier = nn.Linear(2, 3)
    model.body[0].weight.requires_grad_(False)
    names = sorted(model.state_dict(), reverse=True)
    norm = ["running_var", "running_mean", "num_batches_tracked"]
    assert listed(model, names) == {
        "parameters": ["classifier.weight", "classifier.bias", "body.1.weight", "body.1.bias"],
        "batch_norm": [f"body.1.{name}" for name in ("weight", *norm, "bias")],
        "head": ["classifier.weight", "classifier.bias"],
    }


def test_a_tensor_with_two_names_is_trained_under_both() -> None:
    model: Any = nn.Module()
    model.first, model.classifier = nn.Linear(2, 2), nn.Linear(2, 2)
    model.classifier.weight = model.first.weight
    assert listed(model, list(model.state_dict()))["parameters"] == list(model.state_dict())


def test_a_model_without_a_named_head_has_no_list_of_it() -> None:
    assert listed(nn.Sequential(nn.Linear(2, 2)), ["0.bias", "0.weight"]) == {
        "parameters": ["0.bias", "0.weight"],
        "batch_norm": [],
    }


@every_builtin
def test_whatever_of_a_builtin_is_not_trained_is_batch_norms(section: ModelSection) -> None:
    model = build_model(section, 10, 32, 0)
    names = list(model.state_dict())
    lists = listed(model, names)
    assert lists["head"] == ["classifier.weight", "classifier.bias"]
    assert lists["parameters"] == [name for name, _value in model.named_parameters()]
    assert set(names) - set(lists["parameters"]) <= set(lists["batch_norm"])


@pytest.mark.parametrize("name", ["cnn4", "cnn5"])
def test_a_cnn_says_which_images_are_too_small(name: str) -> None:
    with pytest.raises(InvalidModel, match="image_size >= 16, not 15"):
        build_model(ModelSection(name=name), 10, 15, 0)


@every_builtin
def test_weights_are_a_function_of_specification_and_seed_alone(section: ModelSection) -> None:
    first = digest(build_model(section, 10, 32, 5))
    torch.manual_seed(123)
    torch.rand(17)
    assert digest(build_model(section, 10, 32, 5)) == first
    assert digest(build_model(section, 10, 32, 6)) != first


@every_builtin
def test_a_model_whose_values_will_be_loaded_is_the_same_but_for_them(section: ModelSection) -> None:
    whole = build_model(section, 7, 32, 5)
    first, second = (strictly_build_model(section, 7, 32, 5, with_weights=False) for _ in range(2))
    for model in (first, second):  # one after the other: they share nothing
        load_arrays(model, state_arrays(whole))
    with torch.no_grad():
        for tensor in first.state_dict().values():
            tensor.zero_()
    assert digest(second) == digest(whole)
    assert [type(module) for module in second.modules()] == [type(module) for module in whole.modules()]
    for mine, other in zip(second.state_dict().values(), whole.state_dict().values(), strict=True):
        assert (mine.stride(), mine.device) == (other.stride(), other.device)
    trained = [[name for name, each in model.named_parameters() if each.requires_grad] for model in (second, whole)]
    assert trained[0] == trained[1]
    images = torch.randn(3, 3, 32, 32)
    assert torch.equal(second.eval()(images), whole.eval()(images))


@pytest.mark.parametrize("with_weights", [True, False])
def test_making_a_model_leaves_global_random_states_alone(with_weights: bool) -> None:
    def states() -> Any:
        return torch.get_rng_state().tolist(), np.random.get_state(legacy=False), random.getstate()

    before = states()
    strictly_build_model(ModelSection(name="cnn4"), 10, 32, 0, with_weights=with_weights)
    after = states()
    assert (after[0], after[2]) == (before[0], before[2])
    np.testing.assert_equal(after[1], before[1])


PLUGIN = """
import random
import numpy as np
import torch
from torch import nn

class Net(nn.Module):
    feature_dim = 4
    def __init__(self, num_classes, image_size, width=4, classifier=None, dtype=None):
        super().__init__()
        self.feature_dim = width
        self.extractor = nn.Linear(3 * image_size**2, width)
        self.classifier = nn.Linear(width, num_classes, dtype=dtype)
        self.register_buffer("noise", torch.tensor([random.random(), np.random.rand()], dtype=torch.float32))
    def features(self, x):
        return self.extractor(x.flatten(1))
    def forward(self, x):
        return self.classifier(self.features(x))

def good(**options):
    return Net(**options)

def not_a_module(num_classes, image_size):
    return "resnet"

def no_features(num_classes, image_size):
    return nn.Linear(2, 2)

def no_classifier(num_classes, image_size):
    net = Net(num_classes, image_size)
    del net.classifier
    return net

def no_dim(num_classes, image_size):
    net = Net(num_classes, image_size)
    net.feature_dim = "4"
    return net

def wrong_dim(num_classes, image_size):
    net = Net(num_classes, image_size)
    net.feature_dim = 5
    return net

def wrong_classes(num_classes, image_size):
    return Net(num_classes + 1, image_size)

def wrong_input(num_classes, image_size):
    return Net(num_classes, image_size + 1)

def tied(num_classes, image_size):
    net = Net(num_classes, image_size)
    net.again = net.classifier
    return net

def half(num_classes, image_size):
    net = Net(num_classes, image_size)
    net.register_buffer("scale", torch.ones(1, dtype=torch.float16))
    return net

def broken(num_classes, image_size):
    raise RuntimeError("no weights here")

def leaving(num_classes, image_size):
    raise SystemExit(0)

def leaving_later(num_classes, image_size):
    net = Net(num_classes, image_size)
    net.features = leaving
    return net

number = 3
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the working directory, found there without any installation."""
    (tmp_path / "my_models.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    yield "my_models"
    sys.modules.pop("my_models", None)


def test_a_factory_is_called_with_classes_image_size_and_options(plugin: str) -> None:
    model = build_model(ModelSection(name=f"{plugin}:good", options={"width": 6}), 5, 16, 0)
    assert model.feature_dim == 6
    assert model.classifier.weight.shape == (5, 6)
    assert head_names(model) == ("classifier.weight", "classifier.bias")


def test_a_factory_that_draws_from_global_states_is_seeded(plugin: str) -> None:
    section = ModelSection(name=f"{plugin}:good")
    first = digest(build_model(section, 5, 16, 1))
    np.random.rand()
    random.random()
    torch.rand(1)
    assert digest(build_model(section, 5, 16, 1)) == first
    assert digest(build_model(section, 5, 16, 2)) != first


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        ("not_a_module", "must return a torch.nn.Module, not str"),
        ("no_features", r"give it features\(...\)"),
        ("no_classifier", r"give it classifier\(...\)"),
        ("no_dim", "set feature_dim to the number of features"),
        ("wrong_dim", r"features\(x\) must have the shape \[2, 5\] for two images, not \[2, 4\]"),
        ("wrong_classes", r"classifier\(z\) must have the shape \[2, 3\] for two images, not \[2, 4\]"),
        ("wrong_input", r"must take images \[B, 3, 16, 16\]; it raised RuntimeError"),
        ("tied", "share memory; register each tensor under one name"),
        ("half", "'scale' is float16; convert it to float32 or int64"),
        ("broken", "cannot be made: RuntimeError: no weights here"),
        ("leaving", "cannot be made: SystemExit: 0"),
        ("leaving_later", r"must take images \[B, 3, 16, 16\]; it raised"),
        ("absent", "has no callable 'absent'"),
        ("number", "has no callable 'number'"),
    ],
)
def test_a_factory_that_gives_no_usable_model_is_told_what_to_do(plugin: str, factory: str, sentence: str) -> None:
    with pytest.raises(InvalidModel, match=sentence):
        build_model(ModelSection(name=f"{plugin}:{factory}"), 3, 16, 0)


@pytest.mark.parametrize("code", [0, "'bye'"])
def test_a_module_that_exits_while_it_is_imported_ends_no_command(plugin: str, code: object) -> None:
    Path(f"{plugin}.py").write_text(f"raise SystemExit({code})")
    with pytest.raises(InvalidModel, match="cannot import 'my_models' of 'my_models:good': SystemExit: "):
        build_model(ModelSection(name=f"{plugin}:good"), 3, 16, 0)


def test_head_prefixes_may_name_something_else(plugin: str) -> None:
    model = build_model(ModelSection(name=f"{plugin}:good"), 3, 16, 0)
    model.head_prefixes = ("extractor.", "noise")
    assert head_names(model) == ("noise", "extractor.weight", "extractor.bias")
    model.head_prefixes = ("fc.",)
    with pytest.raises(InvalidModel, match="set head_prefixes"):
        head_names(model)


@every_builtin
def test_the_head_is_the_classifier_and_the_rest_is_the_base(section: ModelSection) -> None:
    assert head_names(build_model(section, 10, 32, 0)) == ("classifier.weight", "classifier.bias")


@pytest.mark.parametrize("name", ["resnet10", "resnet18"])
def test_a_resnet_takes_the_smallest_image_that_a_contract_allows(name: str) -> None:
    assert build_model(ModelSection(name=name), 2, 8, 0)(torch.zeros(2, 3, 8, 8)).shape == (2, 2)
