"""Whole federations in one process: the same bytes each time, whatever interrupts them, and clear ends."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.command.exit_codes import ExitCode, exit_code_of
from fedplcc.interruption import Interrupted
from fedplcc.runs.artifacts import EVALUATIONS, FILES, MANIFEST, METRICS, MODEL, PROTOTYPES, RELIABILITY
from fedplcc.shared.errors import DiskFull, InvalidConfig, InvalidData
from fedplcc.simulation import Simulation
from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.processes import eventually
from tests.support.federation.simulations import hashed, simulated, write_config

pytestmark = pytest.mark.slow

RUN_S = 120.0


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "fedplcc", *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("method", ["fedavg", "fedplcc"])
def test_a_simulation_run_twice_gives_the_same_bytes_and_leaves_every_file(
    data: Path, tmp_path: Path, method: str
) -> None:
    values = tiny_federation.document(data, method)
    last = simulated(values, tmp_path / "one")
    simulated(values, tmp_path / "two")
    assert hashed(tmp_path / "one") == hashed(tmp_path / "two")
    assert {*FILES, EVALUATIONS} <= {path.name for path in (tmp_path / "one").iterdir()}
    assert hashed(tmp_path / "one")["model.safetensors"] == last["model_sha256"]
    assert hashed(tmp_path / "one")["prototypes.safetensors"] == last["prototypes_sha256"]
    assert last["round"] == 3
    assert (last["prototypes"]["global"] > 0) == (method == "fedplcc")
    manifest = json.loads((tmp_path / "one" / "run.json").read_text())
    assert manifest["config"]["run"]["method"] == method
    assert {entry["num_examples"] for entry in manifest["clients"].values()} == {24}
    assert all(entry["environment"]["packages"]["torch"] for entry in manifest["clients"].values())


def test_confusion_and_histograms_are_kept_where_the_run_asks_and_change_nothing_else(
    data: Path, tmp_path: Path
) -> None:
    simulated(tiny_federation.document(data), tmp_path / "without")
    details = {"confusion": True, "histograms": True}
    simulated(tiny_federation.document(data, evaluation=details), tmp_path / "with")
    for name in (MODEL, PROTOTYPES):
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()
    lines = [
        [json.loads(line) for line in (tmp_path / name / METRICS).read_text().splitlines()]
        for name in ("without", "with")
    ]
    scores = ("macro_f1", "auc", "calibration_error")
    assert all(line.keys() >= set(scores) for line in lines[1])
    assert [{key: line[key] for key in line if key not in scores} for line in lines[1]] == lines[0]
    assert (tmp_path / "with" / RELIABILITY).exists()
    without_any, known = (json.loads((tmp_path / name / MANIFEST).read_text())["score"] for name in ("without", "with"))
    beside = known.pop("beside")
    assert known == without_any
    assert beside.keys() == {"macro_f1", "auc"}
    for score, found in beside.items():
        assert {name: each["value"] for name, each in found.items()} == lines[1][-1][score]
        assert all(each["low"] <= each["value"] <= each["high"] for each in found.values())
    plain, asked = ((tmp_path / name / EVALUATIONS).read_text().splitlines() for name in ("without", "with"))
    assert "confusion" not in "".join(plain)
    for without, line in zip(plain, asked, strict=True):
        report = json.loads(line)
        for counts in report["counts"]:
            matrix = np.array(counts.pop("confusion"))
            assert matrix.diagonal().tolist() == counts["correct"]
            assert matrix.sum(axis=1).tolist() == counts["total"]
            assert counts.pop("scores")["recall"] == [
                hits / n for hits, n in zip(counts["correct"], counts["total"], strict=True)
            ]
            assert sum(each["num_examples"] for each in counts.pop("calibration")["reliability"]) == sum(
                counts["total"]
            )
        assert report == json.loads(without)


@pytest.mark.parametrize(
    ("method", "num_asked"),
    [("fedplcc", 0), ("fedplcc", 9), ("moon", 25)],
)
def test_interrupted_and_continued_equals_uninterrupted(
    data: Path, tmp_path: Path, method: str, num_asked: int
) -> None:
    """Interrupted when it asks for the n-th time whether to stop: before, within and between tasks."""
    values = tiny_federation.document(data, method)
    simulated(values, tmp_path / "whole")
    asked = 0

    def stop_once() -> bool:
        nonlocal asked
        asked += 1
        return asked > num_asked

    with pytest.raises(Interrupted):
        simulated(values, tmp_path / "parts", should_stop=stop_once)
    assert not (tmp_path / "parts" / "run.json").exists()
    simulated(values, tmp_path / "parts")
    assert hashed(tmp_path / "parts") == hashed(tmp_path / "whole")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("npz:/nowhere/at-all.npz", "at-all.npz"),
        ("digits:mnits", "mnits"),
        ("no_such_module:factory", "no_such_module"),
    ],
)
def test_a_client_whose_data_cannot_be_used_ends_it_with_a_sentence(
    data: Path, tmp_path: Path, spec: str, said: str
) -> None:
    values = tiny_federation.document(data)
    values["clients"]["right"] = {"data": spec}
    with pytest.raises(InvalidData, match=f"client right: .*{said}"):
        simulated(values, tmp_path / "out")


def test_a_specification_that_is_corrected_is_trained_in_the_same_folder_and_then_keeps_it(
    data: Path, tmp_path: Path
) -> None:
    values = tiny_federation.document(data)
    wrong = {**values, "clients": {**values["clients"], "right": {"data": "digits:mnits"}}}
    with pytest.raises(InvalidData, match="client right"):
        simulated(wrong, tmp_path / "out")
    with pytest.raises(Interrupted):  # its state has what clients sent
        simulated(values, tmp_path / "out", should_stop=lambda: (tmp_path / "out/state/aggregator/trainers").exists())
    with pytest.raises(InvalidConfig, match=r"another configuration \(clients\.right\."):
        simulated(wrong, tmp_path / "out")
    simulated(values, tmp_path / "out")
    simulated(values, tmp_path / "whole")
    assert hashed(tmp_path / "out") == hashed(tmp_path / "whole")


def test_a_full_disk_ends_it_with_a_sentence_and_with_room_it_goes_on(data: Path, tmp_path: Path) -> None:
    """The kernel refuses what goes beyond a file's size: the database is smaller, the model is not."""
    values = tiny_federation.document(data, "moon", run={"rounds": 1})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
    try:
        with pytest.raises(DiskFull, match=r"client left: the state directory of this client .* make room") as refused:
            simulated(values, tmp_path / "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert exit_code_of(refused.value) is ExitCode.STORAGE
    simulated(values, tmp_path / "full")
    simulated(values, tmp_path / "whole")
    assert hashed(tmp_path / "full") == hashed(tmp_path / "whole")


def test_a_device_that_is_not_there_is_said_before_anything_begins(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cuda:99"):
        Simulation(
            tiny_federation.federation(tiny_federation.document(data)), tmp_path, request_id="r", device="cuda:99"
        )


def test_a_killed_command_goes_on_and_prints_one_json_line_at_the_end(data: Path, tmp_path: Path) -> None:
    values = tiny_federation.document(data, training={"local_steps": 40})
    simulated(values, tmp_path / "whole")
    config, out = write_config(tmp_path / "tiny_federation.toml", values), tmp_path / "out"
    words = ["simulate", "--config", str(config), "--device", "cpu", "--out", str(out), "--json"]
    with (tmp_path / "progress").open("wb") as progress:
        first = subprocess.Popen(command(*words), stdout=subprocess.DEVNULL, stderr=progress, env=environment())
        eventually(lambda: " 1 " in (tmp_path / "progress").read_text() or first.poll() is not None, "round 1", RUN_S)
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert not (out / "run.json").exists(), "it was too quick to be killed"

    second = CliRunner().invoke(app, words)
    assert second.exit_code == 0, second.stderr
    (line,) = second.stdout.splitlines()
    document = json.loads(line)
    assert hashed(out) == hashed(tmp_path / "whole")
    assert document.keys() >= {
        "run_id",
        "rounds",
        "directory",
        "round",
        "accuracy",
        "loss",
        "prototypes",
        "model_sha256",
        "prototypes_sha256",
    }
    assert (document["rounds"], document["round"], document["directory"]) == (3, 3, str(out))
    assert document["accuracy"].keys() == {"left", "right", "mean", "worst"}
    assert document["prototypes"].keys() == {"local", "global"}
    assert not (out / "state").exists()

    third = CliRunner().invoke(app, words)
    assert (third.exit_code, third.stdout) == (0, second.stdout)
    assert "holds this run already" in third.stderr
    other = CliRunner().invoke(app, [*words, "--seed", "1"])
    assert other.exit_code == 2
    assert "another configuration" in other.stderr


def test_a_training_whose_output_nobody_reads_any_more_leaves_its_results(data: Path, tmp_path: Path) -> None:
    config, out = tmp_path / "run.toml", tmp_path / "out"
    write_config(config, tiny_federation.document(data))
    words = command("simulate", "--config", config, "--out", out, "--device", "cpu")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        process.stdout = None
        _, error = process.communicate(timeout=RUN_S)
    assert (process.returncode, error) == (ExitCode.OK, b"")
    assert {path.name for path in out.iterdir()} >= set(FILES)
