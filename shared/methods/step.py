"""The loss of one mini-batch: what it may look at, the operations that torch and numpy do not share, and its terms.

A client's half uses operators, `.sum()` and `.mean()`, which torch tensors and numpy arrays share, and `Ops` for everything
else. The same loss therefore runs on torch in a trainer and on numpy in tests.

Shape legend: B batch, D feature size, M classes, G prototypes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Array = Any
"""A torch tensor in a trainer, a numpy array in a test."""


class Ops(Protocol):
    """Operations beyond operators, in float32 even if the model runs in lower precision.

    Masks are boolean arrays that broadcast to the shape of `x`; reductions are over the last axis. Arrays are compared,
    indexed and broadcast with operators.
    """

    def cosine(self, x_BD: Array, y_GD: Array) -> Array:
        """Cosine similarity `[B, G]`, norms floored at 1e-8."""

    def paired_cosine(self, x_BD: Array, y_BD: Array) -> Array:
        """Cosine similarity of each row of `x` with the same row of `y`, `[B]`, norms floored at 1e-8."""

    def row_norm(self, x_BD: Array) -> Array:
        """Euclidean norm of each row, `[B]`, without gradient."""

    def clamp_min(self, x: Array, minimum: float) -> Array:
        """Elementwise maximum with a constant; the gradient is 0 where the constant wins."""

    def log(self, x: Array) -> Array:
        """Natural logarithm, elementwise."""

    def exp(self, x: Array) -> Array:
        """Exponential, elementwise."""

    def is_class(self, labels_B: Array, num_classes: int) -> Array:
        """Mask `[B, M]` that holds at each sample's own class alone."""

    def logsumexp(self, x: Array, where: Array | None = None) -> Array:
        """Log of the sum of exp over the entries where the mask holds; 0, with zero gradient, for a row with none.

        Without a mask, the same bits as with a mask that holds everywhere.
        """

    def softplus(self, x: Array) -> Array:
        """Log of 1 + exp(x), elementwise; its slope at 0 is 1/2 exactly."""

    def largest(self, x: Array, where: Array, count_B: Array) -> Array:
        """Mask of the `count_B[i]` largest entries of row i among those where the mask holds, or all of them if fewer.

        Of equal entries the lower column comes first. The choice is constant: no gradient flows through it.
        """

    def where(self, mask: Array, x: Array, other: float) -> Array:
        """`x` where the mask holds, else the constant, without gradient there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prototypes:
    """Global prototypes of the round on the training device, as constants."""

    vectors_GD: Array
    class_ids_G: Array
    weights_G: Array
    class_sizes_M: Array
    """Prototypes per class, `[M]` whole numbers in float64, so that a share of them (a top-k) is exact to 1e-9."""
    group_ids_G: Array
    """Owner of each prototype if the method sets one, else -1."""
    class_means_MD: Array
    """Plain mean of each class's prototypes, zeros for a class without any; computed once per round in float64."""
    num_groups: int
    """Number of different owners in `group_ids_G`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientStep:
    """Inputs of a client loss for one mini-batch."""

    ops: Ops
    features_BD: Array
    logits_BM: Array
    labels_B: Array
    task_loss: Array
    """Cross-entropy, mean over the batch: a scalar."""
    params: Mapping[str, Array]
    """Trainable parameters by name."""
    start: Mapping[str, Array]
    """Parameters at the start of training, as constants: the received ones, or those of `Part.start_model`."""
    prototypes: Prototypes | None
    """Global prototypes; None before the first aggregation and for an empty global set."""
    round: int
    total_rounds: int
    reference_features: Mapping[str, Array] = field(default_factory=dict)
    """Features `[B, D]` of the same images under the method's reference models, by name, as constants."""
    reference_logits: Mapping[str, Array] = field(default_factory=dict)
    """Logits `[B, M]` of the same images under the method's reference models, by name, as constants."""
    kept: Mapping[str, Array] = field(default_factory=dict)
    """Arrays of the client's own state or of the server, by name, as constants; see `Part.loss_arrays`."""
    scalars: Mapping[str, float] = field(default_factory=dict)
    """Numbers that came with the task; see `Part.scalars`."""


@dataclass(frozen=True, slots=True)
class Term:
    """Term of a loss: the reported scalar, and its coefficient in the total."""

    value: Array
    coefficient: float = 1.0


LossTerms = Mapping[str, Term]
"""Terms by name in a fixed order. A term with coefficient 0 is left out, not multiplied by 0: that keeps FedAvg's bits."""

ClientLoss = Callable[[ClientStep, Any], LossTerms]
"""`(step, config) -> terms` of one mini-batch, cross-entropy first."""
