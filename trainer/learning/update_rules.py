"""How SGD, Adam and AdamW change parameters: torch's own functions, without the classes around them.

A class of `torch.optim` imports the whole of torch's compiler when it is made: about a second of processor time and
150 MB in every process that trains, for nothing that it uses. The functions are what those classes call, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
"""Those of Kingma and Ba ("Adam", ICLR 2015, https://arxiv.org/abs/1412.6980, algorithm 1), torch's defaults."""


class UpdateRule:
    """Parameters and their gradients; a rule adds how a step changes them.

    Attributes:
        param_groups: The parameters as torch's gradient scaler asks for them.
    """

    def __init__(self, params: Sequence[Tensor], learning_rate: float, weight_decay: float) -> None:
        """Begin without a history; a step changes `params` in place."""
        self.param_groups = [{"params": list(params)}]
        self._params = list(params)
        self._learning_rate = learning_rate
        self._weight_decay = weight_decay

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for param in self._params:
            param.grad = None

    def step(self) -> None:
        """Change every parameter that has a gradient, by it."""
        numbers = [number for number, param in enumerate(self._params) if param.grad is not None]
        if numbers:
            with torch.no_grad():
                self._step(numbers)

    def _step(self, numbers: list[int]) -> None:
        """Change the parameters of these numbers, which have gradients."""
        raise NotImplementedError

    def _graded(self, numbers: list[int]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the parameters of these numbers, and their gradients."""
        params = [self._params[number] for number in numbers]
        return params, [param.grad for param in params if param.grad is not None]


class Sgd(UpdateRule):
    """`torch.optim.SGD(fused=True)`, also where a parameter has its first gradient later than others."""

    def __init__(self, params: Sequence[Tensor], learning_rate: float, weight_decay: float, *, momentum: float) -> None:
        """Begin; the first gradient of a parameter is its first velocity."""
        super().__init__(params, learning_rate, weight_decay)
        self._momentum = momentum
        self._velocities: list[Tensor | None] = [None] * len(self._params)

    def _step(self, numbers: list[int]) -> None:
        # torch's function takes parameters with velocities or without; first steps come last, so that none is made twice.
        for is_first in (False, True):
            chosen = [number for number in numbers if (self._velocities[number] is None) == is_first]
            velocities = [self._velocities[number] for number in chosen]
            sgd(
                *self._graded(chosen),
                velocities if self._momentum else [],
                fused=True,
                weight_decay=self._weight_decay,
                momentum=self._momentum,
                lr=self._learning_rate,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
            for number, velocity in zip(chosen, velocities, strict=True):
                self._velocities[number] = velocity


class Adam(UpdateRule):
    """`torch.optim.Adam`, or `torch.optim.AdamW(fused=True)` with `decoupled`."""

    def __init__(
        self, params: Sequence[Tensor], learning_rate: float, weight_decay: float = 0.0, *, decoupled: bool = False
    ) -> None:
        """Begin; `decoupled` takes the decay from the parameters, not into the gradients, as AdamW does."""
        super().__init__(params, learning_rate, weight_decay)
        self._decoupled = decoupled
        self._steps = [torch.zeros((), device=param.device if decoupled else None) for param in self._params]
        self._means = [torch.zeros_like(param) for param in self._params]
        self._mean_squares = [torch.zeros_like(param) for param in self._params]

    def _step(self, numbers: list[int]) -> None:
        adam(
            *self._graded(numbers),
            [self._means[number] for number in numbers],
            [self._mean_squares[number] for number in numbers],
            [],
            [self._steps[number] for number in numbers],
            fused=self._decoupled or None,
            decoupled_weight_decay=self._decoupled,
            amsgrad=False,
            beta1=BETA1,
            beta2=BETA2,
            lr=self._learning_rate,
            weight_decay=self._weight_decay,
            eps=EPSILON,
            maximize=False,
        )
