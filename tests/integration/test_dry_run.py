"""`--dry-run` of `simulate`: what would run, and what is there already; nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import called
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import simulated, write_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    tiny_federation.write_data(folder)
    write_config(folder / "run.toml", tiny_federation.document(folder))
    return folder


def foreseen(data: Path, out: Path, *words: object) -> dict[str, Any]:
    arguments = ("--config", data / "run.toml", "--out", out, "--device", "cpu", "--dry-run", "--json", *words)
    code, text, said = called("simulate", *arguments)
    assert code == 0, said
    return dict(json.loads(text))


def everything(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def test_a_simulation_says_its_clients_and_its_folder(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, text, said = called("simulate", "--config", data / "run.toml", "--out", out, "--dry-run", "--device", "cpu")
    assert (code, said) == (0, "")
    lines = text.splitlines()
    assert lines == [
        "tiny: fedplcc, 3 rounds, 2 clients, 3 classes, seed 0",
        f"  left: npz:{data}/left.npz",
        f"  right: npz:{data}/right.npz",
        "a round: each of 2 clients receives 1.0 MB (2.1 MB in its first round) and at most 17.9 kB of prototypes and "
        "sends 1.0 MB and at most 8.3 kB of prototypes; at most 4.2 MB in all",
        f"folder: {out}, where nothing is yet",
        "nothing was written",
    ]
    assert not out.exists()
    assert foreseen(data, out, "--jobs", 2)["state"] == "new"


@pytest.mark.full
def test_a_run_that_is_there_is_named_and_one_that_is_in_the_way_is_refused(data: Path, tmp_path: Path) -> None:
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
    assert foreseen(data, out)["state"] == "finished"
    code, _, said = called(*words[:4], tmp_path / "none", "--dry-run", "--continue")
    assert (code, "holds no run to go on with" in said) == (2, True)


def test_data_that_cannot_be_read_are_said_before_a_night(data: Path, tmp_path: Path) -> None:
    document = tiny_federation.document(data)
    document["clients"]["left"] = {"data": f"npz:{data}/none.npz"}
    path = write_config(tmp_path / "run.toml", document)
    code, _, said = called("simulate", "--config", path, "--dry-run", "--out", tmp_path / "out")
    assert (code, "client left" in said) == (2, True)
