"""Part: what a method has besides its loss and its fold, the client's half and the server's together.

A part is a frozen record of pure functions. What it does in a round it says by the hooks below, each of which does nothing
unless a part has it; server and trainers go through the parts of a method in their order. The other files of this folder are
the parts that methods of this package are made of; a method of another package may bring one of its own.

Shape legend: N samples of a client, D feature size, M classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fedplcc.shared.methods.arrays import ArrayGroup, ClientState, GroupSchema, ModelArrays
from fedplcc.shared.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """Facts about the run and one client of it that the numbers beside its task may depend on."""

    round: int
    num_examples: int
    """Training samples of the client, as it said when it was admitted to the run; so are those of the others."""
    mean_examples: float
    """Mean number of samples of the clients that may take part in this round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeTraining:
    """A client's samples under the received model, before it trains."""

    features_ND: FloatArray
    """In evaluation mode, without augmentation."""
    labels_N: IntArray
    num_classes: int
    head: ArrayGroup
    """Tensors of the received model's head, by name."""
    received: Mapping[str, ArrayGroup]
    """Server arrays that came with the task, by group; none before the first aggregation."""
    state: ClientState | None = None
    """State kept from its last committed update; None at its first participation."""
    round: int = 1
    seed: int = 0
    """Of the client in the run, the same in every round."""
    is_balanced: bool = False
    """Whether classes weigh alike in the score that the client's own model is to be good at."""
    groups: tuple[str, ...] = ()
    """The patient, lesion or camera of each sample; none where none are named."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What one hook works out of these samples and another needs too, by name of the note."""


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
    """Names of the tensors that the client keeps for itself; see personal.py."""
    made: ClientState = field(default_factory=dict)
    """What its parts made of its samples before the training, to be kept; see `Part.kept_before`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRound:
    """Inputs of the server's step after the fold of a round."""

    round: int
    seed: int
    """Of the run."""
    num_classes: int
    feature_dim: int
    uploads: Iterable[Mapping[str, ArrayGroup]]
    """What the cohort's updates have beside the model, by group, in client-id order; they are read one at a time."""
    arrays: Mapping[str, ArrayGroup]
    """Server arrays as the round before left them, by group; none in the first round."""
    start_head: ArrayGroup
    """Head of the model that clients started this round from, by tensor name."""
    head: ArrayGroup
    """Head of the folded model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResult:
    """What a server's step makes."""

    arrays: Mapping[str, ArrayGroup]
    """All groups that the part declares."""
    head: ArrayGroup | None = None
    """Tensors of the head that the round's model gets; the next round starts from the folded model all the same. None leaves
    the folded head."""


Hook = Literal["scalars", "next_state", "reference_models", "loss_arrays", "local_model"]
"""Hooks of which it matters whether a method has them at all."""


