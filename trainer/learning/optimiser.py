"""Steps of local training: the optimiser of a round, and the precision of its operations.

With `precision = "float16"` gradients below 6e-8 would be zero, so the loss is multiplied by a scale before the gradient
is taken and the gradient divided by it after (Micikevicius et al., "Mixed Precision Training", ICLR 2018,
https://arxiv.org/abs/1710.03740, section 3.2). A step whose scaled gradient overflows changes nothing and halves the scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fedplcc.shared.config.tables.training import TrainingSection
from fedplcc.trainer.learning.update_rules import Adam, Sgd, UpdateRule

FIRST_SCALE = 1024.0
"""Scale of the loss at the beginning of each round with float16: a round is short, and each step that overflows is lost."""
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class _SmallMaps(TorchFunctionMode):
    """Convolutions of maps that are no larger than their kernels, in float32.

    Some weights of theirs meet the margin alone. Their gradient is zero; oneDNN 3.12 leaves it unset in bfloat16.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.conv2d and any(map(_is_small, args[0].shape[2:], args[1].shape[2:])):
            args = tuple(each.float() if isinstance(each, Tensor) else each for each in args)
            with torch.autocast("cpu", enabled=False):
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _is_small(side: int, kernel: int) -> bool:
    return 1 < kernel >= side


class Optimiser:
    """The optimiser of one client's round.

    Attributes:
        num_skipped: Steps that changed nothing because their gradient overflowed; always 0 but with float16.
    """

    def __init__(
        self, params: Iterable[Tensor], training: TrainingSection, *, learning_rate: float, device: torch.device
    ) -> None:
        """Begin a round.

        Args:
            params: The trainable parameters; they change in place.
            training: The run's `[training]`.
        """
        self._params = list(params)
        self._clip_norm = training.clip_norm
        self._device = device
        self._dtype = DTYPES.get(training.precision)
        self._scaler = torch.amp.GradScaler(device.type, FIRST_SCALE, enabled=training.precision == "float16")
        self._rule: UpdateRule
        if training.optimizer == "adamw":
            self._rule = Adam(self._params, learning_rate, training.weight_decay, decoupled=True)
        else:
            self._rule = Sgd(self._params, learning_rate, training.weight_decay, momentum=training.momentum)
        self.num_skipped = 0

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Within the block, compute the model and its loss."""
        is_unsound = self._device.type == "cpu" and self._dtype == torch.bfloat16
        with (
            torch.autocast(self._device.type, self._dtype, enabled=self._dtype is not None),
            _SmallMaps() if is_unsound else nullcontext(),
        ):
            yield

    def step(self, loss: Tensor) -> float | None:
        """Change the parameters by the gradient of a loss.

        Returns:
            The gradient's L2 norm before clipping if the run clips, which may be infinite or NaN; else None.
        """
        self._rule.zero_grad()
        self._scaler.scale(loss).backward()
        if not self._scaler.is_enabled():
            norm = self._clipped()
            if norm is None or math.isfinite(norm):
                self._rule.step()
            return norm
        scaled = cast(torch.optim.Optimizer, self._rule)
        self._scaler.unscale_(scaled)
        norm = self._clipped()
        before = self._scaler.get_scale()
        self._scaler.step(scaled)
        self._scaler.update()
        if self._scaler.get_scale() < before:
            self.num_skipped += 1
            return None
        return norm

    def _clipped(self) -> float | None:
        """Scale the gradient to at most `clip_norm`; returns its norm before."""
        if self._clip_norm is None:
            return None
        return float(nn.utils.clip_grad_norm_(self._params, self._clip_norm))
