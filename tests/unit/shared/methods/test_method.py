"""A method asks all of its parts, in their order; what one makes, the next one sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared import methods
from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arrays import ArrayGroup, ClientState, GroupSchema, ModelArrays
from fedplcc.shared.methods.parts.own_model import OwnModel
from fedplcc.shared.methods.parts.part import BeforeTraining, ClientEnd, Part, ServerResult, ServerRound, TaskView
from fedplcc.shared.methods.parts.personal import PersonalTensors
from fedplcc.shared.methods.parts.slots import ServerSlots
from fedplcc.shared.tensors import from_bytes
from tests.support.federation.in_process import LocalFederation

CONFIG = fedavg.Config()
RECEIVED = {"base": np.zeros(2, np.float32), "head": np.zeros(1, np.float32)}


@dataclass(frozen=True)
class Sum(Part):
    """Clients say a number, and the server keeps the sum of the round's; so may another one of another name."""

    name: str
    number: float

    def scalars(self, view: TaskView, config: Any) -> Mapping[str, float]:
        return {self.name: self.number}

    def uploads(self, config: Any, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
        return {f"{self.name}_said": {"number": ("F32", (1,))}}

    def before_training(self, before: BeforeTraining, config: Any) -> Mapping[str, ArrayGroup]:
        return {f"{self.name}_said": {"number": np.array([self.number], np.float32)}}

    def server_arrays(self, config: Any, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
        return {self.name: {"sum": ("F32", (1,))}}

    def server_step(self, step: ServerRound, config: Any) -> ServerResult:
        said = [groups[f"{self.name}_said"]["number"] for groups in step.uploads]
        head = {name: tensor + 1 for name, tensor in step.head.items()}
        total = np.asarray(np.sum(said, axis=0, dtype=np.float32))
        return ServerResult(arrays={self.name: {"sum": total}}, head=head)

    def next_state(self, end: ClientEnd, config: Any) -> ClientState:
        return {self.name: np.array([self.number], np.float32)}

    def upload_fault(self, uploads: Mapping[str, ArrayGroup], class_counts: object, config: Any) -> str | None:
        return f"{self.name} finds something" if uploads.get("broken") else None


class Other(Sum):
    """Another kind of part."""


TWO = replace(fedavg.METHOD, parts=(Sum("first", 1.0), Other("second", 10.0)))


def own(received: ModelArrays, state: ClientState | None, config: Any) -> ModelArrays | None:
    return None if state is None else {"base": state["own"], "head": state["own"][:1]}


def test_fedavg_has_no_part_and_nothing_but_its_fold() -> None:
    assert fedavg.METHOD.parts == ()
    assert not fedavg.METHOD.keeps_client_state
    assert not fedavg.METHOD.keeps_server_state(CONFIG)
    assert fedavg.METHOD.evaluated_models(CONFIG) == ("global",)
    assert fedavg.METHOD.needed_tensor_lists(CONFIG) == ()
    assert fedavg.METHOD.start_of(RECEIVED, {}, CONFIG) is None


def test_what_all_parts_declare_stands_together() -> None:
    end = ClientEnd(received=RECEIVED, trained=RECEIVED, state=None, round=1)
    view = TaskView(round=1, num_examples=3, mean_examples=3.0)
    assert TWO.scalars(view, CONFIG) == {"first": 1.0, "second": 10.0}
    assert list(TWO.uploads(CONFIG, 3, 4)) == ["first_said", "second_said"]
    assert list(TWO.server_arrays(CONFIG, 3, 4)) == ["first", "second"]
    assert {name: array.tolist() for name, array in TWO.kept_after(end, CONFIG).items()} == {
        "first": [1.0],
        "second": [10.0],
    }
    assert TWO.keeps_client_state
    assert TWO.keeps_server_state(CONFIG)
    assert TWO.upload_fault({"broken": {"x": np.ones(1)}}, [], CONFIG) == "first finds something"


def test_a_part_sees_the_model_that_the_one_before_it_made() -> None:
    method = replace(
        fedavg.METHOD, parts=(OwnModel(local=own, start=own), PersonalTensors(which=lambda config: "head"))
    )
    state = {"own": np.full(2, 5.0, np.float32), "head": np.full(1, 7.0, np.float32)}
    for found in (method.start_of(RECEIVED, state, CONFIG), method.own_model(RECEIVED, state, CONFIG)):
        assert found is not None
        assert {name: array.tolist() for name, array in found.items()} == {"base": [5.0, 5.0], "head": [7.0]}
    assert method.start_of(RECEIVED, None, CONFIG) is None


def test_a_part_is_found_by_its_kind() -> None:
    assert TWO.part(Other) is TWO.parts[1]
    assert TWO.part(ServerSlots) is None


def test_two_parts_of_strangers_go_through_the_same_uploads_and_heads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(methods._added, "fedavg", TWO)
    with LocalFederation.small(tmp_path / "state") as federation:
        federation.join()
        run = federation.run_to_end(federation.create("fedavg", run={"rounds": 2}).run_id)
        last = federation.coordinator.list_rounds(run.run_id)[-1]

        def stored(sha256: str) -> dict[str, Any]:
            return from_bytes((tmp_path / "state" / "blobs" / sha256[:2] / sha256).read_bytes())

        assert {name: stored(blob.sha256)["sum"].tolist() for name, blob in last.server_state.items()} == {
            "first": [2.0],
            "second": [20.0],
        }
        assert last.model is not None
        assert last.start is not None
        result, start = stored(last.model.sha256), stored(last.start.sha256)
        for name, value in result.items():
            gap = 2.0 if name.startswith("head.") else 0.0
            np.testing.assert_allclose(value, start[name] + gap, rtol=1e-6)
