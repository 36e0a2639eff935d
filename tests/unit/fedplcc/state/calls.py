"""Commands on state directories, and damage of them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from typer.testing import CliRunner, Result

from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.command.all_commands import app
from fedplcc.command.exit_codes import ExitCode
from fedplcc.shared.types import Run
from tests.support.federation.in_process import LocalFederation

runner = CliRunner()


class Kept(LocalFederation):
    keep = Keep(models=2, updates=1)


def command(*words: object) -> Result:
    return runner.invoke(app, [str(word) for word in words])


def findings(state: Path, code: ExitCode = ExitCode.FAILED) -> list[str]:
    """Sentences of what is not right; each says what to do."""
    answer = command("doctor", state, "--json")
    assert answer.exit_code == code, answer.output
    rows = [row for row in json.loads(answer.stdout)["findings"] if row["status"] != "ok" and row["check"] != "disk"]
    assert all(":" in row["detail"] or ";" in row["detail"] for row in rows)
    return [row["detail"] for row in rows]


def sql(state: Path, statement: str) -> None:
    with closing(sqlite3.connect(state / "aggregator.sqlite")) as connection, connection:
        connection.execute(statement)


def model_of(state: Path, run: Run, number: int) -> Path:
    with closing(sqlite3.connect(state / "aggregator.sqlite")) as connection:
        query = "SELECT model ->> 'sha256' FROM rounds WHERE run_id = ? AND number = ?"
        (name,) = connection.execute(query, (run.run_id, number)).fetchone()
    return state / "blobs" / str(name)[:2] / str(name)


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
