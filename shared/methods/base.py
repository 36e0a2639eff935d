"""Method: a frozen record of pure functions, client half and server half together.

A method file imports only the standard library, numpy, pydantic, `shared.methods.maths`, `shared.methods.finch`,
`shared.types`, this module, slots.py, parts.py, prototypes.py and other methods. Its client half uses operators, `.sum()`
and `.mean()`, which torch tensors and numpy arrays share, and `Ops` for everything else. The same loss therefore runs on
torch in a trainer and on numpy in tests.

Shape legend: B batch, N samples of a client, D feature size, M classes, G prototypes, K clients.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from shared.methods.parts import Personal, Phase, one_phase, with_personal
from shared.methods.public import PublicPart
from shared.methods.server_arrays import (
    ArrayGroup,
    BeforeTraining,
    DeclaredGroups,
    ServerStep,
    UploadFault,
    no_groups,
    sends_nothing,
)
from shared.methods.slots import SlotFold, TaskView, no_slots
from shared.types import (
    BATCH_NORM,
    GLOBAL_MODEL,
    HEAD,
    LOCAL_MODEL,
    PARAMETERS,
    Comparison,
    FloatArray,
    IntArray,
    PrototypeSet,
)

Array = Any
"""A torch tensor in a trainer, a numpy array in a test."""

Block = npt.NDArray[Any]
"""A piece of one tensor, flattened: float32, or int64 for integer buffers."""

Coefficient = Annotated[float, Field(ge=0, le=1e6)]
"""Factor of a term of the loss. Zero leaves the term out."""
Temperature = Annotated[float, Field(ge=1e-3, le=100)]
"""Divisor of similarities before their exponentials are taken."""

# The aggregator's clustering compares every two rows of a class, each with D products, and sample counts are only claims of
# the sender: the rows themselves are therefore bounded. FINCH joins every row to a neighbour, so a cluster has at least two
# members (or is a class of one sample): 8192 samples of a class give at most 4096 rows in the finest partition, and tens in
# the last one.
MAX_ROWS_PER_CLASS = 4096
"""Most prototypes of one class in an uploaded set."""
MAX_ROWS = 65536
"""Most prototypes of an uploaded set."""
MAX_PAIRS = 2**32
"""Most pairs of prototypes that a round's clustering compares, over all classes: about two minutes on one core for 512
features. Rows that are made to be almost equal cost up to fifty times as much."""


class MethodConfig(BaseModel):
    """Hyper-parameters of every method. Subclasses add their own, with the paper's values as defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    averaging: Literal["weighted", "equal", "domain"] = "weighted"
    """Weight of a client in the fold: its number of samples (weighted), 1 (equal), or its share of the samples of its
    domain, so that every domain weighs 1 (domain)."""
    global_average: Literal["none", "ema"] = "none"
    """Result of a round: what the round's updates came to (none), or an exponential average of that over the rounds
    (ema; Caldarola et al., ECCV 2022, average the models of rounds likewise). Training goes on from the newest one."""
    average_decay: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Weight of the average so far in the next one, where `global_average` is "ema"; 0 is "none"."""


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
    """Parameters at the start of training, as constants: the received ones, or those of `Method.start_model`."""
    prototypes: Prototypes | None
    """Global prototypes; None before the first aggregation and for an empty global set."""
    round: int
    total_rounds: int
    reference_features: Mapping[str, Array] = field(default_factory=dict)
    """Features `[B, D]` of the same images under the method's reference models, by name, as constants."""
    reference_logits: Mapping[str, Array] = field(default_factory=dict)
    """Logits `[B, M]` of the same images under the method's reference models, by name, as constants."""
    kept: Mapping[str, Array] = field(default_factory=dict)
    """Arrays of the client's own state, by name, as constants; see `Method.loss_state`."""
    scalars: Mapping[str, float] = field(default_factory=dict)
    """Numbers that came with the task; see `Method.scalars`."""


@dataclass(frozen=True, slots=True)
class Term:
    """Term of a loss: the reported scalar, and its coefficient in the total."""

    value: Array
    coefficient: float = 1.0


LossTerms = Mapping[str, Term]
"""Terms by name in a fixed order. A term with coefficient 0 is left out, not multiplied by 0: that keeps FedAvg's bits."""

ModelArrays = Mapping[str, npt.NDArray[Any]]
"""Whole model: float32 or int64 arrays in host memory, by tensor name."""

