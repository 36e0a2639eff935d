"""Runs whose data change: the same bytes everywhere, whatever is killed, and every update of the data of its own stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.types import RunStatus
from fedplcc.simulation import Observers, Simulation
from fedplcc.trainer.cancellation import Cancelled
from tests.support.federation import tiny_federation
from tests.support.federation.deployed import deployed
from tests.support.federation.simulations import hashed, simulated

pytestmark = pytest.mark.slow

CLASSES_OF_STAGES = [["thin"], ["wide", "plain"], ["plain"]]
STREAM = {"stages": 3, "rounds_per_stage": 1, "passes": 2, "classes": CLASSES_OF_STAGES}


def document(data: Path, method: str = "fedplcc", **stream: Any) -> dict[str, Any]:
    """Three stages, gone through twice; client `right` has nothing in the first one."""
    values = tiny_federation.document(data, method, training={"local_steps": 2}, stream={**STREAM, **stream})
    del values["run"]["rounds"]
    values["clients"]["right"]["data"] = f"npz:{without_thin(data)}"
    return values


def without_thin(data: Path) -> Path:
    """The data of client `right` without its first class."""
    path = data / "right-without-thin.npz"
    if not path.exists():
        arrays = dict(np.load(data / "right.npz"))
        is_kept = arrays["y_train"] > 0
        np.savez(path, **{**arrays, "x_train": arrays["x_train"][is_kept], "y_train": arrays["y_train"][is_kept]})
    return path


@pytest.fixture(scope="module")
def expected(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in one process, undisturbed."""
    out = tmp_path_factory.mktemp("streams") / "expected"
    simulated(document(data), out)
    return out


def lines_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_each_round_is_of_its_stage(expected: Path) -> None:
    lines = lines_of(expected)
    assert [(line["pass"], line["stage"]) for line in lines] == [(p, s) for p in (1, 2) for s in (1, 2, 3)]
    assert [line["cohort"] for line in lines] == [["left"], ["left", "right"], ["left", "right"]] * 2
    assert [line["num_examples"] for line in lines] == [8, 32, 16] * 2
    assert [len(line["accuracy_by_stage"]) for line in lines] == [1, 2, 3, 3, 3, 3]
    assert lines[-1]["class_counts"] == [16, 64 - 32, 64]
    first = lines[0]
    assert first["average_accuracy"] == first["accuracy_by_stage"][0]
    assert first["forgetting"] is first["backward_transfer"] is None
    rows = [line["accuracy_by_stage"][:stage] for stage, line in enumerate(lines[3:], start=1)]
    last = lines[-1]
    assert last["average_accuracy"] == pytest.approx(np.mean(rows[2]))
    assert last["backward_transfer"] == pytest.approx(np.mean([rows[2][0] - rows[0][0], rows[2][1] - rows[1][1]]))
    lost = [max(rows[0][0], rows[1][0]) - rows[2][0], rows[1][1] - rows[2][1]]
    assert last["forgetting"] == pytest.approx(np.mean(lost))


@pytest.mark.full
def test_parallel_clients_end_in_the_same_bytes(data: Path, expected: Path, tmp_path: Path) -> None:
    simulated(document(data), tmp_path / "out", jobs=2)
    assert hashed(tmp_path / "out") == hashed(expected)


def test_an_interruption_in_every_round_changes_no_byte(data: Path, expected: Path, tmp_path: Path) -> None:
    num_asked, num_interrupted = 0, 0

    def should_stop() -> bool:
        nonlocal num_asked
        num_asked += 1
        return num_asked % 23 == 0

    while True:
        simulation = Simulation(
            tiny_federation.federation(document(data)), tmp_path, request_id="r", device="cpu", observers=Observers()
        )
        try:
            run = simulation.run_to_end(should_stop)
            break
        except Cancelled:
            num_interrupted += 1
            assert num_interrupted < 60
        finally:
            lines = simulation.record().metrics_lines
            simulation.close()
    assert run.status is RunStatus.COMPLETED
    assert num_interrupted > 2
    assert [json.loads(line) for line in lines] == lines_of(expected)


def through_processes(values: dict[str, Any], folder: Path, *killed_after: int) -> list[dict[str, Any]]:
    """The lines of the run as processes, all of which are killed after these rounds."""
    with deployed(folder, values["clients"]) as running:
        run_id = running.control.create(tiny_federation.run_document(values)).run_id
        for number in killed_after:
            running.await_round(run_id, number)
            running.kill_all()
        running.await_round(run_id, 6)
        return running.lines(run_id)


@pytest.mark.parametrize(
    "is_killed", [False, pytest.param(True, marks=pytest.mark.full)], ids=["undisturbed", "killed between stages"]
)
def test_processes_end_in_the_same_bytes(is_killed: bool, data: Path, expected: Path, tmp_path: Path) -> None:
    values = document(data)
    assert through_processes(values, tmp_path, *((1, 3) if is_killed else ())) == lines_of(expected)


def planned(data: Path) -> dict[str, Any]:
    """Everything that may change at once: stages twice, data read anew, a client that comes and goes, means of stages."""
    values = document(data, "fedmlp", reload="stage", epoch_model="stage_mean")
    return {**values, "membership": {"right": "2-4"}, "evaluation": {"own_classes": True}}


@pytest.mark.full
def test_a_client_that_comes_and_goes_by_plan_leaves_the_same_bytes_everywhere(data: Path, tmp_path: Path) -> None:
    values = planned(data)
    simulated(values, tmp_path / "one")
    lines = lines_of(tmp_path / "one")
    assert [line["cohort"] for line in lines] == [["left"], ["left", "right"], ["left", "right"]] + [["left"]] * 3
    simulated(values, tmp_path / "two", jobs=2)
    assert hashed(tmp_path / "two") == hashed(tmp_path / "one")
    assert through_processes(values, tmp_path, 1, 4) == lines


@pytest.mark.parametrize("method", ["fedavg", "fedmlp"])
def test_clients_choose_among_the_classes_that_they_have_seen(method: str, data: Path, tmp_path: Path) -> None:
    values = document(data, method)
    simulated({**values, "evaluation": {"own_classes": True}}, tmp_path / "own")
    simulated(values, tmp_path / "plain")
    assert lines_of(tmp_path / "own") == lines_of(tmp_path / "plain"), "training is the same"
    reports = [json.loads(line) for line in (tmp_path / "own" / "evaluations.jsonl").read_text().splitlines()]
    plain = [json.loads(line) for line in (tmp_path / "plain" / "evaluations.jsonl").read_text().splitlines()]
    assert [[each for each in report["counts"] if "own" not in each["set_name"]] for report in reports] == [
        report["counts"] for report in plain
    ]
    for report in reports:
        counts = {(each["set_name"], each["model"]): each for each in report["counts"]}
        for model in {model for _, model in counts}:
            all_classes, own = counts["test", model], counts["test/own", model]
            assert own["total"] == all_classes["total"]
            if report["client_id"] == "left" and report["round"] == 1:
                assert own["correct"] == own["total"], "the only class that it has seen is right"
            if report["client_id"] == "right":
                assert own["correct"][0] == 0, "it has no image of the first class, and never names it"
