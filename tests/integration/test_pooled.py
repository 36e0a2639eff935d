"""A model of all clients' images together beside a simulated run: its numbers, its report, and that no deployment has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.interruption import Interrupted
from fedplcc.runs.artifacts import describe, read_record
from fedplcc.trainer.cancellation import never
from fedplcc.trainer.data import ImageSet
from fedplcc.trainer.learning.alone import train_alone
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.models import state_arrays
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import hashed, simulated, write_config
from tests.unit.trainer.builders import CPU, a_config, a_model, some_data, some_images

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_workers")]


def a_document(data: Path, joining: str | bool = "pooled") -> dict[str, Any]:
    evaluation = {"joining": joining, "confusion": True}
    return tiny_federation.document(
        data, "fedavg", run={"rounds": 2}, data={"validation_every": 3}, evaluation=evaluation
    )


def test_images_of_two_sets_are_trained_on_as_those_of_one() -> None:
    config = a_config()
    one, other, found, expected = some_data(), some_data(9, seed=1), a_model(config), a_model(config)
    train_alone(found, DeviceImages.joined([one, other]), config, "pooled", should_stop=never)
    both = some_images(), some_images(9, seed=1)
    images_NSS3, labels_N = (
        np.concatenate(each) for each in zip(*((of.images_NSS3, of.labels_N) for of in both), strict=True)
    )
    together = DeviceImages.put(ImageSet(images_NSS3, labels_N), config.data, CPU)
    train_alone(expected, together, config, "pooled", should_stop=never)
    for name, array in state_arrays(found).items():
        np.testing.assert_array_equal(array, state_arrays(expected)[name])
    views = [
        each.with_features(np.full((len(each), 3, 2), number, np.float32)) for number, each in enumerate((one, other))
    ]
    views_NVW = DeviceImages.joined(views).views_NVW
    assert views_NVW is not None
    torch.testing.assert_close(views_NVW[:, 2, 0], torch.tensor([0.0] * 12 + [1.0] * 9))


def test_a_simulation_has_it_whatever_works_and_wherever_it_was_interrupted(data: Path, tmp_path: Path) -> None:
    last = simulated(a_document(data), tmp_path / "run")
    assert {*last["accuracy_pooled"]} == {*tiny_federation.CLIENTS, "mean", "worst"}
    record = read_record(tmp_path / "run")
    assert any(
        text.startswith("accuracy of one model of all images together: mean ") for text in describe(record, tmp_path)
    )
    for line in map(json.loads, record.evaluations_lines):
        of = {counts["model"]: counts for counts in line["counts"] if counts["set_name"] == "test"}
        assert ("pooled" in of) == (line["round"] == 2)
        if line["round"] == 2:
            share = sum(of["pooled"]["correct"]) / sum(of["pooled"]["total"])
            assert last["accuracy_pooled"][line["client_id"]] == pytest.approx(share)
    assert simulated(a_document(data), tmp_path / "parallel", jobs=2) == last
    plain = simulated(a_document(data, joining=True), tmp_path / "plain")
    assert {**plain, "accuracy_pooled": last["accuracy_pooled"]} == last
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > num_asked - 3

    num_asked = 10**9
    simulated(a_document(data), tmp_path / "counted", stop)
    num_asked, asked = asked, 0
    with pytest.raises(Interrupted):
        simulated(a_document(data), tmp_path / "cut", stop)
    assert not (tmp_path / "cut" / "run.json").exists()
    simulated(a_document(data), tmp_path / "cut")
    assert hashed(tmp_path / "cut") == hashed(tmp_path / "run")


def test_a_comparison_has_a_line_of_it(data: Path, tmp_path: Path) -> None:
    write_config(tmp_path / "run.toml", a_document(data))
    (tmp_path / "compare.toml").write_text('[datasets.stripes]\nconfig = "run.toml"\n\n[rows.avg]\nmethod = "fedavg"\n')
    words = ["compare", "--config", str(tmp_path / "compare.toml"), "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert CliRunner().invoke(app, words).exit_code == 0
    cell = tmp_path / "out" / "stripes" / "avg" / "seed-0" / "metrics.jsonl"
    pooled = json.loads(cell.read_text().splitlines()[-1])["accuracy_pooled"]
    report = (tmp_path / "out" / "report.md").read_text()
    line = next(line for line in report.splitlines() if "all images together" in line)
    assert [f"{100 * pooled[name]:.1f}" for name in (*tiny_federation.CLIENTS, "mean", "worst")] == [
        text.strip(" *") for text in line.split("|")[2:6]
    ]
