"""An aggregator's process on the state of another version: the last one's it serves, a newer one's it refuses."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fedplcc.aggregator.store.database import schema
from tests.support import ROOT
from tests.support.federation.forks import typed
from tests.support.federation.processes import Federation, eventually
from tests.support.records import release

RELEASE = ROOT / "tests" / "golden" / "0.2.0"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory as an aggregator of 0.2.0 left it."""
    folder = tmp_path / "aggregator"
    folder.mkdir()
    release.read_state(RELEASE, folder)
    return folder


def test_a_state_of_the_last_version_is_served(tmp_path: Path, state: Path) -> None:
    with Federation(tmp_path) as federation:
        aggregator = federation.start_aggregator("--metrics-port", "off")
        federation.start_gateway()
        words = ("run", "list", "--json", "--gateway", federation.gateway_url)
        user = {"XDG_CONFIG_HOME": str(federation.user_folder())}

        def runs() -> set[tuple[str, str]]:
            lines = typed(*words, cwd=tmp_path, environment=user).stdout.splitlines()
            return {(run["name"], run["status"]) for run in map(json.loads, lines)}

        # Who waits for clients since the year of the test's clock has waited too long.
        expected = {(release.DONE, "completed"), (release.WAITING, "running"), (release.PENDING, "stopped")}
        eventually(lambda: runs() == expected, "the runs are as they were left")
        assert aggregator.end() == 0


def test_a_state_of_a_newer_version_is_refused_with_exit_code_4(state: Path) -> None:
    with closing(sqlite3.connect(state / "aggregator.sqlite")) as connection:
        connection.executescript("UPDATE alembic_version SET version_num = '9999'")
    command = [sys.executable, "-m", "fedplcc.aggregator", "--enrol-port", "0", "--state-dir", str(state)]
    command += ["--port", "0", "--metrics-port", "off"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 4
    said = json.loads((done.stdout + done.stderr).splitlines()[-1])
    assert said["event"] == "cannot_start"
    assert "use the version that wrote it" in said["detail"]
    assert schema.REVISION in said["detail"]
