"""A database of revision 0003 is taken up: sentences become records, and a run that waits without a quorum goes on."""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from aggregator.store.database.sql_store import SqlStore
from shared.reasons import (
    AggregationFailed,
    Dropped,
    DropReason,
    Lack,
    NobodyLeft,
    NoQuorum,
    Parked,
    Reason,
    Stated,
    TooFewClients,
    WaitsForClients,
    sentence_of,
)
from shared.types import RoundPhase, Run, RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient
from tests.support.records.captured_logs import logged

GOLDEN = Path(__file__).parents[3] / "golden"
OLD = GOLDEN / "aggregator-0003.sql"
"""A run that waits in round 1 for a quorum of reports, with a client dropped and one quarantined; and a pending run."""
BLOBS_AND_RESULTS = json.loads((GOLDEN / "aggregator-0003.json").read_text(encoding="utf-8"))
"""The blobs of that database by path, and the lines of metrics.jsonl to which its version brought the run."""
DOMAINS = {"ann": "north", "bob": "north", "cat": "south", "zoe": "south"}
SENTENCE = (
    "round 1 has no quorum, 1 of the 2 clients that it needs; missing: bob (lost: not connected, last came further at "
    "1970-01-01 00:17:10 UTC), zoe (lost: not connected, last came further at 1970-01-01 00:16:40 UTC); quarantined: cat"
)
BOB = Dropped(DropReason.LOST, "not connected, last came further at 1970-01-01 00:17:10 UTC")
ZOE = Dropped(DropReason.LOST, "not connected, last came further at 1970-01-01 00:16:40 UTC")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A state directory at revision 0003."""
    with closing(sqlite3.connect(tmp_path / "aggregator.sqlite")) as connection:
        connection.executescript(OLD.read_text(encoding="utf-8"))
    for name, content in BLOBS_AND_RESULTS["blobs"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(base64.b64decode(content))
    return tmp_path


def change(folder: Path, statement: str, *values: Any) -> None:
    """Change the old database, as another history would have left it."""
    with closing(sqlite3.connect(folder / "aggregator.sqlite")) as connection, connection:
        connection.execute(statement, values)


def runs_of(folder: Path) -> dict[str, Run]:
    """The open runs by name, after the migration."""
    store = SqlStore.in_folder(folder)
    try:
        return {run.name: run for run in store.open_runs()}
    finally:
        store.close()


def test_sentences_of_dropped_clients_and_waiting_runs_become_records(old: Path) -> None:
    runs = runs_of(old)
    assert runs["pending"].reason == WaitsForClients()
    waiting = runs["waits"]
    assert waiting.current_round is not None
    assert waiting.current_round.dropped == {"cat": Dropped(DropReason.QUARANTINED, "broken scanner"), "zoe": ZOE}
    assert waiting.reason == NoQuorum(
        round_number=1,
        lack=Lack(clients=TooFewClients(1, 2)),
        missing={"bob": BOB, "zoe": ZOE},
        num_missing=2,
        quarantined=("cat",),
    )
    assert sentence_of(waiting.reason) == SENTENCE


def test_a_run_that_waited_without_a_quorum_goes_on_to_the_same_results(old: Path) -> None:
    with LocalFederation(
        old, [NumpyClient(name, size=3, domain=domain) for name, domain in DOMAINS.items()]
    ) as taken_up:
        (run,) = [run for run in taken_up.coordinator.list_runs(limit=9) if run.name == "waits"]
        assert sentence_of(run.reason) == SENTENCE
        assert run.current_round is not None
        assert run.current_round.phase is RoundPhase.EVALUATING
        assert run.current_round.prototype_counts is not None, "counted once, at the start"
        clients = [client for name, client in taken_up.clients.items() if name != "cat"]
        for client in clients:
            taken_up.coordinator.join(client.record, client.token)
        while (
            any([taken_up.perform(client, taken_up.task(client)) for client in clients]) or taken_up.coordinator.work()
        ):
            pass
        assert taken_up.coordinator.get_run(run.run_id).status is RunStatus.COMPLETED
        rounds = taken_up.coordinator.list_rounds(run.run_id, after=0)
        assert [json.loads(current.results_json) for current in rounds] == BLOBS_AND_RESULTS["metrics"]
        history = [event.type for event in taken_up.events(run.run_id)]
        assert history.count("quorum_missing") == history.count("quorum_regained") == 1


def test_a_run_whose_stored_prototypes_are_damaged_is_parked_by_name(old: Path) -> None:
    with closing(sqlite3.connect(old / "aggregator.sqlite")) as connection:
        (prototypes,) = connection.execute("SELECT prototypes FROM rounds WHERE phase = 'evaluating'").fetchone()
    sha256 = json.loads(prototypes)["sha256"]
    (old / "blobs" / sha256[:2] / sha256).write_bytes(b"damaged")
    with LocalFederation(old, []) as taken_up:
        runs = {run.name: run for run in taken_up.coordinator.list_runs(limit=9)}
    assert isinstance(runs["waits"].reason, Parked)
    assert (runs["waits"].status, runs["pending"].status) == (RunStatus.PAUSED, RunStatus.PENDING)


def test_a_committed_round_whose_prototypes_are_gone_is_not_shown_and_keeps_no_run_waiting(old: Path) -> None:
    line = json.dumps(BLOBS_AND_RESULTS["metrics"][0])
    change(old, "UPDATE rounds SET phase = 'committed', metrics_json = ? WHERE phase = 'evaluating'", line)
    shutil.rmtree(old / "blobs")
    with logged() as lines, LocalFederation(old, []) as taken_up:
        runs = {run.name: run for run in taken_up.coordinator.list_runs(limit=9)}
        assert [line["round"] for line in lines() if line["event"] == "last_round_not_shown"] == [1]
    assert (runs["waits"].status, runs["waits"].round_number) == (RunStatus.RUNNING, 2)


@pytest.mark.parametrize(
    ("status", "sentence", "reason"),
    [
        ("running", "no client is left: every one of the roster is quarantined", NobodyLeft()),
        (
            "running",
            "round 0 has no quorum, nobody is there to make the first model; missing: ann",
            NoQuorum(round_number=0, lack=Lack(clients=TooFewClients(0, 1)), missing={"ann": None}, num_missing=1),
        ),
        (
            "running",
            "round 3 has no quorum, 0 of the 2 clients that it needs and no client of domain b, c and no client of domain d"
            "; missing: ann (problem: INVALID_DATA: 2 images (of 7), bad (size) are not read), bob, cat.1 (silent: x) "
            "and 4 more",
            NoQuorum(
                round_number=3,
                lack=Lack(clients=TooFewClients(0, 2), domains=("b, c", "d")),
                missing={
                    "ann": Dropped(DropReason.PROBLEM, "INVALID_DATA: 2 images (of 7), bad (size) are not read"),
                    "bob": None,
                    "cat.1": Dropped(DropReason.SILENT, "x"),
                },
                num_missing=7,
            ),
        ),
        (
            "paused",
            "round 2 cannot be aggregated: internal error; the aggregator's log says more",
            AggregationFailed(round_number=2, detail="internal error; the aggregator's log says more"),
        ),
        (
            "running",
            "round 3 has no quorum, for reasons of its own",
            Stated("round 3 has no quorum, for reasons of its own"),
        ),
        ("stopping", "round 3 has no quorum, I stop it", Stated("round 3 has no quorum, I stop it")),
        ("running", "", None),
    ],
)
def test_every_sentence_becomes_its_record_or_stays_a_sentence(
    old: Path, status: str, sentence: str, reason: Reason | None
) -> None:
    change(old, "UPDATE runs SET status = ?, reason = ? WHERE name = 'waits'", status, sentence)
    found = runs_of(old)["waits"].reason
    assert found == reason
    assert sentence_of(found) == sentence


def test_a_drop_without_a_reason_keeps_its_sentence(old: Path) -> None:
    change(old, "UPDATE rounds SET dropped = ? WHERE dropped IS NOT NULL", json.dumps({"zoe": "nobody knows: why"}))
    run = runs_of(old)["waits"]
    assert run.current_round is not None
    assert run.current_round.dropped == {"zoe": Dropped(DropReason.PROBLEM, "nobody knows: why")}
