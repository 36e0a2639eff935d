"""Runs with validation images and with more rounds later give the simulation's bytes as processes, whoever is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedplcc.runs.artifacts import BEST_MODEL, MODEL
from fedplcc.shared.steering import ExtendRun
from fedplcc.shared.tensors import sha256_hex
from tests.integration.test_methods_everywhere import RUN_S, shorter, simulated, validated
from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.deployed import deployed
from tests.support.federation.processes import eventually
from tests.support.federation.simulations import hashed, write_config
from tests.support.federation.simulations import simulated as simulated_in_folder

pytestmark = pytest.mark.slow


def test_a_run_goes_on_after_everybody_was_killed(data: Path, tmp_path: Path) -> None:
    """FedCCL's clients keep a model of their own, for which they must still have it."""
    values = validated(tiny_federation.document(data, "fedccl", training={"local_steps": 2}))
    (tmp_path / "simulated").mkdir()
    expected = simulated(values, tmp_path / "simulated")
    with deployed(tmp_path / "processes", values["clients"]) as running:
        run_id = running.control.create(tiny_federation.run_document(shorter(values))).run_id
        assert len(running.control.end_of(run_id)) == 2
        running.kill_all()
        eventually(lambda: len(running.control.clients()) == 2, "both joined", RUN_S)
        extended = running.control.steer(run_id, ExtendRun(rounds=3))
        assert extended.total_rounds == 3
        assert running.control.end_of(run_id) == expected.lines


def test_the_command_keeps_the_best_model_and_goes_on_in_the_folder(data: Path, tmp_path: Path) -> None:
    values = validated(tiny_federation.document(data, "fedplcc", run={"rounds": 4}, training={"local_steps": 2}))
    simulated_in_folder(values, tmp_path / "whole")
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    best = max(lines, key=lambda line: line["accuracy_validation"]["mean"])
    assert sha256_hex((tmp_path / "whole" / BEST_MODEL).read_bytes()) == best["model_sha256"]
    assert sha256_hex((tmp_path / "whole" / MODEL).read_bytes()) == lines[-1]["model_sha256"]
    assert hashed(tmp_path / "whole")


def command(file: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "fedplcc", "simulate", "--config", str(file), *map(str, arguments)]
    return subprocess.run(
        line, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
    )


@pytest.mark.full
def test_the_command_goes_on_in_the_folder_that_it_kept_and_in_no_other(data: Path, tmp_path: Path) -> None:
    values = tiny_federation.document(data, "moon", run={"rounds": 3}, training={"local_steps": 2})
    file = write_config(tmp_path / "run.toml", values)
    whole, parts, dropped = tmp_path / "whole", tmp_path / "parts", tmp_path / "dropped"
    assert command(file, "--out", whole).returncode == 0
    assert command(file, "--rounds", 2, "--out", parts, "--keep").returncode == 0
    assert command(file, "--rounds", 2, "--out", dropped).returncode == 0
    for arguments, said in (
        (("--out", parts), "holds a run of another configuration"),
        (("--out", dropped, "--continue"), "train the first rounds with --keep to go on later"),
        (("--out", tmp_path / "empty", "--continue"), "holds no run to go on with"),
        (("--continue",), "--continue needs --out"),
        (("--out", whole, "--continue", "--seed", 1), "holds a run of another configuration"),
    ):
        refused = command(file, *arguments)
        assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
    assert command(file, "--out", parts, "--continue").returncode == 0
    assert hashed(parts) == hashed(whole)
