"""The benchmarks run and write what they found; how fast anything is, no test says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import simulated_round, steps
from fedplcc.shared.methods import METHODS
from tests.support import ROOT

pytestmark = pytest.mark.full


@pytest.mark.timeout(3600)
def test_every_benchmark_runs_and_writes_its_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--results", str(tmp_path)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    documents = {path.stem: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    names = {
        "connections",
        "finch",
        "fleet",
        "fold",
        "memory",
        "recovery",
        "round_profile",
        "rounds",
        "scrape",
        "simulated_round",
        "steps",
    }
    assert documents.keys() == names
    for name, document in documents.items():
        assert document["benchmark"] == name
        assert document["quick"]
        assert document["machine"]["cores"] >= 1
        assert document["versions"]["numpy"]
        assert document["rows"]
        for column in document["rows"][0]:
            assert column in answer.stdout
    (partitions,) = [row["same partitions"] for row in documents["finch"]["rows"] if row["who"] == "fedplcc"]
    assert partitions
    (fleet,) = documents["fleet"]["rows"]
    assert fleet["clients"] == 4
    assert (fleet["lost leases"], fleet["sent again"]) == (0, 0)
    assert documents["memory"]["within_a_limit"]["same bytes"]
    assert documents["rounds"]["phases"][0]["total"] > 0
    others = set(METHODS) - {"fedavg"}
    assert {row["method"] for row in documents["steps"]["rows"]} == others
    assert all(row["ratio"] > 0 for row in documents["steps"]["rows"])
    (simulated,) = documents["simulated_round"]["rows"]
    assert 0 < simulated["train (s)"] < simulated["round (s)"]
    assert documents["simulated_round"]["data"] == "noise"


def test_thousands_of_rounds_are_looked_at_from_time_to_time(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.by_hand.endurance", "--quick", "--results", str(tmp_path)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert answer.returncode == 0, answer.stderr
    document = json.loads((tmp_path / "endurance.json").read_text())
    assert [row["rounds"] for row in document["rows"]][-1] == document["rounds"] == 40
    assert document["most_waiting"] <= 1000


@pytest.mark.parametrize("name", ["poison", "poison.cost", "privacy"])
def test_attacks_and_the_cost_of_rules_are_measured(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--results", str(tmp_path)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert answer.returncode == 0, answer.stderr
    (path,) = tmp_path.iterdir()
    rows = json.loads(path.read_text())["rows"]
    assert rows
    assert all(str(row[column]) in answer.stdout for row in rows for column in ("rule", "from") if column in row)


@pytest.mark.parametrize("benchmark", [simulated_round, steps])
def test_a_device_that_is_not_there_is_named(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark", "--quick", "--device", "cuda:999"])
    with pytest.raises(SystemExit, match=r"^device 'cuda:999' is not there: torch .*; use auto or cpu$"):
        benchmark.main()
