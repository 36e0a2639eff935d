"""Torch's settings of this process and thread, which a run must neither take from other code nor leave to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_torch_settings() -> Iterator[None]:
    """Give torch's settings back at the end of the block as they were at its beginning.

    Around a run, the caller's own training goes on as before it. Around a callback, the run does. Random states need none of
    this: tasks set them, and leave them as they found them.
    """
    import torch

    dtype, has_gradients = torch.get_default_dtype(), torch.is_grad_enabled()
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    determinism = torch.get_deterministic_debug_mode()
    fills: bool = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    benchmark, cudnn = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    device = torch.get_default_device()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(has_gradients)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.set_deterministic_debug_mode(determinism)
        torch.utils.deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = benchmark, cudnn
        if torch.get_default_device() != device:
            torch.set_default_device(device)