ClientState = Mapping[str, npt.NDArray[Any]]
"""State that a client keeps between its updates: float32 or int64 arrays by name. It never leaves the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientEnd:
    """State of a client at the end of its training in a round."""

    received: ModelArrays
    trained: ModelArrays
    state: ClientState | None
    """State kept from its last committed update; None at its first participation."""
    round: int
    parameters: tuple[str, ...] = ()
    """Names of the tensors that were trained."""
    personal: tuple[str, ...] = ()
    """Names of the tensors that the client keeps for itself; see `Method.personal`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBegin:
    """A client's samples under the received model, at its first participation in a stage of a run whose data change."""

    features_ND: FloatArray
    """In evaluation mode, without augmentation."""
    labels_N: IntArray
    num_classes: int
    state: ClientState
    """State kept from its last committed update."""
    scalars: Mapping[str, float]
    """Numbers that came with the task: `stage` and `pass` among them, from 1."""


ClientLoss = Callable[[ClientStep, Any], LossTerms]
ServerPrototypes = Callable[[Sequence[PrototypeSet], int, Any], PrototypeSet]
CarryPrototypes = Callable[[PrototypeSet, PrototypeSet, int, Any], PrototypeSet]
ReadBlock = Callable[[], Block]
Fold = Callable[[ReadBlock, Iterable[Block], Sequence[float], Any], Block]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Data that leave the client besides its model."""

    prototypes: PrototypeSet
    num_excluded: int = 0
    """Samples that no prototype represents: zero features, clusters below the minimum size."""


ClientReport = Callable[[FloatArray, IntArray, int, Any], Report]
NextClientState = Callable[[ClientEnd, Any], ClientState]
StageState = Callable[[StageBegin, Any], ClientState]
StateWithReport = Callable[[ClientState, ClientState | None, PrototypeSet, Mapping[str, float], Any], ClientState]
ReferenceModels = Callable[[ModelArrays, ClientState | None, Any], Mapping[str, ModelArrays]]
ClientModel = Callable[[ModelArrays, ClientState | None, Any], ModelArrays | None]
LossState = Callable[[ClientState, Any], Mapping[str, npt.NDArray[Any]]]
Scalars = Callable[[TaskView, Any], Mapping[str, float]]
Scores = Callable[[Ops, Array, Array, Prototypes | None, Any], Array]


def always(config: MethodConfig) -> bool:
    """Return True, whatever the configuration."""
    return True


def never(config: MethodConfig) -> bool:
    """Return False, whatever the configuration."""
    return False


def no_stage_begins(state: ClientState, scalars: Mapping[str, float], config: MethodConfig) -> bool:
    """Return False, whatever the state."""
    return False


def no_key(config: MethodConfig) -> str | None:
    """Return None, whatever the configuration."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A federated method.

    Attributes:
        name: As a person writes it in `[run] method`.
        paper: Authors, title, venue, link.
        config: Its hyper-parameters.
        client_loss: `(step, config) -> terms` for one mini-batch.
        fold: `(read_state, update_blocks, weights, config) -> block`: the new global block from the cohort's blocks, which
            come one at a time in client-id order and may be read once. `read_state()` reads the old global block, for
            methods that use it. Elementwise, so any cutting gives the same bytes.
        server_slots: `config -> {name: first value}`: arrays like the trainable parameters that the server keeps from round
            to round. Where there are none, `fold` alone makes the model, and nothing is kept.
        slot_fold: Fold of the trainable parameters together with their slots, where there are some; see slots.py. All else
            of the model goes through `fold`.
        has_start: `config -> bool`: whether the next round starts from another model than the result: what
            `slot_fold` makes, or the folded model, of which `server_step` replaces the head in the result.
        server_arrays: `(config, num_classes, feature_dim) -> schemas by group`: small arrays that the server keeps from
            round to round; see server_arrays.py.
        server_step: Makes the server arrays after the fold, and where `has_start` the head of the round's model.
        sends: `config -> groups`: server arrays that go to clients with the task of training.
        uploads: `(config, num_classes, feature_dim) -> schemas by group`: what an update has beside its model.
        before_training: `(before, config) -> groups`: makes `uploads` of a client's samples under the received model.
        upload_fault: `(uploads, class_counts, config) -> sentence`: what else is wrong with uploads, or
            None.
        public: Its part about public images, or None where it uses none; see public.py.
        needs_linear_head: Whether the head must be one linear layer; another model is refused at round 0.
        size_fault: `(config, num_classes, feature_dim) -> sentence`: why a run of this size would be too much for the
            server, or None; asked at round 0.
        prototype_kind: Kind of the set that a client uploads, or None where the method has no prototypes.
        client_report: `(features_ND, labels_N, num_classes, config) -> Report` under the final local weights.
        server_prototypes: `(sets, num_classes, config) -> set`: the global set from the cohort's sets in client-id order.
        carry_prototypes: `(made, previous, num_classes, config) -> set`: the global set from what `server_prototypes`
            made and from the global set that the round before committed, for methods that use it. Not called where that set
            is empty, as it is in round 1.
        comparison: How prototypes are compared, for who draws them.
        weights_are_counts: Whether uploaded weights are sample counts that must add up (docs/algorithms.md, rule 1.7).
        next_client_state: `(end, config) -> state`: what the client keeps for its next participation, once this update is
            committed; nothing where it is empty. None where the method's clients keep nothing.
        begins_stage: `(state, scalars, config) -> bool`: whether `stage_state` is to be made before this training; asked
            where the client kept a state.
        stage_state: `(begin, config) -> state`: the client's state for a stage of a run whose data change, made of its
            samples before it first trains in the stage. None where stages change no state.
        state_with_report: `(kept, state, prototypes, scalars, config) -> state`: what the client keeps after its training,
            with what it takes of the prototypes that it sends; `state` is the one before. None for `kept` alone.
        reference_models: `(received, state, config) -> models by name`: frozen models under which the loss wants the
            features and logits of every mini-batch too, in evaluation mode. None where it wants none.
        loss_state: `(state, config) -> arrays by name`: what of its state the loss wants in every mini-batch, as constants
            on the training device; not asked at a client's first participation. None where it wants nothing.
        scalars: `(view, config) -> numbers by name` that go to a client with its task; pure in what is recorded of the run.
        start_model: `(received, state, config) -> model` from which the client trains, where that may be another than the
            received one; None from it for the received one.
        local_model: `(received, state, config) -> model` of the client's own that it evaluates beside the global one, or in
            its place; None from it where it has none yet. The state is that of the client's last committed update.
        has_local_model: `config -> bool`: whether clients have a model of their own to evaluate; asked where `local_model`
            is given.
        shares_model: `config -> bool`: whether updates carry the trained model. Where they do not, the global model stays
            what round 0 made it, and clients evaluate their own.
        personal: `config -> "none" | "head" | "batch_norm"`: tensors that a client keeps for itself. They are part of its
            state, and merged into the model that it trains from and into its local model; see parts.py. None for none.
        uploads_personal: `config -> bool`: whether updates have personal tensors too, for a global model. Where they do
            not, the global model has those of round 0, and clients evaluate their own.
        phases: `config -> phases` of a client's training in a round, each of a part of the model and with an optimiser of
            its own; see parts.py.
        scores: `(ops, features_BD, logits_BM, prototypes, config) -> [B, M]`: by which the local model names classes, the
            largest wins; the prototypes are those that the round came to. None for the logits.
        own_scores: As `scores`, where a client's models choose among the classes of its own images
            (`evaluation.own_classes`). None for the logits.
        length_key: `config -> key`: the hyper-parameter that says over how many rounds something is stretched, while it is
            not set and all rounds of the run count: such a run cannot go on to more rounds. None where there is none.
        neutral: Hyper-parameters under which the method is FedAvg to the last bit. A method without such a setting has none
            and says in its docstring why.
    """

    name: str
    paper: str
    config: type[MethodConfig]
    client_loss: ClientLoss
    fold: Fold
    server_slots: Callable[[Any], Mapping[str, float]] = no_slots
    slot_fold: SlotFold | None = None
    has_start: Callable[[Any], bool] = never
    server_arrays: DeclaredGroups = no_groups
    server_step: ServerStep | None = None
    sends: Callable[[Any], tuple[str, ...]] = sends_nothing
    uploads: DeclaredGroups = no_groups
    before_training: Callable[[BeforeTraining, Any], Mapping[str, ArrayGroup]] | None = None
    upload_fault: UploadFault | None = None
    public: PublicPart | None = None
    needs_linear_head: bool = False
    size_fault: Callable[[Any, int, int], str | None] | None = None
    prototype_kind: str | None = None
    client_report: ClientReport | None = None
    server_prototypes: ServerPrototypes | None = None
    carry_prototypes: CarryPrototypes | None = None
    comparison: Comparison = "cosine"
    weights_are_counts: bool = False
    next_client_state: NextClientState | None = None
    begins_stage: Callable[[ClientState, Mapping[str, float], Any], bool] = no_stage_begins
    stage_state: StageState | None = None
    state_with_report: StateWithReport | None = None
    reference_models: ReferenceModels | None = None
    loss_state: LossState | None = None
    scalars: Scalars | None = None
    start_model: ClientModel | None = None
    local_model: ClientModel | None = None
    has_local_model: Callable[[Any], bool] = always
    shares_model: Callable[[Any], bool] = always
    personal: Callable[[Any], Personal] | None = None
    uploads_personal: Callable[[Any], bool] = always
    phases: Callable[[Any], tuple[Phase, ...]] = one_phase
    scores: Scores | None = None
    own_scores: Scores | None = None
    length_key: Callable[[Any], str | None] = no_key
    neutral: Mapping[str, Any] | None = None

    def keeps_server_state(self, config: MethodConfig) -> bool:
        """Whether the server keeps something from round to round."""
        has_step = self.server_step is not None and (self.public is None or self.uses_public(config))
        return has_step or bool(self.server_slots(config))

    def uses_public(self, config: MethodConfig) -> bool:
        """Whether a run needs public images."""
        return self.public is not None and self.public.is_used(config)

    @property
    def keeps_client_state(self) -> bool:
        """Whether an update depends on state that the client kept from its previous one."""
        return self.next_client_state is not None or self.personal is not None

    def personal_part(self, config: MethodConfig) -> Personal:
        """Return the tensors that a client keeps for itself."""
        return "none" if self.personal is None else self.personal(config)

    def withheld_part(self, config: MethodConfig) -> Personal:
        """Return the personal tensors that no update has."""
        return "none" if self.uploads_personal(config) else self.personal_part(config)

    def kept_after(self, end: ClientEnd, config: MethodConfig) -> ClientState:
        """Return all that a client keeps after its training: what the method says, and its personal tensors."""
        own = {} if self.next_client_state is None else self.next_client_state(end, config)
        return {**own, **{name: end.trained[name] for name in end.personal}}

    def start_of(self, received: ModelArrays, state: ClientState | None, config: MethodConfig) -> ModelArrays | None:
        """Return the model that a client trains from, or None for the received one."""
        made = None if self.start_model is None else self.start_model(received, state, config)
        return self._with_personal(received, made, state, config)

    def own_model(self, received: ModelArrays, state: ClientState | None, config: MethodConfig) -> ModelArrays | None:
        """Return the client's own model to evaluate, or None where it has none yet."""
        made = None if self.local_model is None else self.local_model(received, state, config)
        return self._with_personal(received, made, state, config)

    def _with_personal(
        self, received: ModelArrays, made: ModelArrays | None, state: ClientState | None, config: MethodConfig
    ) -> ModelArrays | None:
        if state is None or self.personal_part(config) == "none":
            return made
        return with_personal(received if made is None else made, state)

    def needs_earlier_round(self, config: MethodConfig) -> bool:
        """Whether the method's own terms are left out in a client's first round, which is then FedAvg's.

        They need prototypes, or a model that the client kept. A method whose reference models are made of the received model
        alone acts at once.
        """
        if self.has_prototypes:
            return True
        return (
            self.keeps_client_state
            and self.reference_models is not None
            and not self.reference_models({}, None, config)
        )

    @property
    def has_prototypes(self) -> bool:
        """Whether clients upload prototypes and the aggregator sends global ones."""
        return self.prototype_kind is not None

    def global_prototypes(
        self, sets: Sequence[PrototypeSet], previous: PrototypeSet, num_classes: int, config: MethodConfig
    ) -> PrototypeSet:
        """Return the global set of a round; the empty one of a method without prototypes.

        Args:
            sets: The cohort's sets in client-id order.
            previous: The global set that the round before committed; empty in round 1.
            num_classes: M.
            config: The hyper-parameters.
        """
        if self.server_prototypes is None:
            return PrototypeSet.empty()
        made = self.server_prototypes(sets, num_classes, config)
        if self.carry_prototypes is None or not len(previous):
            return made
        return self.carry_prototypes(made, previous, num_classes, config)

    def needed_tensor_lists(self, config: MethodConfig) -> tuple[str, ...]:
        """Return the lists of tensors that round 0's update must have (shared/types.py, `TENSOR_LISTS`)."""
        personal = self.personal_part(config)
        needed = {
            PARAMETERS: bool(self.server_slots(config)),
            HEAD: self.server_step is not None or personal == HEAD,
            BATCH_NORM: personal == BATCH_NORM,
        }
        return tuple(name for name, is_needed in needed.items() if is_needed)

    def evaluated_models(self, config: MethodConfig) -> tuple[str, ...]:
        """Return the models that a client's report covers: the global one if updates share it, then the client's own if any.

        The accuracy of the first is the round's accuracy.
        """
        is_local = self.local_model is not None and self.has_local_model(config)
        is_local = is_local or self.personal_part(config) != "none"
        is_global = self.shares_model(config) and self.withheld_part(config) == "none"
        return (*((GLOBAL_MODEL,) if is_global else ()), *((LOCAL_MODEL,) if is_local else ()))

    def names_by_prototypes(self, config: MethodConfig, *, own_classes: bool = False) -> bool:
        """Whether a client needs the round's prototypes for its report.

        Args:
            config: The method's hyper-parameters.
            own_classes: Whether clients also choose among their own classes.
        """
        if own_classes and self.own_scores is not None:
            return True
        return self.scores is not None and LOCAL_MODEL in self.evaluated_models(config)


