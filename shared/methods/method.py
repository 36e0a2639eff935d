"""Method: a frozen record of what a federated method is: its hyper-parameters, its loss, its fold, and its parts.

A method file imports only the standard library, numpy, pydantic, `fedplcc.shared.types`, other methods and the pure modules
of this folder and of parts/. Its functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fedplcc.shared.methods.arrays import ArrayGroup, Block, ClientState, GroupSchema, ModelArrays
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.parts.part import (
    BeforeTraining,
    ClientEnd,
    Hook,
    Part,
    ServerResult,
    ServerRound,
    TaskView,
    has_hook,
)
from fedplcc.shared.methods.parts.personal import Personal, PersonalTensors
from fedplcc.shared.methods.parts.phases import Phase, TrainingPhases
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange
from fedplcc.shared.methods.parts.public import PublicLearning
from fedplcc.shared.methods.parts.slots import ServerSlots
from fedplcc.shared.methods.step import ClientLoss
from fedplcc.shared.types import ALONE_MODEL, BATCH_NORM, GLOBAL_MODEL, HEAD, LOCAL_MODEL, PARAMETERS, PrototypeSet

ReadBlock = Callable[[], Block]
Fold = Callable[[ReadBlock, Iterable[Block], Sequence[float], Any], Block]
PartKind = TypeVar("PartKind", bound=Part)
Value = TypeVar("Value")


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
        parts: What else it has, at most one part of a kind, in the order in which a round goes through them; see
            parts/part.py.
        neutral: Hyper-parameters under which the method is FedAvg to the last bit. A method without such a setting has none
            and says in its docstring why.
    """

    name: str
    paper: str
    config: type[MethodConfig]
    client_loss: ClientLoss
    fold: Fold
    parts: tuple[Part, ...] = ()
    neutral: Mapping[str, Any] | None = None

    def part(self, kind: type[PartKind]) -> PartKind | None:
        """Return the method's part of a kind; None where it has none."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    def has(self, hook: Hook) -> bool:
        """Whether a part says something by a hook."""
        return any(has_hook(part, hook) for part in self.parts)

    # -- Hooks of all parts together -----------------------------------------------------------------------------------

    def scalars(self, view: TaskView, config: MethodConfig) -> Mapping[str, float]:
        """Return the numbers that go to a client with its task."""
        return _joined(part.scalars(view, config) for part in self.parts)

    def sends(self, config: MethodConfig) -> tuple[str, ...]:
        """Return the groups of server arrays that go to clients with the task of training."""
        return tuple(name for part in self.parts for name in part.sends(config))

    def uploads(self, config: MethodConfig, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
        """Return the schema of each group that an update has beside its model, but for that of public images."""
        return _joined(part.uploads(config, num_classes, feature_dim) for part in self.parts)

    def before_training(self, before: BeforeTraining, config: MethodConfig) -> Mapping[str, ArrayGroup]:
        """Return what an update has beside its model, of the client's samples under the received model."""
        return _joined(part.before_training(before, config) for part in self.parts)

    def kept_before(self, before: BeforeTraining, made: Mapping[str, ArrayGroup], config: MethodConfig) -> ClientState:
        """Return what the client may keep of the same samples, which `kept_after` finds as `made`."""
        return _joined(part.kept_before(before, made, config) for part in self.parts)

    def start_of(self, received: ModelArrays, state: ClientState | None, config: MethodConfig) -> ModelArrays | None:
        """Return the model that a client trains from, or None for the received one."""
        made: ModelArrays | None = None
        for part in self.parts:
            made = part.start_model(received, made, state, config)
        return made

    def reference_models(
        self, received: ModelArrays, state: ClientState | None, config: MethodConfig
    ) -> Mapping[str, ModelArrays]:
        """Return the frozen models that the loss compares with, by name."""
        return _joined(part.reference_models(received, state, config) for part in self.parts)

    def loss_arrays(
        self, state: ClientState | None, received: Mapping[str, ArrayGroup], config: MethodConfig
    ) -> ArrayGroup:
        """Return what the loss wants in every mini-batch as constants, by name."""
        return _joined(part.loss_arrays(state, received, config) for part in self.parts)

    def kept_after(self, end: ClientEnd, config: MethodConfig) -> ClientState:
        """Return all that a client keeps after its training."""
        return _joined(part.next_state(end, config) for part in self.parts)

    def upload_fault(
        self, uploads: Mapping[str, ArrayGroup], class_counts: Sequence[int], config: MethodConfig
    ) -> str | None:
        """Return the first part's sentence for what is wrong with an update's groups; None where nothing is."""
        return next(filter(None, (part.upload_fault(uploads, class_counts, config) for part in self.parts)), None)

    def compared(self, uploads: Mapping[str, ArrayGroup]) -> Mapping[str, ArrayGroup]:
        """Return of an update's groups what is alike in size at honest clients, by all parts."""
        for part in self.parts:
            uploads = part.compared(uploads)
        return uploads

    def server_arrays(self, config: MethodConfig, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
        """Return the schema of each group of server arrays, but for that of public images."""
        return _joined(part.server_arrays(config, num_classes, feature_dim) for part in self.parts)

    def keeps_arrays(self, config: MethodConfig) -> bool:
        """Whether the server makes arrays after the fold."""
        return any(part.keeps_arrays(config) for part in self.parts)

    def server_step(self, step: ServerRound, config: MethodConfig) -> ServerResult:
        """Return all server arrays after the fold, and the head of the last part that made one."""
        made = ServerResult(arrays={})
        for part in self.parts:
            if part.keeps_arrays(config):
                now = part.server_step(step if made.head is None else replace(step, head=made.head), config)
                made = ServerResult(
                    arrays={**made.arrays, **now.arrays}, head=made.head if now.head is None else now.head
                )
        return made

    def size_fault(self, config: MethodConfig, num_classes: int, feature_dim: int) -> str | None:
        """Return the first part's sentence for a run that would be too much for the server; None where it is not."""
        return next(filter(None, (part.size_fault(config, num_classes, feature_dim) for part in self.parts)), None)

    def own_model(self, received: ModelArrays, state: ClientState | None, config: MethodConfig) -> ModelArrays | None:
        """Return the client's own model to evaluate, or None where it has none yet."""
        made: ModelArrays | None = None
        for part in self.parts:
            made = part.local_model(received, made, state, config)
        return made

    def alone_model(self, received: ModelArrays, state: ClientState | None, config: MethodConfig) -> ModelArrays | None:
        """Return the model of the client's own images alone to evaluate, or None where it has none yet."""
        found = (part.alone_model(received, state, config) for part in self.parts)
        return next((model for model in found if model is not None), None)

    # -- Facts of a method, which parts decide -------------------------------------------------------------------------

    def shares_model(self, config: MethodConfig) -> bool:
        """Whether updates carry the trained model."""
        return all(part.shares_model(config) for part in self.parts)

    def has_global_model(self, config: MethodConfig) -> bool:
        """Whether rounds make the global model: of those that updates carry, or by the server's step."""
        return self.shares_model(config) or any(part.makes_model(config) for part in self.parts)

    def server_slots(self, config: MethodConfig) -> Mapping[str, float]:
        """Return the first value of each slot by its name; none in a method without slots."""
        slots = self.part(ServerSlots)
        return {} if slots is None else slots.first_values(config)

    def keeps_server_state(self, config: MethodConfig) -> bool:
        """Whether the server keeps something from round to round."""
        return self.keeps_arrays(config) or bool(self.server_slots(config))

    def uses_public(self, config: MethodConfig) -> bool:
        """Whether a run needs public images."""
        public = self.part(PublicLearning)
        return public is not None and public.is_used(config)

    @property
    def keeps_client_state(self) -> bool:
        """Whether an update depends on state that the client kept from its previous one."""
        return self.has("next_state")

    def personal_part(self, config: MethodConfig) -> Personal:
        """Return the tensors that a client keeps for itself."""
        personal = self.part(PersonalTensors)
        return "none" if personal is None else personal.which(config)

    def withheld_part(self, config: MethodConfig) -> Personal:
        """Return the personal tensors that no update has."""
        personal = self.part(PersonalTensors)
        return "none" if personal is None or personal.is_uploaded(config) else personal.which(config)

    def phases(self, config: MethodConfig) -> tuple[Phase, ...]:
        """Return the phases of a client's training in a round; none where nothing is trained."""
        part = self.part(TrainingPhases)
        return (Phase(),) if part is None else part.phases(config)

    @property
    def has_prototypes(self) -> bool:
        """Whether clients upload prototypes and the aggregator sends global ones."""
        return self.prototype_kind is not None

    @property
    def prototype_kind(self) -> str | None:
        """Kind of the set that a client uploads; None in a method without prototypes."""
        exchange = self.part(PrototypeExchange)
        return None if exchange is None else exchange.kind

    def global_prototypes(
        self, sets: Sequence[PrototypeSet], previous: PrototypeSet, num_classes: int, config: MethodConfig
    ) -> PrototypeSet:
        """Return the global set of a round; the empty one of a method without prototypes. See `PrototypeExchange.merged`."""
        exchange = self.part(PrototypeExchange)
        return PrototypeSet.empty() if exchange is None else exchange.merged(sets, previous, num_classes, config)

    def needs_earlier_round(self, config: MethodConfig) -> bool:
        """Whether the method's own terms are left out in a client's first round, which is then FedAvg's.

        They need prototypes, or a model that the client kept. A method whose reference models are made of the received model
        alone acts at once.
        """
        is_of_kept_models = self.keeps_client_state and self.has("reference_models")
        return self.has_prototypes or (is_of_kept_models and not self.reference_models({}, None, config))

    def needed_tensor_lists(self, config: MethodConfig) -> tuple[str, ...]:
        """Return the lists of tensors that round 0's update must have (shared/types/payloads.py, `TENSOR_LISTS`)."""
        personal = self.personal_part(config)
        needed = {
            PARAMETERS: bool(self.server_slots(config)),
            HEAD: self.keeps_arrays(config) or personal == HEAD,
            BATCH_NORM: personal == BATCH_NORM,
        }
        return tuple(name for name, is_needed in needed.items() if is_needed)

    def evaluated_models(self, config: MethodConfig) -> tuple[str, ...]:
        """Return the models that a client's report covers: the global one if rounds make it, then the client's own if any,
        then that of its own images alone if any.

        The accuracy of the first is the round's accuracy.
        """
        is_global = self.has_global_model(config) and self.withheld_part(config) == "none"
        is_local = any(part.has_local_model(config) for part in self.parts)
        is_alone = any(part.has_alone_model(config) for part in self.parts)
        found = {GLOBAL_MODEL: is_global, LOCAL_MODEL: is_local, ALONE_MODEL: is_alone}
        return tuple(name for name, is_evaluated in found.items() if is_evaluated)

    def names_by_prototypes(self, config: MethodConfig, *, own_classes: bool = False) -> bool:
        """Whether a client needs the round's prototypes for its report.

        Args:
            config: The method's hyper-parameters.
            own_classes: Whether clients also choose among their own classes.
        """
        exchange = self.part(PrototypeExchange)
        if exchange is None:
            return False
        if own_classes and exchange.own_scores is not None:
            return True
        return exchange.scores is not None and LOCAL_MODEL in self.evaluated_models(config)


def _joined(mappings: Iterable[Mapping[str, Value]]) -> dict[str, Value]:
    """Return the entries of all mappings; of one name the last."""
    return {name: value for mapping in mappings for name, value in mapping.items()}
