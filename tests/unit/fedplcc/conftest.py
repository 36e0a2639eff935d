"""Runs that have ended, for tests of what is done with their results."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.federation import tiny_federation
from tests.support.federation.simulations import simulated
from tests.support.records.comparisons import write_comparison


@pytest.fixture(scope="session")
def ended_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a run of each method leaves, by its name, and the clients' data: left.npz and right.npz."""
    folder = tmp_path_factory.mktemp("ended")
    tiny_federation.write_data(folder)
    for method in ("fedplcc", "fedavg"):
        document = tiny_federation.document(folder, method, run={"rounds": 2}, training={"local_steps": 30})
        simulated(document, folder / method)
        shutil.rmtree(folder / method / "state")
    return folder


@pytest.fixture(scope="module")
def run(ended_runs: Path) -> Path:
    """The folder of a FedPLCC run; tests leave it as it is."""
    return ended_runs / "fedplcc"


@pytest.fixture
def ended_run(ended_runs: Path, tmp_path: Path) -> Path:
    """A FedPLCC run's folder, for a test that changes it."""
    return Path(shutil.copytree(ended_runs / "fedplcc", tmp_path / "run"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A comparison's file, with the run that it names beside it."""
    return write_comparison(tmp_path)