def fold_weights(
    num_examples: Sequence[int], config: MethodConfig, domains: Sequence[str] | None = None
) -> list[float]:
    """Return the weight of each client in the fold.

    Whole numbers, whose float64 products with float32 are exact, except where domains weigh alike. There each weight is one
    rounded quotient of whole numbers, and the same on any machine.

    Args:
        num_examples: Training samples of each client.
        config: Says what weighs.
        domains: The domain of each client; all are of one domain if None.
    """
    if config.averaging == "equal":
        return [1.0] * len(num_examples)
    if config.averaging == "weighted":
        return [float(count) for count in num_examples]
    of = [""] * len(num_examples) if domains is None else domains
    totals: Counter[str] = Counter()
    for domain, count in zip(of, num_examples, strict=True):
        totals[domain] += count
    return [count / totals[domain] for domain, count in zip(of, num_examples, strict=True)]


def per_class_counts(class_ids: IntArray, num_classes: int) -> IntArray:
    """Return the number of entries of each class, int64 `[M]`."""
    return np.bincount(class_ids, minlength=num_classes).astype(np.int64)


def class_means(prototypes: PrototypeSet, num_classes: int) -> FloatArray:
    """Return the plain mean of each class's prototypes, float32 `[M, D]` rounded once; zeros for a class without any."""
    means_MD = np.zeros((num_classes, prototypes.vectors.shape[1]))
    for class_id in np.unique(prototypes.class_ids):
        means_MD[class_id] = prototypes.vectors[prototypes.class_ids == class_id].mean(0, dtype=np.float64)
    return means_MD.astype(np.float32)


def most_rows_per_class(num_classes: int, num_clients: int) -> int:
    """Return how many prototypes of a class each client may upload, so that a round compares at most `MAX_PAIRS` pairs.

    One is allowed in any case.

    Args:
        num_classes: M.
        num_clients: K, the clients whose prototypes a round clusters.
    """
    return min(MAX_ROWS_PER_CLASS, max(1, math.isqrt(MAX_PAIRS // num_classes) // num_clients))


def excess_rows(prototypes: PrototypeSet, num_classes: int, max_per_class: int) -> str | None:
    """Return the sentence for a set with too many prototypes to upload, or None.

    Args:
        prototypes: The set; its class ids lie in [0, M).
        num_classes: M.
        max_per_class: Most prototypes of a class that the run allows.
    """
    if len(prototypes) > MAX_ROWS:
        return f"{len(prototypes)} prototypes, at most {MAX_ROWS}"
    counts_M = per_class_counts(prototypes.class_ids, num_classes)
    largest = int(counts_M.argmax())
    if counts_M[largest] > max_per_class:
        limit = f"{max_per_class} (admission.max_prototypes_per_class)"
        return f"{counts_M[largest]} prototypes of class {largest}, at most {limit}"
    return None