class Part:
    """Hooks of a part, in the order of a round. Configurations are the method's hyper-parameters."""

    __slots__ = ()

    # -- The task ------------------------------------------------------------------------------------------------------

    def scalars(self, view: TaskView, config: Any) -> Mapping[str, float]:
        """Return numbers that go to a client with its task; pure in what is recorded of the run."""
        return {}

    def sends(self, config: Any) -> tuple[str, ...]:
        """Return the groups of server arrays that go to clients with the task of training."""
        return ()

    # -- The client ----------------------------------------------------------------------------------------------------

    def start_model(
        self, received: ModelArrays, made: ModelArrays | None, state: ClientState | None, config: Any
    ) -> ModelArrays | None:
        """Return the model from which a client trains; None for the received one.

        Args:
            received: The round's model.
            made: What the parts before this one made of it; None for the received one.
            state: What the client kept from its last committed update; None where it kept nothing.
            config: The hyper-parameters.
        """
        return made

    def uploads(self, config: Any, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
        """Return the schema of each group of arrays that an update has beside its model."""
        return {}

    def before_training(self, before: BeforeTraining, config: Any) -> Mapping[str, ArrayGroup]:
        """Return these groups, of a client's samples under the received model; asked where `uploads` declares some."""
        return {}

    def kept_before(self, before: BeforeTraining, made: Mapping[str, ArrayGroup], config: Any) -> ClientState:
        """Return what the client may keep of the same samples; `made` is what all parts upload of them."""
        return {}

    def reference_models(
        self, received: ModelArrays, state: ClientState | None, config: Any
    ) -> Mapping[str, ModelArrays]:
        """Return frozen models by name under which the loss wants the features and logits of every mini-batch too.

        They are in evaluation mode.
        """
        return {}

    def loss_arrays(self, state: ClientState | None, received: Mapping[str, ArrayGroup], config: Any) -> ArrayGroup:
        """Return what the loss wants in every mini-batch as constants on the training device, by name.

        Args:
            state: What the client kept; None at its first participation.
            received: Server arrays that came with the task, by group; none before the first aggregation.
            config: The hyper-parameters.
        """
        return {}

    def next_state(self, end: ClientEnd, config: Any) -> ClientState:
        """Return what the client keeps for its next participation, once this update is committed."""
        return {}

    # -- The server ----------------------------------------------------------------------------------------------------

    def compared(self, uploads: Mapping[str, ArrayGroup]) -> Mapping[str, ArrayGroup]:
        """Return of an update's groups what is alike in size at honest clients; who differs much in it is named."""
        return uploads

    def upload_fault(self, uploads: Mapping[str, ArrayGroup], class_counts: Sequence[int], config: Any) -> str | None:
        """Return what is wrong with uploaded groups, which are as declared and finite; None where nothing is."""
        return None

    def server_arrays(self, config: Any, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
        """Return the schema of each group of small arrays that the server keeps from round to round.

        All of them are given whole, so their size has a limit, `MAX_ARRAY_BYTES`.
        """
        return {}

    def keeps_arrays(self, config: Any) -> bool:
        """Whether the server keeps such groups."""
        return bool(self.server_arrays(config, 1, 1))

    def server_step(self, step: ServerRound, config: Any) -> ServerResult:
        """Return the server's arrays after the fold; pure, and the same bytes on any machine."""
        return ServerResult(arrays={})

    def size_fault(self, config: Any, num_classes: int, feature_dim: int) -> str | None:
        """Return why a run of this size would be too much for the server; None where it is not. Asked at round 0."""
        return None

    # -- The evaluation ------------------------------------------------------------------------------------------------

    def shares_model(self, config: Any) -> bool:
        """Whether updates carry the trained model.

        Where they do not, the global model stays what round 0 made it, and clients evaluate their own.
        """
        return True

    def makes_model(self, config: Any) -> bool:
        """Whether the server's step makes a global model, which clients evaluate though updates carry none."""
        return False

    def has_local_model(self, config: Any) -> bool:
        """Whether clients have a model of their own to evaluate."""
        return False

    def local_model(
        self, received: ModelArrays, made: ModelArrays | None, state: ClientState | None, config: Any
    ) -> ModelArrays | None:
        """Return the client's own model to evaluate, beside the global one or in its place; None where it has none yet.

        Args:
            received: The round's model.
            made: What the parts before this one made.
            state: What the client kept from its last committed update; None where it kept nothing.
            config: The hyper-parameters.
        """
        return made

    def has_alone_model(self, config: Any) -> bool:
        """Whether clients also have a model of their own images alone to evaluate."""
        return False

    def alone_model(self, received: ModelArrays, state: ClientState | None, config: Any) -> ModelArrays | None:
        """Return the model that the client has of its own images alone, by the same recipe; None where it has none yet."""
        return None


def has_hook(part: Part, hook: Hook) -> bool:
    """Whether a part says something by a hook, whatever it says."""
    return getattr(type(part), hook) is not getattr(Part, hook)


def always(config: Any) -> bool:
    """Return True, whatever the configuration."""
    return True


def never(config: Any) -> bool:
    """Return False, whatever the configuration."""
    return False
