"""Operations of method files in torch, where operators do not suffice: `fedplcc.shared.methods.step.Ops`.

Shape legend: B batch, D feature size, M classes, G prototypes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize, softplus

from fedplcc.shared.methods.parts.prototypes import class_means, per_class_counts
from fedplcc.shared.methods.step import Prototypes
from fedplcc.shared.types import PrototypeSet

MIN_NORM = 1e-8


class TorchOps:
    """`fedplcc.shared.methods.step.Ops` for torch tensors. Call it with autocast disabled.

    It caches results for constants, which prototypes are during a round; use one object a round.
    """

    def __init__(self) -> None:
        self._latest: dict[Callable[[Tensor], Tensor], tuple[Tensor, tuple[int, int], Tensor]] = {}

    def cosine(self, x_BD: Tensor, y_GD: Tensor) -> Tensor:
        """Return cosine similarities `[B, G]`, norms floored at 1e-8."""
        return _unit_rows(x_BD) @ self._once(_unit_rows, y_GD).T

    def paired_cosine(self, x_BD: Tensor, y_BD: Tensor) -> Tensor:
        """Return the cosine similarity of each row of `x` with the same row of `y`, `[B]`, norms floored at 1e-8."""
        return (_unit_rows(x_BD) * _unit_rows(y_BD)).sum(-1)

    def row_norm(self, x_BD: Tensor) -> Tensor:
        """Return the Euclidean norm of each row, `[B]`, without gradient."""
        norm_B: Tensor = torch.linalg.vector_norm(_full(x_BD.detach()), dim=-1)
        return norm_B

    def clamp_min(self, x: Tensor, minimum: float) -> Tensor:
        """Return the elementwise maximum with a constant; the gradient is 0 where the constant is larger."""
        return x.clamp(min=minimum)

    def log(self, x: Tensor) -> Tensor:
        """Return natural logarithms."""
        return self._once(torch.log, x)

    def exp(self, x: Tensor) -> Tensor:
        """Return exponentials."""
        return _full(x).exp()

    def is_class(self, labels_B: Tensor, num_classes: int) -> Tensor:
        """Return the mask `[B, M]` that holds at each sample's own class alone."""
        return labels_B[:, None] == torch.arange(num_classes, device=labels_B.device)

    def logsumexp(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        """Return the log of the sum of exp over the entries where the mask holds; 0, with zero gradient, if none does."""
        x = _full(x)
        if where is None:
            return x.logsumexp(-1)
        is_empty = ~where.any(-1)
        # A row of -inf alone would have NaN as its gradient, even where nothing uses it.
        filled = x.masked_fill(~where, -torch.inf).masked_fill(is_empty[..., None], 0.0)
        return filled.logsumexp(-1).masked_fill(is_empty, 0.0)

    def softplus(self, x: Tensor) -> Tensor:
        """Return the log of 1 + exp(x), elementwise; its slope at 0 is 1/2 exactly."""
        return softplus(_full(x))

    def largest(self, x: Tensor, where: Tensor, count_B: Tensor) -> Tensor:
        """Return the mask of the `count_B[i]` largest entries of row i where the mask holds; lower columns win ties."""
        order = x.detach().masked_fill(~where, -torch.inf).argsort(dim=-1, descending=True, stable=True)
        rank = order.argsort(dim=-1)
        return (rank < count_B[..., None]) & where

    def where(self, mask: Tensor, x: Tensor, other: float) -> Tensor:
        """Return `x` where the mask holds, else the constant, without gradient there."""
        return x.masked_fill(~mask, other)

    def _once(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return the function's value; for the same constant as last time, the cached value if neither has changed."""
        # Torch counts no changes of tensors that are made in inference mode.
        if x.requires_grad or x.is_inference() or torch.is_inference_mode_enabled():
            return function(x)
        known = self._latest.get(function)
        if known is not None and known[0] is x and known[1] == (x._version, known[2]._version):
            return known[2]
        value = function(x)
        self._latest[function] = x, (x._version, value._version), value
        return value


def _unit_rows(x_BD: Tensor) -> Tensor:
    return normalize(_full(x_BD), dim=-1, eps=MIN_NORM)


def _full(x: Tensor) -> Tensor:
    """Return the tensor in at least float32: sums of exponentials overflow in less."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def to_device(prototypes: PrototypeSet, num_classes: int, device: torch.device) -> Prototypes | None:
    """Return the round's global prototypes as constants on the device, or None if there is none."""
    if not len(prototypes):
        return None
    class_sizes_M = per_class_counts(prototypes.class_ids, num_classes)
    return Prototypes(
        vectors_GD=torch.tensor(prototypes.vectors, device=device),
        class_ids_G=torch.tensor(prototypes.class_ids, device=device),
        weights_G=torch.tensor(prototypes.weights, device=device),
        class_sizes_M=torch.tensor(class_sizes_M, dtype=torch.float64, device=device),
        group_ids_G=torch.tensor(prototypes.group_ids, device=device),
        class_means_MD=torch.tensor(class_means(prototypes, num_classes), device=device),
        num_groups=prototypes.num_groups,
    )
