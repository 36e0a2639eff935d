"""`--dry-run`: what would run and how long it takes, by a sample of the training itself; nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.simulation.sample import timed_sample
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import simulated, write_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    tiny_federation.write_data(folder)
    write_config(folder / "run.toml", tiny_federation.document(folder))
    (folder / "compare.toml").write_text(
        '[datasets.stripes]\nconfig = "run.toml"\n[rows.average]\nmethod = "fedavg"\n[rows.clusters]\nmethod = "fedplcc"\n'
    )
    return folder


def called(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [*map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def foreseen(data: Path, out: Path, *words: object) -> dict[str, Any]:
    arguments = ("--config", data / "run.toml", "--out", out, "--device", "cpu", "--dry-run", "--json", *words)
    code, text, said = called("simulate", *arguments)
    assert code == 0, said
    return dict(json.loads(text))


def everything(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def test_a_simulation_says_its_clients_its_folder_and_its_minutes(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, text, said = called("simulate", "--config", data / "run.toml", "--out", out, "--dry-run", "--device", "cpu")
    assert (code, said) == (0, "training a sample, nothing of which is kept\n")
    lines = text.splitlines()
    assert lines[:4] == [
        "tiny: fedplcc, 3 rounds, 2 clients, 3 classes, seed 0",
        f"  left: npz:{data}/left.npz",
        f"  right: npz:{data}/right.npz",
        f"folder: {out}, where nothing is yet",
    ]
    assert lines[4].startswith("minutes: about ")
    assert lines[5:] == ["nothing was written"]
    assert not out.exists()
    document = foreseen(data, out, "--jobs", 2)
    assert (document["state"], document["minutes"] >= 0) == ("new", True)
    assert document["source"] in ("by a sample here", "roughly, by a part of a round here"), "on a busy machine"


@pytest.mark.full
def test_a_run_that_is_there_is_not_sampled_and_one_that_is_in_the_way_is_refused(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    simulated(tiny_federation.document(data), out)
    before = everything(out)
    document = foreseen(data, out)
    assert document["state"] == "begun", "its state is there, so the command would read the end from it"
    words = ("simulate", "--config", data / "run.toml", "--out", out, "--device", "cpu")
    assert foreseen(data, out, "--rounds", 4, "--continue")["state"] == "shorter"
    code, _, said = called(*words, "--rounds", 4, "--dry-run")
    assert (code, "holds a run of another configuration" in said) == (2, True)
    assert everything(out) == before
    assert called(*words)[0] == 0, "which removes the state"
    document = foreseen(data, out)
    assert (document["state"], document["source"]) == ("finished", "as it took")
    timings = [json.loads(line) for line in (out / "timings.jsonl").read_text().splitlines()]
    assert document["minutes"] == round(sum(line["seconds"]["total"] for line in timings) / 60, 2)
    code, _, said = called(*words[:4], tmp_path / "none", "--dry-run", "--continue")
    assert (code, "holds no run to go on with" in said) == (2, True)


def test_data_that_cannot_be_read_are_said_before_a_night(data: Path, tmp_path: Path) -> None:
    document = tiny_federation.document(data)
    document["clients"]["left"] = {"data": f"npz:{data}/none.npz"}
    path = write_config(tmp_path / "run.toml", document)
    code, _, said = called("simulate", "--config", path, "--dry-run", "--out", tmp_path / "out")
    assert (code, "client left" in said) == (2, True)


@pytest.mark.full
def test_a_comparison_trains_a_sample_of_each_row_that_has_no_finished_cell(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("compare", "--config", data / "compare.toml", "--out", out, "--device", "cpu")
    assert called(*words, "--only", "average")[0] == 0
    before = everything(tmp_path)
    document = json.loads(called(*words, "--dry-run", "--json")[1])
    assert everything(tmp_path) == before
    assert [(row["row"], row["to_train"]) for row in document["rows"]] == [("average", 0), ("clusters", 1)]
    assert document["rows"][0]["source"] == "finished"
    assert document["rows"][1]["source"] in ("sample", "partial"), "on a busy machine"
    assert document["minutes"] == document["rows"][1]["minutes_per_cell"] is not None


def test_a_sample_is_the_time_of_reading_and_of_all_rounds(data: Path) -> None:
    """The clock advances by a second each time it is asked; what a round costs is what its two commits are apart."""
    federation = tiny_federation.federation(tiny_federation.document(data, run={"rounds": 1000}))
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.001
        return now

    found = timed_sample(federation, device="cpu", clock=clock)
    assert found is not None
    assert found.num_rounds == 2
    short = timed_sample(federation, device="cpu", clock=clock, budget_s=0.0)
    assert short is None or short.num_rounds == 0
    assert now < found.seconds, "a thousand rounds last longer than two"
