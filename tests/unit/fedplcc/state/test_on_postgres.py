"""`fedplcc doctor`, `backup`, `restore` and `replay` where the aggregator's database is PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.aggregator.store.database import schema
from fedplcc.aggregator.store.database.engines.postgres import parse_url
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.aggregator.store.opening import open_store
from fedplcc.command.all_commands import app
from fedplcc.command.exit_codes import ExitCode
from fedplcc.doctor.database import server
from fedplcc.doctor.findings import Probes, Subject
from fedplcc.shared.types import Run
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient
from tests.support.hosts.postgres import PASSWORD, Server

runner = CliRunner()


class Kept(LocalFederation):
    keep = Keep(models=9, updates=9)


def a_federation(folder: Path) -> LocalFederation:
    folder.mkdir(exist_ok=True)
    return Kept(folder, [NumpyClient("ann", size=3), NumpyClient("bob", size=3)])


@pytest.fixture
def federation(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalFederation]:
    """One in the middle of a run, whose aggregator is on PostgreSQL and lives."""

    def in_folder(folder: Path) -> SqlStore:
        return open_store(folder, database_url, on_lost=lambda why: pytest.fail(why))

    with monkeypatch.context() as patched:
        patched.setattr(SqlStore, "in_folder", in_folder)
        made = a_federation(tmp_path / "state")
    with made:
        made.join()
        made.create("fedplcc", run={"rounds": 3})
        for _ in range(4):
            made.step()
        yield made


@pytest.fixture
def run(federation: LocalFederation) -> Run:
    (found,) = federation.coordinator.list_runs(limit=9)
    run = federation.coordinator.get_run(found.run_id)
    assert run.round_number == 2
    return run


def command(*words: object, url: str | None = None) -> Result:
    environment = {"FEDPLCC_DATABASE_URL": url} if url else {}
    answer = runner.invoke(app, [str(word) for word in words], env=environment)
    assert PASSWORD not in answer.output
    return answer


def test_the_doctor_examines_the_state_beside_its_aggregator(
    federation: LocalFederation, run: Run, database_url: str
) -> None:
    answer = command("doctor", federation.folder, url=database_url)
    assert answer.exit_code == ExitCode.OK, answer.output
    said = " ".join(answer.stdout.split())
    for words in (
        "PostgreSQL 1",
        ", used by fedplcc ",
        "each with its size and SHA-256",
        "events without a gap",
        "1, each as its history says",
    ):
        assert words in said


def test_without_its_url_the_doctor_says_which_database_it_is(federation: LocalFederation, postgres: Server) -> None:
    for words in (("doctor", federation.folder), ("state", "backup", federation.folder, federation.folder / "new")):
        answer = command(*words)
        assert answer.exit_code != ExitCode.OK
        said = " ".join(answer.output.split())
        assert f"is postgresql://127.0.0.1:{postgres.port}/" in said
        assert "give its URL with --database-url or FEDPLCC_DATABASE_URL" in said


def test_the_url_of_another_database_is_refused(
    federation: LocalFederation, postgres: Server, database_url: str, tmp_path: Path
) -> None:
    with postgres.database() as other:
        answer = command("state", "backup", federation.folder, tmp_path / "backup", url=other)
        assert f"is at revision none and not {schema.REVISION}: let an aggregator" in answer.stderr
        SqlStore.at(other).close()
        shutil.rmtree(tmp_path / "backup")
        answer = command("state", "backup", federation.folder, tmp_path / "backup", url=other)
        assert answer.exit_code == ExitCode.USAGE
        assert "is not the database of this state directory" in answer.stderr


def test_a_backup_of_a_living_aggregator_goes_on_in_sqlite_to_the_same_bytes(
    federation: LocalFederation, run: Run, database_url: str, tmp_path: Path
) -> None:
    answer = command("state", "backup", federation.folder, tmp_path / "backup", url=database_url)
    assert answer.exit_code == ExitCode.OK, answer.output
    ended = federation.run_to_end(run.run_id)
    lines = federation.metrics_lines(run.run_id)
    assert command("state", "restore", tmp_path / "backup", tmp_path / "restored").exit_code == ExitCode.OK
    assert command("doctor", tmp_path / "restored").exit_code == ExitCode.OK
    with a_federation(tmp_path / "restored") as restored:
        assert restored.coordinator.get_run(run.run_id).current_round == run.current_round
        restored.join()
        again = restored.run_to_end(run.run_id)
        assert (again.model, again.prototypes) == (ended.model, ended.prototypes)
        assert restored.metrics_lines(run.run_id) == lines
        sequences = [event.sequence for event in restored.events()]
        assert sequences == list(range(1, len(sequences) + 1)), "the history goes on where it was"


def test_a_round_is_computed_again(federation: LocalFederation, run: Run, database_url: str) -> None:
    words = ("state", "audit", federation.folder, "--replay", run.run_id, "--round", 1)
    answer = command(*words, url=database_url)
    assert answer.exit_code == ExitCode.OK, answer.output
    assert "equal" in answer.stdout


# The machine's doctor


def found(state: Path, url: str | None = None) -> tuple[str, str]:
    """Status and sentence of what the doctor says of databases on servers."""
    (finding,) = server(Subject(state=state, database_url=url))
    assert PASSWORD not in finding.sentence
    return finding.status.value, finding.sentence


def test_the_doctor_says_what_is_wrong_with_a_database(postgres: Server, database_url: str, tmp_path: Path) -> None:
    status, said = found(tmp_path, database_url)
    assert status == "ok"
    assert said.startswith("postgresql://127.0.0.1")
    assert said.endswith("no tables yet, no aggregator uses it")
    for url, expected in (
        (postgres.url("postgres", password="wrong"), "password authentication failed"),
        (postgres.url("nowhere"), 'database "nowhere" does not exist'),
        ("mysql://u:wrong@h/d", "database_url is not of PostgreSQL"),
        ("postgresql://u:wrong@127.0.0.1/d?colour=blue", "colour"),
    ):
        status, said = found(tmp_path, url)
        assert status == "problem"
        assert expected in said
        assert ": check --database-url" in said
        assert "wrong" not in said
    SqlStore.at(database_url).close()
    postgres.execute("UPDATE alembic_version SET version_num = '9999'", str(parse_url(database_url).database))
    status, said = found(tmp_path, database_url)
    assert status == "problem"
    assert said.endswith("revision 9999: use the newer version of fedplcc that wrote it")
    with postgres.database("TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE_PROVIDER libc LOCALE 'C'") as other:
        status, said = found(tmp_path, other)
        assert (status, "keeps text as SQL_ASCII" in said) == ("problem", True)


def test_the_doctor_says_where_the_database_of_a_state_is_and_what_it_lacks(tmp_path: Path) -> None:
    assert list(server(Subject(state=tmp_path))) == []
    (tmp_path / "aggregator").mkdir()
    (tmp_path / "aggregator" / "database.json").write_text('{"state": "ab", "database": "postgresql://db/fedplcc"}')
    status, said = found(tmp_path)
    assert (status, said.partition(",")[0]) == ("ok", f"that of {tmp_path / 'aggregator'} is postgresql://db/fedplcc")
    without_psycopg = Probes(is_installed=lambda name: name != "psycopg")
    (finding,) = server(Subject(state=tmp_path, database_url="postgresql://h/d", probes=without_psycopg))
    assert finding.sentence == "PostgreSQL needs psycopg: pip install 'fedplcc[postgres]'"
