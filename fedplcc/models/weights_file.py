"""A run's first model from a file of trained weights, as torchvision, timm and others publish them.

Nothing is downloaded. The file is safetensors, or one of torch's, which is read without running code from it. Its tensors
are found by name: as they are, below a timm model's backbone, or by torchvision's names of a ResNet.
"""

from __future__ import annotations

import pickle  # nosec B403
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import InvalidModel
from fedplcc.trainer.consent import Consent
from fedplcc.trainer.models import build_model, head_names, load_arrays, state_arrays

NESTED = ("state_dict", "model_state_dict", "model")
"""Keys below which training scripts keep the weights in their checkpoints."""
PREFIX = "module."
"""Prefix that torch's parallel training leaves in names."""
DRAWN = ("hidden.",)
"""Prefixes of tensors outside the head that no published file has: the hidden layer on a timm backbone."""
_BLOCK = re.compile(r"layer(?P<stage>[1-4])\.(?P<number>\d+)\.(?P<rest>.+)")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ImportedModel:
    """A first model, of which some tensors came from a file.

    Attributes:
        arrays: The whole state by name.
        loaded: Names of the tensors that the file had, in state order.
        drawn: Names of the others; their values are those that the run's seed draws.
    """

    arrays: Mapping[str, npt.NDArray[Any]]
    loaded: tuple[str, ...]
    drawn: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What came from the file, and what did not."""
        drawn = ", ".join(self.drawn) or "none"
        return f"{len(self.loaded)} of {len(self.arrays)} tensors are the file's; drawn by the run's seed: {drawn}"


def import_weights(path: Path, config: RunConfig) -> ImportedModel:
    """Return a run's first model with the weights of a file.

    The head may be another than the file's (other classes): it is drawn, as without the file.

    Args:
        path: A .safetensors file, or a .pth, .pt or .bin file of torch.
        config: The run; its `[model]` names the architecture, and may name code of the caller's.

    Raises:
        InvalidModel: The file cannot be read, holds no tensors, or is of another architecture.
    """
    weights = _read(path)
    section = config.model
    if section.options.get("pretrained") or section.options.get("checkpoint"):
        section = section.model_copy(update={"options": {**section.options, "pretrained": False, "checkpoint": None}})
    model = build_model(
        section,
        len(config.data.classes),
        config.data.image_size,
        config.run.seed,
        consent=Consent.to(section),
    )
    arrays = state_arrays(model)
    found = max((_fitting(weights, arrays, rename) for rename in NAMES), key=len)
    may_be_drawn = {*head_names(model), *(name for name in arrays if name.startswith(DRAWN))}
    missing = [name for name in arrays if name not in found and name not in may_be_drawn and not _is_counter(name)]
    if missing:
        raise InvalidModel(_other_architecture(path, config.model.name, missing, len(arrays), weights))
    load_arrays(model, {**arrays, **found})
    return ImportedModel(
        arrays=state_arrays(model),
        loaded=tuple(name for name in arrays if name in found),
        drawn=tuple(name for name in arrays if name not in found and not _is_counter(name)),
    )


def _read(path: Path) -> dict[str, Tensor]:
    """Return a file's tensors by name."""
    if not path.is_file():
        raise InvalidModel(f"there is no file {path}")
    try:
        if path.suffix == ".safetensors":
            values: object = load_file(path)
        else:
            with warnings.catch_warnings():  # of files that other versions of pickle wrote; errors say enough
                warnings.simplefilter("ignore")
                values = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InvalidModel(
            f"{path} holds more than tensors, and reading it could run code: save its state_dict() alone"
        ) from error
    # torch and its formats raise errors of many kinds for a file that is none.
    except (SafetensorError, OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise InvalidModel(f"{path} is no file of weights: {type(error).__name__}") from error
    for key in NESTED:
        if isinstance(values, Mapping) and isinstance(values.get(key), Mapping):
            values = values[key]
    if not isinstance(values, Mapping):
        raise InvalidModel(f"{path} holds no tensors by name: save the model's state_dict()")
    tensors = {str(name).removeprefix(PREFIX): value for name, value in values.items() if isinstance(value, Tensor)}
    if not tensors:
        raise InvalidModel(f"{path} holds no tensors by name: save the model's state_dict()")
    return tensors


def _same(name: str) -> str:
    return name


def _below_backbone(name: str) -> str:
    return f"backbone.{name}"


def _of_torchvision_resnet(name: str) -> str:
    """Return our name of a tensor of torchvision's ResNet18."""
    block = _BLOCK.fullmatch(name)
    if block is None:
        stem = name.replace("conv1.", "stem.0.").replace("bn1.", "stem.1.")
        return stem.replace("fc.", "classifier.")
    number = int(block["stage"]) - 1
    rest = block["rest"].replace("downsample.", "shortcut.")
    return f"stages.{2 * number + int(block['number'])}.{rest}"


NAMES: tuple[Callable[[str], str], ...] = (_same, _below_backbone, _of_torchvision_resnet)
"""Ways from a file's names to a model's."""


def _fitting(
    weights: Mapping[str, Tensor], arrays: Mapping[str, npt.NDArray[Any]], rename: Callable[[str], str]
) -> dict[str, npt.NDArray[Any]]:
    """Return the file's values for the model's tensors, in their types, where name and shape fit."""
    found = {}
    for name, tensor in weights.items():
        target = arrays.get(rename(name))
        if (
            target is not None
            and tuple(tensor.shape) == target.shape
            and tensor.is_floating_point() == _is_real(target)
        ):
            value = tensor.detach().to(torch.float32 if _is_real(target) else torch.int64).contiguous().numpy()
            if not np.isfinite(value).all():
                raise InvalidModel(f"tensor {name!r} of the file holds values that are not finite")
            found[rename(name)] = value
    return found


def _is_real(array: npt.NDArray[Any]) -> bool:
    return array.dtype.kind == "f"


def _is_counter(name: str) -> bool:
    """Whether a tensor counts batches; files of old versions of torch have none."""
    return name.endswith("num_batches_tracked")


def _other_architecture(path: Path, model: str, missing: list[str], size: int, weights: Mapping[str, Tensor]) -> str:
    first = next(iter(weights))
    return (
        f"{path} is of another architecture than model {model!r}: {len(missing)} of its {size} tensors are not in the "
        f"file with their shapes, the first is {missing[0]}; the file's first is {first} of {list(weights[first].shape)}"
    )
