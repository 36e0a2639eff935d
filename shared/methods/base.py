"""What a federated method is: a frozen record of a few pure functions, client half and server half side by side.

A method file imports the standard library, numpy, pydantic, `shared.methods.maths`, `shared.methods.finch`,
`shared.types`, this module, the shared parts in prototypes.py and other methods, nothing else. Its client half is
written with operators, `.sum()` and `.mean()`, which torch tensors and numpy arrays share; what operators cannot say
comes through `Ops`. So the same loss runs in a trainer and, in tests, on plain numpy.

Shape legend: B batch, N samples of a client, D feature size, M classes, G prototypes, K clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from shared.types import GLOBAL_MODEL, LOCAL_MODEL, Comparison, FloatArray, IntArray, PrototypeSet

Array = Any
"""A torch tensor in a trainer, a numpy array in a test."""

Block = npt.NDArray[Any]
"""A piece of one tensor, flattened: float32, or int64 for integer buffers."""

Coefficient = Annotated[float, Field(ge=0, le=1e6)]
"""A hyper-parameter: what a term of the loss is multiplied by. Zero leaves the term out."""
Temperature = Annotated[float, Field(ge=1e-3, le=100)]
"""A hyper-parameter: what similarities are divided by before their exponentials are compared."""

# The aggregator's clustering costs n^2 D for n rows of a class, and an update's sample counts are what its sender claims:
# so the rows themselves are bounded. FINCH joins every row to a neighbour, so a cluster has two members or more (or is a
# class of one sample): 8192 samples of a class give at most 4096 rows even in the finest partition; the last has tens.
# The dearest set within both limits has 16 full classes, 16 * 4096^2 * D products: seconds for D = 512.
# A class's rows over all clients have no limit of their own: they are at most the number of clients times this one, and
# the roster is the operator's.
MAX_ROWS_PER_CLASS = 4096
"""Most prototypes of one class in an uploaded set."""
MAX_ROWS = 65536
"""Most prototypes of an uploaded set."""


class MethodConfig(BaseModel):
    """Hyper-parameters that every method has. Subclasses add theirs, defaulted to the paper's values."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    averaging: Literal["weighted", "equal"] = "weighted"
    """Weight of a client in the fold: its number of samples, or one."""

    younger: ClassVar[frozenset[str]] = frozenset()
    """Keys that came after the method's first release. Where they have their default they are not written down, so that the
    hash of a run that does not set them stays what it was."""

    @model_serializer(mode="wrap")
    def _without_younger_defaults(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = plain(self)
        fields = type(self).model_fields
        return {
            name: value for name, value in values.items() if name not in self.younger or value != fields[name].default
        }


class Ops(Protocol):
    """What operators cannot say, in float32 even where the model runs in less.

    Masks are boolean arrays that broadcast to the shape of `x`; reductions are over the last axis. Integer, float and
    boolean arrays are compared, indexed and broadcast with operators.
    """

    def cosine(self, x_BD: Array, y_GD: Array) -> Array:
        """Cosine similarity `[B, G]`, norms floored at 1e-8."""

    def paired_cosine(self, x_BD: Array, y_BD: Array) -> Array:
        """Cosine similarity of each row of `x` with the same row of `y`, `[B]`, norms floored at 1e-8."""

    def row_norm(self, x_BD: Array) -> Array:
        """Euclidean norm of each row, `[B]`, without gradient."""

    def clamp_min(self, x: Array, minimum: float) -> Array:
        """Elementwise maximum with a constant; the gradient is 0 where it acts."""

    def log(self, x: Array) -> Array:
        """Natural logarithm, elementwise."""

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
    """The round's global prototypes on the training device, as constants."""

    vectors_GD: Array
    class_ids_G: Array
    weights_G: Array
    class_sizes_M: Array
    """Prototypes per class, `[M]` whole numbers in float64, so that a share of them (a top-k) is exact to 1e-9."""
    group_ids_G: Array
    """Whose each prototype is, where the method says so, else -1."""
    class_means_MD: Array
    """Plain mean of each class's prototypes, zeros for a class without; computed once a round in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientStep:
    """Everything that a client loss may look at for one mini-batch."""

    ops: Ops
    features_BD: Array
    logits_BM: Array
    labels_B: Array
    task_loss: Array
    """Cross-entropy, mean over the batch: a scalar."""
    params: Mapping[str, Array]
    """Trainable parameters by name."""
    start: Mapping[str, Array]
    """The same parameters as training started from them, constants: the received ones, or those of `Method.start_model`."""
    prototypes: Prototypes | None
    """None before the first aggregation, or where the global set is empty."""
    round: int
    total_rounds: int
    reference_features: Mapping[str, Array] = field(default_factory=dict)
    """Features `[B, D]` of the same images under the method's reference models, by their names; constants."""


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a loss: the scalar as reported, and what it is multiplied by in the total."""

    value: Array
    coefficient: float = 1.0


LossTerms = Mapping[str, Term]
"""Terms by name in a fixed order. A term whose coefficient is 0 is left out, not multiplied: that keeps FedAvg's bits."""

ModelArrays = Mapping[str, npt.NDArray[Any]]
"""A whole model by tensor name, float32 or int64 arrays in host memory."""

ClientState = Mapping[str, npt.NDArray[Any]]
"""What a client keeps from one of its updates to the next: float32 or int64 arrays by name. It never leaves the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientEnd:
    """What a client has when its training of a round is over."""

    received: ModelArrays
    trained: ModelArrays
    state: ClientState | None
    """What it kept from its last committed update; None at its first participation."""
    round: int


ClientLoss = Callable[[ClientStep, Any], LossTerms]
ServerPrototypes = Callable[[Sequence[PrototypeSet], int, Any], PrototypeSet]
Fold = Callable[[Block, Iterable[Block], Sequence[float], Any], Block]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What leaves the client besides its model."""

    prototypes: PrototypeSet
    num_excluded: int = 0
    """Samples that no prototype stands for: zero features, clusters below the minimum size."""


ClientReport = Callable[[FloatArray, IntArray, int, Any], Report]
NextClientState = Callable[[ClientEnd, Any], ClientState]
ReferenceModels = Callable[[ModelArrays, ClientState | None, Any], Mapping[str, ModelArrays]]
ClientModel = Callable[[ModelArrays, ClientState | None, Any], ModelArrays | None]
Scores = Callable[[Ops, Array, Array, Prototypes | None, Any], Array]


def always(config: MethodConfig) -> bool:
    """Return True, whatever the configuration."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A federated method.

    Attributes:
        name: As a person writes it in `[run] method`.
        paper: Authors, title, venue, link.
        config: Its hyper-parameters.
        client_loss: `(step, config) -> terms` for one mini-batch.
        fold: `(state_block, update_blocks, weights, config) -> block`: the new global block from the cohort's blocks, which
            come one at a time in client-id order and may be read once. Elementwise, so any cutting gives the same bytes.
        prototype_kind: Kind of the set that a client uploads, or None where the method has no prototypes.
        client_report: `(features_ND, labels_N, num_classes, config) -> Report` under the final local weights.
        server_prototypes: `(sets, num_classes, config) -> set`: the global set from the cohort's sets in client-id order.
        comparison: How prototypes are compared, for who draws them.
        weights_are_counts: Whether uploaded weights are sample counts that must add up (docs/algorithms.md, rule 1.7).
        next_client_state: `(end, config) -> state`: what the client keeps for its next participation, once this update is
            committed; nothing where it is empty. None where the method's clients keep nothing.
        reference_models: `(received, state, config) -> models by name`: frozen models under which the loss wants the
            features of every mini-batch too, in evaluation mode. None where it wants none.
        start_model: `(received, state, config) -> model` from which the client trains, where that may be another than the
            received one; None from it for the received one.
        local_model: `(received, state, config) -> model` of the client's own that it evaluates beside the global one, or in
            its place; None from it where it has none yet. The state is that of the client's last committed update.
        has_local_model: `config -> bool`: whether clients have a model of their own to evaluate; asked where `local_model`
            is given.
        shares_model: `config -> bool`: whether updates carry the trained model. Where they do not, the global model stays
            what round 0 made it, and clients evaluate their own.
        scores: `(ops, features_BD, logits_BM, prototypes, config) -> [B, M]`: by which the local model names classes, the
            largest wins; the prototypes are those that the round came to. None for the logits.
        neutral: Hyper-parameters under which the method is FedAvg to the last bit. A method without such a setting has none
            and says in its docstring why.
    """

    name: str
    paper: str
    config: type[MethodConfig]
    client_loss: ClientLoss
    fold: Fold
    prototype_kind: str | None = None
    client_report: ClientReport | None = None
    server_prototypes: ServerPrototypes | None = None
    comparison: Comparison = "cosine"
    weights_are_counts: bool = False
    next_client_state: NextClientState | None = None
    reference_models: ReferenceModels | None = None
    start_model: ClientModel | None = None
    local_model: ClientModel | None = None
    has_local_model: Callable[[Any], bool] = always
    shares_model: Callable[[Any], bool] = always
    scores: Scores | None = None
    neutral: Mapping[str, Any] | None = None

    @property
    def keeps_client_state(self) -> bool:
        """Whether an update depends on what the client kept from the one before."""
        return self.next_client_state is not None

    @property
    def has_prototypes(self) -> bool:
        """Whether clients upload prototypes and the aggregator sends global ones."""
        return self.prototype_kind is not None

    def evaluated_models(self, config: MethodConfig) -> tuple[str, ...]:
        """Which models a client's report is of: the global one if there is one, then its own if it has one.

        The first one's accuracy is the round's.
        """
        is_local = self.local_model is not None and self.has_local_model(config)
        return (*((GLOBAL_MODEL,) if self.shares_model(config) else ()), *((LOCAL_MODEL,) if is_local else ()))

    def names_by_prototypes(self, config: MethodConfig) -> bool:
        """Whether a client needs the round's prototypes for its report."""
        return self.scores is not None and LOCAL_MODEL in self.evaluated_models(config)


def fold_weights(num_examples: Sequence[int], config: MethodConfig) -> list[float]:
    """Weight of each client's blocks, in the same order; whole numbers, so float64 products of float32 are exact."""
    return [1.0 if config.averaging == "equal" else float(count) for count in num_examples]


def per_class_counts(class_ids: IntArray, num_classes: int) -> IntArray:
    """How many entries each class has, int64 `[M]`."""
    return np.bincount(class_ids, minlength=num_classes).astype(np.int64)


def class_means(prototypes: PrototypeSet, num_classes: int) -> FloatArray:
    """Return the plain mean of each class's prototypes, float32 `[M, D]` rounded once; zeros for a class without."""
    means_MD = np.zeros((num_classes, prototypes.vectors.shape[1]))
    for class_id in np.unique(prototypes.class_ids):
        means_MD[class_id] = prototypes.vectors[prototypes.class_ids == class_id].mean(0, dtype=np.float64)
    return means_MD.astype(np.float32)


def excess_rows(prototypes: PrototypeSet, num_classes: int) -> str | None:
    """Say how a set has too many prototypes to be uploaded, or None where it has not.

    Args:
        prototypes: The set; its class ids lie in [0, M).
        num_classes: M.
    """
    if len(prototypes) > MAX_ROWS:
        return f"{len(prototypes)} prototypes, at most {MAX_ROWS}"
    counts_M = per_class_counts(prototypes.class_ids, num_classes)
    largest = int(counts_M.argmax())
    if counts_M[largest] > MAX_ROWS_PER_CLASS:
        return f"{counts_M[largest]} prototypes of class {largest}, at most {MAX_ROWS_PER_CLASS}"
    return None
