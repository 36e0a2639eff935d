"""The contract of every store for values at their limits; databases that cannot be used."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedplcc.aggregator.store.base import Store, Transaction
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.errors import MalformedRequest, StoreUnavailable
from fedplcc.shared.reasons import Stated
from fedplcc.shared.types import ClientProblem, Event, EventQuery
from tests.contract.conftest import Open
from tests.support import of_kind
from tests.support.hosts.memory_folder import memory_folder
from tests.support.records.builders import a_blob, a_client, a_round, a_run, an_update
from tests.support.records.stored_runs import a_full_run, add_run

# Values


@pytest.mark.parametrize("number", [2**31, 2**40, 2**62])
def test_large_counts_are_kept_exactly(store: Store, number: int) -> None:
    update = an_update("ann", num_examples=number, class_counts=(number, 0, 0))
    run = add_run(store, a_run(current_round=a_round(1, updates={"ann": update})))
    with store.transaction() as transaction:
        transaction.save_client(a_client(num_examples=number, class_counts={"a": number}))
    assert store.find_run(run.run_id) == run
    assert store.find_client("ann") == a_client(num_examples=number, class_counts={"a": number})


@pytest.mark.parametrize("size_bytes", [2**31, 3 << 30, 2**53])
def test_sizes_beyond_32_bits_are_kept(store: Store, size_bytes: int) -> None:
    with store.transaction() as transaction:
        transaction.add_blob(replace(a_blob("large"), size_bytes=size_bytes))
    assert store.find_blob(a_blob("large").sha256) == size_bytes


def test_long_texts_are_kept_whole(store: Store) -> None:
    """The id of a run is its name and more, and may be longer than a name."""
    run = add_run(
        store, a_run(run_id="r" * 100, name="n" * 64, reason=Stated("ü" * 100_000), config_json='{"a":1}' + " " * 10**6)
    )
    assert store.find_run(run.run_id) == run
    with store.transaction() as transaction:
        transaction.add_event(Event(type="long", run_id=run.run_id, data={"text": "é😀" * 50_000}))
    assert store.list_events(EventQuery(run_id=run.run_id))[0].data == {"text": "é😀" * 50_000}


def test_a_text_with_the_character_that_no_database_keeps_is_refused_cleanly(store: Store) -> None:
    run = add_run(store, a_run())

    def write(change: Callable[[Transaction], None]) -> None:
        with store.transaction() as transaction:
            transaction.add_event(Event(type="before"))
            change(transaction)

    for change in (
        lambda transaction: transaction.save_run(replace(run, reason=Stated("a\0b"))),
        lambda transaction: transaction.add_run(replace(run, run_id="other"), request_id="a\0b", request_hash=""),
        lambda transaction: transaction.save_client(a_client("a\0b")),
    ):
        with pytest.raises(MalformedRequest, match=r"'a\\x00b' has the character U\+0000"):
            write(change)
    for look in (store.find_run, store.find_request, store.find_client, store.last_committed):
        with pytest.raises(MalformedRequest, match=r"U\+0000"):
            look("a\0b")
    assert store.list_events(EventQuery()) == [], "nothing of such a transaction is kept"
    assert store.find_run(run.run_id) == run


def test_texts_within_records_may_have_any_character(store: Store) -> None:
    problem = ClientProblem(reason="X", detail="a\0b", hint="\u2028 \x1f \ufffe 😀")
    with store.transaction() as transaction:
        transaction.save_client(a_client(problem=problem))
        transaction.add_event(Event(type="client_problem", data={"a\0b": ["\0", {"\0": None}]}))
    assert store.list_clients() == [a_client(problem=problem)]
    assert store.list_events(EventQuery())[0].data == {"a\0b": ["\0", {"\0": None}]}


def test_numbers_are_read_back_to_the_last_bit(store: Store) -> None:
    numbers = [0.1 + 0.2, 1e-308, 5e-324, 1.7976931348623157e308, -0.0, 2**53]
    with store.transaction() as transaction:
        for number in numbers:
            transaction.add_event(Event(type="number", time=float(number), data={"number": number}))
    events = store.list_events(EventQuery())
    assert [repr(event.data["number"]) for event in events] == [repr(number) for number in numbers]
    assert [event.time for event in events] == numbers


def test_what_is_absent_is_null_in_the_columns_that_say_so(open_store: Open) -> None:
    """A migration adds them as NULL: one row must not say `null` and another NULL of the same."""
    store = of_kind(SqlStore, open_store())
    add_run(store, a_run(current_round=a_round(1)))
    with store._engine.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT count(*) FROM runs JOIN rounds ON rounds.run_id = runs.run_id "
            "WHERE runs.quarantined IS NULL AND runs.rejections IS NULL AND rounds.dropped IS NULL "
            "AND runs.reason_record IS NULL AND rounds.prototype_counts IS NULL"
        )
        assert found.scalar() == 1


def add_events(store: Store, count: int) -> None:
    with store.transaction() as transaction:
        for _ in range(count):
            transaction.add_event(Event(type="long", data={"text": "x" * 1000}))


# Databases that cannot be used


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "aggregator.sqlite"
    file.write_bytes(b"not a database, but somebody's file\n" * 100)
    with pytest.raises(StoreUnavailable, match="not a database"):
        SqlStore.in_folder(tmp_path)
    assert file.read_bytes().startswith(b"not a database")


def test_a_database_that_cannot_be_opened_is_store_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot open the database"):
        SqlStore.in_folder(tmp_path / "missing")
    (tmp_path / "aggregator.sqlite").mkdir()
    with pytest.raises(StoreUnavailable, match="cannot open the database"):
        SqlStore.in_folder(tmp_path)


def test_a_full_database_is_store_unavailable_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    store = SqlStore.in_folder(tmp_path)
    run = add_run(store, a_full_run())
    with store._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreUnavailable, match="full"):
        add_events(store, 100)
    assert store.list_events(EventQuery()) == []
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1073741823")
    add_events(store, 2)
    assert len(store.list_events(EventQuery())) == 2
    assert store.find_run(run.run_id) == run
    store.close()


USES: dict[str, Callable[[Store], object]] = {
    "open_runs": lambda store: store.open_runs(),
    "ended_retirements": lambda store: store.ended_retirements(limit=1),
    "find_run": lambda store: store.find_run("test-0000"),
    "find_request": lambda store: store.find_request("x"),
    "find_control_request": lambda store: store.find_control_request("x"),
    "list_runs": lambda store: store.list_runs(limit=1),
    "run_ids": lambda store: store.run_ids(),
    "list_rounds": lambda store: store.list_rounds("test-0000"),
    "find_round": lambda store: store.find_round("test-0000", 1),
    "first_evaluation": lambda store: store.first_evaluation("test-0000", "ann", before=2),
    "list_evaluations": lambda store: store.list_evaluations("test-0000"),
    "list_events": lambda store: store.list_events(EventQuery()),
    "list_clients": lambda store: store.list_clients(),
    "find_client": lambda store: store.find_client("ann"),
    "last_committed": lambda store: store.last_committed("ann"),
    "last_release": lambda store: store.last_release("ann"),
    "has_stored": lambda store: store.has_stored("ann", "x"),
    "find_blob": lambda store: store.find_blob("x"),
    "domains": lambda store: store.domains(["ann"]),
    "transaction": lambda store: add_events(store, 1),
}


@pytest.mark.parametrize("use", USES)
def test_a_damaged_database_is_store_unavailable(use: str) -> None:
    with memory_folder() as folder:
        store = SqlStore.in_folder(Path(folder))
        add_run(store, a_full_run())
        store.close()
        file = Path(folder) / "aggregator.sqlite"
        data = bytearray(file.read_bytes())
        with sqlite3.connect(file) as connection:
            (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
            roots = connection.execute(
                "SELECT rootpage FROM sqlite_master WHERE tbl_name NOT IN ('alembic_version', 'writer')"
            ).fetchall()
        connection.close()
        # What a start reads stays whole, so that the damage is only met in use.
        for (page,) in roots:
            data[(page - 1) * page_bytes : page * page_bytes] = b"\xa5" * page_bytes
        file.write_bytes(data)
        damaged = SqlStore.in_folder(Path(folder))
        with pytest.raises(StoreUnavailable, match="malformed"):
            USES[use](damaged)
        damaged.close()


def test_sqlite_is_told_to_be_durable(tmp_path: Path) -> None:
    store = SqlStore.in_folder(tmp_path)
    with store._engine.connect() as connection:
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("journal_mode", "synchronous")]
    assert found == ["wal", 2], "2 is FULL: a commit is on the disk before it is answered"
    store.close()
