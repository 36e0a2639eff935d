"""Changes of colours, with torchvision's functions, image by image, as the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.transforms.v2 import functional

from fedplcc.trainer.learning.augmenting import colors

Change = Callable[[Tensor, Tensor], Tensor]
FACTORS, TURNS = st.floats(0, 2, width=32), st.floats(-0.5, 0.5, width=32)
PAIRS = (
    (colors.brightened, functional.adjust_brightness, FACTORS),
    (colors.contrasted, functional.adjust_contrast, FACTORS),
    (colors.saturated, functional.adjust_saturation, FACTORS),
    (colors.hue_turned, functional.adjust_hue, TURNS),
)
FEW_LEVELS = st.sampled_from([(0, 1), (255, 256), (0, 256), (120, 130)])
"""Ranges of bytes: black, white, all, and nearly one gray; between them are ties of channels, which hues turn on."""


@pytest.mark.parametrize(("change", "oracle", "amounts"), PAIRS, ids=[change.__name__ for change, _, _ in PAIRS])
@given(draw=st.data(), seed=st.integers(0, 2**32 - 1), side=st.integers(1, 40))
def test_each_image_is_changed_as_torchvision_changes_it(
    change: Change, oracle: Callable[..., Tensor], amounts: st.SearchStrategy[float], draw: Any, seed: int, side: int
) -> None:
    lowest, highest = draw.draw(FEW_LEVELS)
    values = draw.draw(st.lists(amounts, min_size=1, max_size=6))
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(lowest, highest, (len(values), side, side, 3), dtype=torch.uint8, generator=generator)
    images_B3SS = images.permute(0, 3, 1, 2)  # as a client's images lie in memory
    wanted = [oracle(image, value) for image, value in zip(images_B3SS, values, strict=True)]
    found = change(images_B3SS, torch.tensor(values, dtype=torch.float64))
    assert torch.equal(found, torch.stack(wanted))


@pytest.mark.parametrize("change", [change for change, _, _ in PAIRS])
def test_a_batch_takes_as_many_operations_whatever_its_size(change: Change) -> None:
    """A GPU waits for each of them."""
    counted = [_operations(change, size) for size in (1, 64)]
    assert counted[0] == counted[1] < 60


def _operations(change: Change, batch_size: int) -> int:
    images = torch.zeros((batch_size, 3, 8, 8), dtype=torch.uint8)
    counted = Counted()  # type: ignore[no-untyped-call]
    with counted:
        change(images, torch.zeros(batch_size))
    return counted.number


class Counted(TorchDispatchMode):
    """Counts torch operations that are no views."""

    number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += not func.is_view
        return func(*args, **(kwargs or {}))
