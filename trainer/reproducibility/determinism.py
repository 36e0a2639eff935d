"""Torch settings and random states that make training a function of its inputs.

Torch keeps both per process or per thread, so a task sets them where it runs and leaves random states as it found them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from fedplcc.shared.errors import InvalidModel

NOT_DETERMINISTIC = "does not have a deterministic implementation"
"""Words of torch's error for an operation without a deterministic form."""


def prepare_torch(threads: int, device: torch.device) -> None:
    """Make torch deterministic in this process and set the number of processor threads of the calling thread.

    Call it in the thread that trains, before the task: OpenMP and MKL keep their thread counts per thread, and other counts
    give other last bits.
    """
    torch.set_num_threads(threads)
    # `use_deterministic_algorithms` sets the same, but imports torch's compiler: a second, and 150 MB.
    torch.set_deterministic_debug_mode("error")
    # Deterministic mode would also fill every new tensor with NaN, to expose reads of uninitialised memory. That slows every
    # step and changes no result of a model that does not read such memory.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if device.type == "cuda":
        # cuBLAS reads it when its first handle is made, and is deterministic only with a fixed workspace.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True


@contextmanager
def nondeterminism_explained(model_name: str) -> Iterator[None]:
    """Within the block, turn torch's error for a nondeterministic operation into one about the model.

    Most such operations are backward passes on CUDA, which only training reaches.

    Raises:
        InvalidModel: Instead of torch's RuntimeError.
    """
    try:
        yield
    except RuntimeError as error:
        if NOT_DETERMINISTIC not in str(error):  # torch has no error class for it
            raise
        operation = str(error).partition(NOT_DETERMINISTIC)[0].strip()
        raise InvalidModel(
            f"model {model_name!r} computes with {operation}, which torch has in no deterministic form on this device; "
            "use the device cpu, or another model"
        ) from error


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Run the block with every global random state seeded, and restore them afterwards.

    It is for code that draws from global states: a model's initialisation and its dropout.

    Args:
        seed: 63 bits; see `randomness.derive_seed`.
        device: Seeded too if it is a CUDA device.
    """
    cuda = [device] if device is not None and device.type == "cuda" else []
    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
