"""A model's state as named numpy arrays, and back.

The state is everything in `state_dict`, parameters and persistent buffers, but for what a model names in `still_names`: that
is as every site has it. The contract carries float32 and int64; anything
else is refused when the model is made, not in the middle of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedplcc.shared.errors import InvalidModel

Arrays = dict[str, npt.NDArray[Any]]

DTYPES = {torch.float32: np.dtype(np.float32), torch.int64: np.dtype(np.int64)}


def state_arrays(model: nn.Module) -> Arrays:
    """Return copies of the model's state tensors in host memory, float32 or int64, in state order.

    Raises:
        InvalidModel: See `check_state`.
    """
    return {name: tensor.to("cpu", copy=True).contiguous().numpy() for name, tensor in check_state(model).items()}


def load_arrays(model: nn.Module, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Copy the arrays into the model's state, wherever that is. Nothing changes unless all of them fit.

    Raises:
        InvalidModel: Names, shapes or dtypes are not the model's.
    """
    state = check_state(model)
    missing, foreign = sorted(state.keys() - arrays.keys()), sorted(arrays.keys() - state.keys())
    if missing or foreign:
        raise InvalidModel(
            f"the tensors are of another model: {_few(missing)} missing, {_few(foreign)} unknown; "
            "use the same model specification as the run"
        )
    for name, tensor in state.items():
        array = arrays[name]
        if array.shape != tuple(tensor.shape) or array.dtype != DTYPES[tensor.dtype]:
            raise InvalidModel(
                f"tensor {name!r} is {array.dtype}{list(array.shape)}, but the model has "
                f"{DTYPES[tensor.dtype]}{list(tensor.shape)}; use the same model specification as the run"
            )
    with torch.no_grad():
        for name, tensor in state.items():
            # Arrays read from a blob are views of read-only bytes, which torch warns of.
            tensor.copy_(torch.from_numpy(np.array(arrays[name])))


def check_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's state tensors, in state order, if the contract can carry them.

    Raises:
        InvalidModel: A value that is no tensor, a dtype other than float32 and int64, or two names for the same memory.
    """
    state: dict[str, Tensor] = {}
    still = getattr(model, "still_names", ())
    for name, value in model.state_dict().items():
        if name in still:
            continue
        if not isinstance(value, Tensor):
            raise InvalidModel(f"state {name!r} is {type(value).__name__}; keep only tensors in the model's state")
        if value.dtype not in DTYPES:
            dtype = str(value.dtype).removeprefix("torch.")
            raise InvalidModel(f"tensor {name!r} is {dtype}; convert it to float32 or int64, or make it non-persistent")
        state[name] = value
    _refuse_aliases(state)
    return state


def _refuse_aliases(state: Mapping[str, Tensor]) -> None:
    """Refuse two names for the same memory: it would be sent twice, averaged twice and overwritten by either."""
    held = {name: tensor for name, tensor in state.items() if tensor.numel() and not tensor.is_meta}
    spans = sorted((tensor.data_ptr(), _end(tensor), name) for name, tensor in held.items())
    for (_, end, name), (start, _, other) in pairwise(spans):
        if start < end:
            raise InvalidModel(f"tensors {name!r} and {other!r} share memory; register each tensor under one name")


def _end(tensor: Tensor) -> int:
    """Return the address behind the tensor's last element."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()


def _few(names: list[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "") or "none"
