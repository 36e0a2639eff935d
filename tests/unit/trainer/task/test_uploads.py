"""What an update has beside its model: the groups of the method, in the order that the aggregator asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedplcc.shared import methods
from fedplcc.shared.config.declared_arrays import declared_uploads
from fedplcc.shared.methods.arrays import ArrayGroup
from fedplcc.shared.methods.parts.arrays import ServerArrays
from fedplcc.shared.methods.parts.part import ServerResult
from fedplcc.shared.tensors import to_bytes
from fedplcc.shared.types import MODEL, Payload, Task, TaskKind
from fedplcc.trainer.models import state_arrays
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from tests.unit.trainer.builders import a_config, a_model, a_spec
from tests.unit.trainer.memory_aggregator import MemoryAggregator


def test_a_methods_groups_stand_beside_the_model_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("tokens", "angles")

    def groups(*_: object) -> Mapping[str, ArrayGroup]:
        return {name: {"sums": np.ones(3, np.float32)} for name in names}

    sending = replace(
        methods.METHODS["fedavg"],
        parts=(
            ServerArrays(
                kept=lambda config, num_classes, feature_dim: {},
                step=lambda step, config: ServerResult(arrays={}),
                uploaded=lambda config, num_classes, feature_dim: {name: {"sums": ("F32", (3,))} for name in names},
                made=groups,
            ),
        ),
    )
    monkeypatch.setitem(methods._added, "fedavg", sending)
    config = a_config(training={"local_steps": 1})
    x, y = np.zeros((6, 16, 16, 3), np.uint8), np.arange(6) % 3
    np.savez(tmp_path / "images.npz", x_train=x, y_train=y, x_test=x, y_test=y, classes=["cat", "dog", "owl"])
    aggregator = MemoryAggregator()
    run = a_spec(config)
    model = aggregator.offer(MODEL, to_bytes(state_arrays(a_model(config))))
    task = Task(kind=TaskKind.TRAIN, run=run, round=1, total_rounds=3, payload=Payload(tensor_groups=(model,)))
    site = ClientSite.at("ann", "hospital", f"npz:{tmp_path / 'images.npz'}", device="cpu")
    TaskRunner(site, ClientStates(tmp_path / "state")).perform(task, aggregator)
    ((_, update),) = aggregator.updates
    sent = [blob.role for blob in update.payload.tensor_groups]
    assert sent == [MODEL, *sorted(declared_uploads(config, 512))] == [MODEL, *sorted(names)]
