"""Server arrays: small named arrays that the server keeps, makes in one step after the fold, and sends; and what clients
upload for them beside their models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedplcc.shared.methods.arrays import ArrayGroup, ClientState, GroupSchema
from fedplcc.shared.methods.parts.part import BeforeTraining, Part, ServerResult, ServerRound

DeclaredGroups = Callable[[Any, int, int], Mapping[str, GroupSchema]]
"""`(config, num_classes, feature_dim) -> schemas by group`."""


def _no_groups(config: Any, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
    return {}


def _no_names(config: Any) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerArrays(Part):
    """Arrays that a method's server keeps, and what goes to clients and comes from them for these.

    Attributes:
        kept: The groups that the server keeps.
        step: `(step, config) -> result`: makes them after the fold, and may give the round's model another head.
        sent: `config -> groups` that go to clients with the task of training.
        uploaded: The groups that an update has beside its model.
        made: `(before, config) -> groups`: makes these of a client's samples under the received model.
        keeps: `(before, groups, config) -> state`: what the client may keep of the same samples; see `ClientEnd.made`.
        fault: `(uploads, class_counts, config) -> sentence`: what else is wrong with them, or None; the step must not fail
            on what passes.
        alike: `uploads -> groups`: what of them is alike in size at honest clients, where not all is; see `Part.compared`.
        too_large: `(config, num_classes, feature_dim) -> sentence`: why the step would take too long, or None.
        needs_linear_head: Whether the head must be one linear layer; another model is refused at round 0.
        makes_head: Whether the step's head makes the global model, so that updates need carry none.
    """

    kept: DeclaredGroups
    step: Callable[[ServerRound, Any], ServerResult]
    sent: Callable[[Any], tuple[str, ...]] = _no_names
    uploaded: DeclaredGroups = _no_groups
    made: Callable[[BeforeTraining, Any], Mapping[str, ArrayGroup]] | None = None
    keeps: Callable[[BeforeTraining, Mapping[str, ArrayGroup], Any], ClientState] | None = None
    fault: Callable[[Mapping[str, ArrayGroup], Sequence[int], Any], str | None] | None = None
    alike: Callable[[Mapping[str, ArrayGroup]], Mapping[str, ArrayGroup]] | None = None
    too_large: Callable[[Any, int, int], str | None] | None = None
    needs_linear_head: bool = False
    makes_head: bool = False

    def sends(self, config: Any) -> tuple[str, ...]:
        return self.sent(config)

    def uploads(self, config: Any, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
        return self.uploaded(config, num_classes, feature_dim)

    def before_training(self, before: BeforeTraining, config: Any) -> Mapping[str, ArrayGroup]:
        return {} if self.made is None else self.made(before, config)

    def kept_before(self, before: BeforeTraining, made: Mapping[str, ArrayGroup], config: Any) -> ClientState:
        return {} if self.keeps is None else self.keeps(before, made, config)

    def upload_fault(self, uploads: Mapping[str, ArrayGroup], class_counts: Sequence[int], config: Any) -> str | None:
        return None if self.fault is None else self.fault(uploads, class_counts, config)

    def compared(self, uploads: Mapping[str, ArrayGroup]) -> Mapping[str, ArrayGroup]:
        return uploads if self.alike is None else self.alike(uploads)

    def server_arrays(self, config: Any, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
        return self.kept(config, num_classes, feature_dim)

    def server_step(self, step: ServerRound, config: Any) -> ServerResult:
        return self.step(step, config)

    def makes_model(self, config: Any) -> bool:
        return self.makes_head

    def size_fault(self, config: Any, num_classes: int, feature_dim: int) -> str | None:
        return None if self.too_large is None else self.too_large(config, num_classes, feature_dim)
