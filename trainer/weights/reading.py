"""Tensors of a file of trained weights, as torchvision, timm and others publish them: safetensors, or one of torch's.

No code in a file is run, and what it claims about its size is checked before memory is taken for it.
"""

from __future__ import annotations

import math
import pickle  # nosec B403
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.tensors import Array

NESTED = ("state_dict", "model_state_dict", "model")
"""Keys below which training scripts keep the weights in their checkpoints."""
PREFIX = "module."
"""Prefix that torch's parallel training leaves in names."""
MAX_BYTES = 4 << 30
"""Largest file that is read, and most bytes of all tensors in it as float32 and int64."""
MAX_TENSORS = 10_000
MAX_DIMENSIONS = 16
MAX_GROWTH, ROOM_BYTES = 16, 64 << 20
"""Most bytes of a file's tensors for each of its own, and beside them: float32 of 8 bits is 4, an index of 8 bits 8."""
SHOWN = 200
"""Most characters of a tensor's name that are shown."""


def read_weights(path: Path) -> dict[str, Array]:
    """Return a file's tensors by name: real ones as float32, others as int64.

    Args:
        path: A .safetensors file, or a .pth, .pt or .bin file of torch.

    Raises:
        InvalidModel: The file cannot be read, is too large, holds no tensors by name, or values that are not finite.
    """
    if not path.is_file():
        raise InvalidModel(f"there is no file {path}")
    if path.stat().st_size > MAX_BYTES:
        raise InvalidModel(f"{path} is larger than {MAX_BYTES >> 30} GiB")
    try:
        if path.suffix == ".safetensors":
            values: object = load_file(path)
        elif _is_compressed(path):
            raise InvalidModel(
                f"{path} is compressed, as a program of torch (TorchScript) is: save its state_dict() alone"
            )
        else:
            with warnings.catch_warnings():  # of files that other versions of pickle wrote; errors say enough
                warnings.simplefilter("ignore")
                values = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InvalidModel(
            f"{path} holds more than tensors, and reading it could run code: save its state_dict() alone"
        ) from error
    except InvalidModel:
        raise
    except Exception as error:  # of every kind, for a file that is none
        raise InvalidModel(f"{path} is no file of weights: {type(error).__name__}") from error
    for key in NESTED:
        if isinstance(values, Mapping) and isinstance(values.get(key), Mapping):
            values = values[key]
    if not isinstance(values, Mapping):
        raise InvalidModel(f"{path} holds no tensors by name: save the model's state_dict()")
    tensors = {str(name).removeprefix(PREFIX): value for name, value in values.items() if isinstance(value, Tensor)}
    if not tensors:
        raise InvalidModel(f"{path} holds no tensors by name: save the model's state_dict()")
    return plain_arrays(tensors, str(path), most=MAX_GROWTH * path.stat().st_size + ROOM_BYTES)


def _is_compressed(path: Path) -> bool:
    """Whether a file of torch, an archive, has entries larger than what is in it: they would take memory first."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(each.file_size != each.compress_size for each in archive.infolist())


def plain_arrays(tensors: Mapping[str, Tensor], source: str, *, most: int = MAX_BYTES) -> dict[str, Array]:
    """Return tensors as arrays of float32 and int64, which have so many bytes at most.

    Raises:
        InvalidModel: They are too many or too large, sparse or complex, or hold values that are not finite.
    """
    # A tensor in a file of torch's may claim any shape over a few bytes.
    size = sum(math.prod(tensor.shape) * (4 if tensor.is_floating_point() else 8) for tensor in tensors.values())
    if len(tensors) > MAX_TENSORS or size > min(most, MAX_BYTES):
        raise InvalidModel(
            f"{source} holds {len(tensors)} tensors of {size} bytes; {MAX_BYTES >> 30} GiB are read, less of a small file"
        )
    arrays = {}
    for name, tensor in tensors.items():
        is_plain = tensor.layout is torch.strided and tensor.ndim <= MAX_DIMENSIONS and not tensor.is_meta
        if not is_plain or tensor.is_complex() or tensor.is_quantized:
            raise InvalidModel(
                f"tensor {name[:SHOWN]!r} of {source} is sparse, complex or quantised, has no values, or has more than "
                f"{MAX_DIMENSIONS} dimensions"
            )
        kind = torch.float32 if tensor.is_floating_point() else torch.int64
        array: Array = tensor.detach().to("cpu", kind).contiguous().numpy()
        if not np.isfinite(array).all():
            raise InvalidModel(f"tensor {name[:SHOWN]!r} of {source} holds values that are not finite")
        arrays[name] = array
    return arrays
