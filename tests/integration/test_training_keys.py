"""One run with every change of images, layers and features in training: the same bytes twice, and as processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.config.tables.training import AUGMENTATIONS
from tests.support.federation import tiny_federation
from tests.support.federation.deployed import deployed
from tests.support.federation.simulations import hashed, simulated

pytestmark = pytest.mark.slow


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
    with deployed(tmp_path / "processes", document(data)["clients"]) as running:
        assert [json.loads(line) for line in running.control.run_to_end(document(data))] == lines
