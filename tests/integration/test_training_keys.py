"""One run with every change of images, layers and features in training: the same bytes twice, and as processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.config.tables.training import AUGMENTATIONS
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from tests.support.federation import tiny_federation
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.processes import Federation, eventually
from tests.support.federation.simulations import hashed, simulated

pytestmark = pytest.mark.slow

RUN_S = 120.0


def document(data: Path) -> dict[str, Any]:
    """Left trains on half of its images, right on all of its own."""
    values = tiny_federation.document(
        data,
        run={"rounds": 3},
        model={"name": "resnet10", "stem": "imagenet5x5", "norm": "group"},
        training={"local_steps": 2, "augment": list(AUGMENTATIONS), "mix_style": {"probability": 1.0}},
    )
    values["clients"]["left"]["fraction"] = 0.5
    return values


@pytest.mark.full
def test_a_run_with_all_of_them_has_the_same_bytes_twice_and_as_processes(data: Path, tmp_path: Path) -> None:
    for name, jobs in (("once", 1), ("again", 2)):
        simulated(document(data), tmp_path / name, jobs=jobs)
    assert hashed(tmp_path / "once") == hashed(tmp_path / "again")
    lines = [json.loads(line) for line in (tmp_path / "once" / "metrics.jsonl").read_text().splitlines()]
    assert [line["num_examples"] for line in lines] == [12 + 24] * 3
    with Federation(tmp_path / "processes") as federation:
        federation.start_aggregator()
        federation.start_trainer("left", f"npz:{data / 'left.npz'}", "--fraction", "0.5")
        federation.start_trainer("right", f"npz:{data / 'right.npz'}")
        control = RunControl(federation.address, tls=federation.operator_tls)
        run_id = control.create(tiny_federation.run_document(document(data))).run_id
        ended = (types_pb2.RUN_STATUS_COMPLETED, types_pb2.RUN_STATUS_FAILED)
        eventually(lambda: control.get(run_id).status in ended, f"run {run_id} ends", RUN_S)
        assert [json.loads(line) for line in control.metrics_lines(run_id) if line] == lines
        control.close()
