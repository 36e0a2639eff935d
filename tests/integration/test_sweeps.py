"""A study through the command: killed and gone on with, no finished trial again, and test images only after the choice."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedplcc.command.exit_codes import ExitCode
from fedplcc.comparison.report.tables import MEASURED
from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.processes import eventually
from tests.support.federation.simulations import write_config

pytestmark = [pytest.mark.slow, pytest.mark.full]

RUN_S = 240.0
SECTIONS: dict[str, Any] = {"data": {"classes": list(tiny_federation.CLASSES), "image_size": 32, "validation_every": 3}}
STUDY = """
[compare]
title = "Stripes"
seeds = [0, 1]

[datasets.stripes]
config = "run.toml"

[rows.average]
method = "fedavg"

[sweep]
trials = 3
ranges = { "training.learning_rate" = { low = 0.001, high = 0.1, log = true } }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The comparison and its data; each cell takes about a second."""
    folder = tmp_path_factory.mktemp("data")
    tiny_federation.write_data(folder)
    write_config(folder / "run.toml", tiny_federation.document(folder, run={"rounds": 2}, **SECTIONS))
    (folder / "compare.toml").write_text(STUDY)
    return folder


def begin(folder: Path, out: Path, log: Path) -> subprocess.Popen[bytes]:
    """The command at work, with what it says in a file, in a process group of its own."""
    words = ["compare", "--config", str(folder / "compare.toml"), "--out", str(out), "--device", "cpu"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "fedplcc", *words], env=environment, stdout=file, stderr=file, start_new_session=True
        )


def begun_in(log: Path) -> list[str]:
    return re.findall(r"^(\S+): begins", log.read_text(), re.MULTILINE)


def test_a_killed_study_goes_on_to_the_same_choice_and_the_same_report(folder: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed = begin(folder, whole, tmp_path / "whole.log")
    try:
        assert undisturbed.wait(RUN_S) == ExitCode.OK, (tmp_path / "whole.log").read_text()
    finally:
        undisturbed.kill()
    process = begin(folder, killed, tmp_path / "first.log")
    try:
        ended = "trained, mean accuracy on validation images"
        eventually(lambda: (tmp_path / "first.log").read_text().count(ended) >= 1, "a first trial", RUN_S)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(RUN_S)
    assert not (killed / "chosen.json").exists()
    finished = {path.parent.relative_to(killed).as_posix() for path in killed.glob("trials/*/*/*/run.json")}
    finished = {name for name in finished if not (killed / name / "state").exists()}
    again = begin(folder, killed, tmp_path / "second.log")
    try:
        assert again.wait(RUN_S) == ExitCode.OK, (tmp_path / "second.log").read_text()
    finally:
        again.kill()
    assert finished
    assert not finished & {f"trials/{name}" for name in begun_in(tmp_path / "second.log")}

    names = (
        "chosen.json",
        "trials/proposals.json",
        "trials.csv",
        "summary.csv",
        "cells.csv",
        "uncertainty.csv",
        "report.md",
    )
    for name in names:
        one, other = (
            (out / name).read_text().rpartition(MEASURED)[0 if name == "report.md" else 2] for out in (whole, killed)
        )
        assert one == other, name
