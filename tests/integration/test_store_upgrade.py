"""An aggregator's process on the state of another version: an older one it brings up to date, a newer one it refuses."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from aggregator.store.database import schema
from tests.support import ROOT
from tests.support.federation.processes import Federation

OLD = ROOT / "tests" / "golden" / "aggregator-0001.sql"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory as an aggregator of the first version left it; its runs have ended."""
    folder = tmp_path / "aggregator"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "aggregator.sqlite")) as connection:
        connection.executescript(OLD.read_text(encoding="utf-8"))
        with connection:
            connection.execute("UPDATE runs SET status = 'stopped'")
    return folder


def test_the_first_start_of_a_new_version_migrates_and_serves(tmp_path: Path, state: Path) -> None:
    with Federation(tmp_path) as federation:
        aggregator = federation.start_aggregator("--metrics-port", "off")
        federation.start_gateway()
        answer = subprocess.run(
            [sys.executable, "-m", "fedplcc", "run", "list", "--json", "--gateway", federation.gateway_url],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env={**os.environ, "XDG_CONFIG_HOME": str(federation.user_folder())},
        )
        assert aggregator.end() == 0
        lines = [json.loads(line) for line in aggregator.log().splitlines()]
    runs = [json.loads(line) for line in answer.stdout.splitlines()]
    assert {(run["run_id"], run["status"]) for run in runs} == {("old-0", "stopped"), ("old-1", "stopped")}
    events = [line["event"] for line in lines]
    assert events.index("database_migrating") < events.index("database_migrated") < events.index("aggregator_ready")
    assert (state / "aggregator.sqlite.revision-0001").is_file()


def test_a_state_of_a_newer_version_is_refused_with_exit_code_4(state: Path) -> None:
    with closing(sqlite3.connect(state / "aggregator.sqlite")) as connection:
        connection.executescript("UPDATE schema_version SET version = 7")
    command = [sys.executable, "-m", "aggregator", "--enrol-port", "0", "--state-dir", str(state)]
    command += ["--port", "0", "--metrics-port", "off"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 4
    said = json.loads((done.stdout + done.stderr).splitlines()[-1])
    assert said["event"] == "cannot_start"
    assert "use the newer version that wrote it" in said["detail"]
    assert schema.REVISION in said["detail"]
