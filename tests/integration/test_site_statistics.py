"""Whole runs with BatchNorm statistics of sites: the same training, the same bytes everywhere, and models for new sites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from tests.support.federation import tiny_federation
from tests.support.federation.deployed import deployed
from tests.support.federation.simulations import hashed, simulated

pytestmark = pytest.mark.slow

AT_SITE = {"evaluation": {"batch_norm": "site", "confusion": True}}
SHORT = {"local_steps": 1, "learning_rate": 0.001}
"""So little training that models make mistakes, each its own."""
FROM_SITE = {"training": {"prototype_statistics": "site"}}


def document(data: Path, **sections: Any) -> dict[str, Any]:
    """Three rounds of a small ResNet, whose clients set images aside and one of which takes part of the others."""
    values = tiny_federation.document(
        data,
        model={"name": "resnet10", "stem": "cifar3x3"},
        training={**SHORT, **sections.pop("training", {})},
        **sections,
    )
    values["data"]["validation_every"] = 4
    values["clients"]["right"]["samples_per_class"] = 3
    return values


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run with evaluation at the sites, and the same one with prototypes of the sites besides."""
    folder = tmp_path_factory.mktemp("site-statistics")
    for name, sections in (("site", AT_SITE), ("both", AT_SITE | FROM_SITE)):
        simulated(document(data, **sections), folder / name)
    return folder


def lines_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.full
def test_evaluation_at_the_sites_changes_nothing_but_reports(data: Path, runs: Path, tmp_path: Path) -> None:
    simulated(document(data), tmp_path)
    lines = lines_of(runs / "site")
    assert all(line["accuracy_local"] != line["accuracy"] for line in lines)
    without = [{key: line[key] for key in line if key not in ("accuracy_local", "macro_f1")} for line in lines]
    assert without == lines_of(tmp_path)
    for name in ("model.safetensors", "prototypes.safetensors"):
        assert (runs / "site" / name).read_bytes() == (tmp_path / name).read_bytes()


@pytest.mark.full
def test_parallel_clients_and_processes_end_in_the_same_bytes(data: Path, runs: Path, tmp_path: Path) -> None:
    values = document(data, **AT_SITE, **FROM_SITE)
    simulated(values, tmp_path / "parallel", jobs=2)
    assert hashed(tmp_path / "parallel") == hashed(runs / "both")
    with deployed(tmp_path, values["clients"]) as running:
        assert [json.loads(line) for line in running.control.run_to_end(values)] == lines_of(runs / "both")


def adapted_and_evaluated(model: Path, data: Path, file: Path, calibration: Path, *subset: str) -> dict[str, Any]:
    """What an evaluation on a site's test images says of a model that was adapted to its training images."""
    calls = [
        ["adapt", str(model), "--data", f"npz:{calibration}", "--out", str(file), *subset],
        ["evaluate", str(file), "--data", f"npz:{data}", "--out", str(file.parent), "--json"],
    ]
    for call in calls:
        result = CliRunner().invoke(app, ["model", *call, "--device", "cpu"])
        assert result.exit_code == 0, result.output
    said: dict[str, Any] = json.loads(result.stdout)
    return said


def reported(run: Path, client: str) -> tuple[float, list[list[int]]]:
    """The accuracy of a client's site model in the last round, and its confusion matrix."""
    reports = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    (counts,) = [
        counts
        for report in reports[-2:]
        for counts in report["counts"]
        if (report["client_id"], counts["model"], counts["set_name"]) == (client, "local", "test")
    ]
    return lines_of(run)[-1]["accuracy_local"][client], counts["confusion"]


def test_a_model_that_is_adapted_to_a_sites_training_images_has_its_reported_accuracy(
    data: Path, runs: Path, tmp_path: Path
) -> None:
    for name in ("site", "both"):
        for client in tiny_federation.CLIENTS:
            images, file = data / f"{client}.npz", tmp_path / f"{name}-{client}.safetensors"
            subset = ("--client", client) if client == "right" else ()
            said = adapted_and_evaluated(runs / name, images, file, images, *subset)
            assert (said["accuracy"], said["confusion"]) == reported(runs / name, client)
            assert 0 < said["accuracy"] < 1, "it could be another"


@pytest.mark.full
def test_in_a_stream_statistics_are_of_the_images_of_the_present_stage(data: Path, tmp_path: Path) -> None:
    """Client `right` has nothing to train on in the first stage, and takes no part in it."""
    stream = {"stages": 2, "rounds_per_stage": 1, "classes": [["thin"], ["wide", "plain"]]}
    for client in tiny_federation.CLIENTS:
        arrays = dict(np.load(data / f"{client}.npz"))
        is_kept = arrays["y_train"] > 0
        kept = {"x_train": arrays["x_train"][is_kept], "y_train": arrays["y_train"][is_kept]}
        np.savez(tmp_path / f"{client}.npz", **{**arrays, **kept})
    for name, sections in (("plain", {}), ("site", AT_SITE)):
        values = tiny_federation.document(
            data, "fedavg", model={"name": "resnet10"}, training=SHORT, stream=stream, **sections
        )
        del values["run"]["rounds"]
        values["clients"]["right"]["data"] = f"npz:{tmp_path / 'right.npz'}"
        simulated(values, tmp_path / name)
    lines = lines_of(tmp_path / "site")
    assert [line["cohort"] for line in lines] == [["left"], ["left", "right"]]
    assert [
        {key: line[key] for key in line if key not in ("accuracy_local", "macro_f1")} for line in lines
    ] == lines_of(tmp_path / "plain")
    for client in tiny_federation.CLIENTS:
        images, seen = data / f"{client}.npz", tmp_path / f"{client}.npz"
        said = adapted_and_evaluated(tmp_path / "site", images, tmp_path / f"{client}.safetensors", seen)
        assert (said["accuracy"], said["confusion"]) == reported(tmp_path / "site", client)
