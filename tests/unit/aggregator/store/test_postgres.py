"""A store on a PostgreSQL server that goes away, comes back, crashes in a commit, or has another aggregator at it."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from fedplcc.aggregator.store.database.engines import postgres as postgres_database
from fedplcc.aggregator.store.database.engines.postgres import parse_url
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.errors import InvalidConfig, StoreUnavailable
from fedplcc.shared.types import Event, EventQuery
from tests.support.federation.processes import eventually
from tests.support.hosts.postgres import PASSWORD, USER, Server


def add(store: SqlStore, *types: str) -> None:
    with store.transaction() as transaction:
        for name in types:
            transaction.add_event(Event(type=name))


def kept(store: SqlStore) -> list[str]:
    return [entry.type for entry in store.list_events(EventQuery())]


def sever(server: Server, store: SqlStore) -> None:
    """Cut all connections of a store, as a restart of something on the way does."""
    name = parse_url(store.database.engine.url.render_as_string()).database
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        f"WHERE datname = '{name}' AND application_name LIKE 'fedplcc %'"
    )


# A server that goes and comes


def test_a_server_that_crashed_between_transactions_is_not_even_noticed(store: SqlStore, postgres: Server) -> None:
    add(store, "one")
    postgres.crash()
    postgres.start()
    add(store, "two")
    assert kept(store) == ["one", "two"]


def test_while_the_server_is_away_every_use_says_so_and_the_store_goes_on_when_it_is_back(
    store: SqlStore, postgres: Server, reasons: list[str]
) -> None:
    add(store, "one")
    postgres.stop()
    try:
        with pytest.raises(StoreUnavailable, match=r"^cannot write to the database: .*(refused|terminat)"):
            add(store, "lost")
        for read in (store.open_runs, lambda: kept(store), lambda: store.find_blob("x")):
            with pytest.raises(StoreUnavailable, match=r"^cannot read the database: .*refused"):
                read()
    finally:
        postgres.start()
    add(store, "two")
    assert kept(store) == ["one", "two"]
    assert reasons == []


@pytest.mark.parametrize("end", ["crash", "stop"])
def test_a_server_that_ends_within_a_transaction_keeps_nothing_of_it(
    store: SqlStore, postgres: Server, end: str, reasons: list[str]
) -> None:
    add(store, "one")

    def write() -> None:
        with store.transaction() as transaction:
            transaction.add_event(Event(type="half"))
            getattr(postgres, end)()
            postgres.start()
            transaction.add_event(Event(type="other half"))

    with pytest.raises(StoreUnavailable, match=r"^cannot write to the database"):
        write()
    assert kept(store) == ["one"]
    add(store, "two")
    assert kept(store) == ["one", "two"]
    assert reasons == []


def at_commit(store: SqlStore, before: Callable[[], None] | None, after: Callable[[], None] | None) -> None:
    """Let something happen just before or after the next COMMIT that the store sends; its answer may then be lost."""
    dialect = store.database.engine.dialect
    commit = dialect.do_commit

    def do_commit(connection: Any) -> None:
        dialect.do_commit = commit  # type: ignore[method-assign]
        if before is not None:
            before()
        commit(connection)
        if after is not None:
            after()
            connection.execute("SELECT 1")  # here the driver finds out

    dialect.do_commit = do_commit  # type: ignore[assignment, method-assign]


def restart(server: Server) -> None:
    server.crash()
    server.start()


def test_a_commit_whose_answer_was_lost_is_found_to_have_happened(
    store: SqlStore, postgres: Server, reasons: list[str]
) -> None:
    at_commit(store, None, lambda: restart(postgres))
    add(store, "one")
    assert kept(store) == ["one"]
    add(store, "two")
    assert kept(store) == ["one", "two"]
    assert reasons == []


def test_a_commit_that_never_reached_the_server_is_found_not_to_have_happened(
    store: SqlStore, postgres: Server, reasons: list[str]
) -> None:
    add(store, "one")
    at_commit(store, lambda: restart(postgres), None)
    with pytest.raises(StoreUnavailable, match=r"^cannot write to the database"):
        add(store, "lost")
    assert kept(store) == ["one"]
    add(store, "two")
    assert kept(store) == ["one", "two"]
    assert reasons == []


@pytest.mark.parametrize("happened", [True, False])
def test_a_commit_that_nobody_answers_for_is_found_out_by_the_next_transaction(
    store: SqlStore, postgres: Server, reasons: list[str], happened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database, "ANSWER_S", 0.3)
    add(store, "one")
    at_commit(store, *((None, postgres.crash) if happened else (postgres.crash, None)))
    try:
        with pytest.raises(StoreUnavailable, match=r"^cannot write to the database"):
            add(store, "unknown")
    finally:
        postgres.start()
    if not happened:
        add(store, "two")
        assert kept(store) == ["one", "two"]
        assert reasons == []
        return
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="a change whose answer was lost is in it after all; it ends"):
            add(store, "never")
    assert kept(store) == ["one", "unknown"]
    assert len(reasons) == 1, "said once"


def test_sequences_grow_through_crashes_and_what_was_rolled_back(store: SqlStore, postgres: Server) -> None:
    def lose() -> None:
        with store.transaction() as transaction:
            transaction.add_event(Event(type="lost"))
            raise InterruptedError

    for _ in range(3):
        add(store, "a", "b")
        with pytest.raises(InterruptedError):
            lose()
        restart(postgres)
    assert [entry.sequence for entry in store.list_events(EventQuery())] == list(range(1, 7)), "without a hole"


# One writer


def test_a_second_aggregator_is_refused_until_the_first_has_ended(
    store: SqlStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database, "LOCK_WAIT_S", 1)
    with pytest.raises(
        InvalidConfig, match=r"^another aggregator \(fedplcc .*\) uses postgresql://127.*; end it, or choose"
    ):
        SqlStore.at(database_url)
    add(store, "one")
    store.close()
    second = SqlStore.at(database_url)
    add(second, "two")
    assert kept(second) == ["one", "two"]
    second.close()


def test_one_that_comes_while_the_first_is_ending_waits_for_it(store: SqlStore, database_url: str) -> None:
    timer = threading.Timer(0.3, store.close)
    timer.start()
    second = SqlStore.at(database_url)
    timer.join()
    add(second, "one")
    second.close()


def test_a_connection_that_was_cut_is_made_again(store: SqlStore, postgres: Server, reasons: list[str]) -> None:
    add(store, "one")
    sever(postgres, store)
    add(store, "two")
    assert kept(store) == ["one", "two"]
    assert reasons == []


@pytest.mark.parametrize("has_ended", [False, True])
def test_an_aggregator_whose_database_another_took_writes_nothing_any_more(
    store: SqlStore,
    postgres: Server,
    database_url: str,
    reasons: list[str],
    has_ended: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres_database, "LOCK_WAIT_S", 1)
    add(store, "one")
    sever(postgres, store)
    other = SqlStore.at(database_url)
    add(other, "two")
    if has_ended:
        other.close()
    said = "another aggregator wrote to it" if has_ended else r"another aggregator \(fedplcc .*\) has taken it"
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=f"is not as this process left it: {said}; it ends"):
            add(store, "three")
    assert kept(other) == ["one", "two"]
    assert len(reasons) == 1
    assert PASSWORD not in reasons[0]
    other.close()


def test_a_lock_that_the_server_still_gives_to_a_lost_connection_is_freed(
    store: SqlStore, reasons: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database, "LOCK_WAIT_S", 1)
    add(store, "one")
    database: Any = store.database
    unreachable, database._writer = database._writer, None  # this side gave it up, the server's side did not notice
    with pytest.raises(StoreUnavailable, match="it waits for the connection that was lost; try again"):
        add(store, "two")
    add(store, "two")
    assert kept(store) == ["one", "two"]
    assert reasons == []
    unreachable.invalidate()
    unreachable.close()


def test_transactions_wait_for_each_other_only_so_long(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_database, "TURN_S", 0.1)
    refused: list[str] = []

    def write() -> None:
        try:
            add(store, "other")
        except StoreUnavailable as error:
            refused.append(error.detail)

    with store.transaction() as transaction:
        transaction.add_event(Event(type="slow"))
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    assert refused == ["cannot write to the database: another change takes more than 0 s"]
    assert kept(store) == ["slow"]


# What is asked of the server


def test_a_commit_waits_for_the_disk_whatever_the_server_is_told(postgres: Server, database_url: str) -> None:
    name = parse_url(database_url).database
    for told, expected in (("off", "on"), ("local", "local")):
        postgres.execute(f"ALTER DATABASE {name} SET synchronous_commit = {told}")
        store = SqlStore.at(database_url)
        with store.database.engine.connect() as connection:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == expected
        store.close()


def test_a_server_that_does_not_wait_for_its_disk_is_told_of(postgres: Server, database_url: str) -> None:
    def reload(change: str) -> None:
        postgres.execute(f"ALTER SYSTEM {change} fsync{' = off' if change == 'SET' else ''}")
        postgres.execute("SELECT pg_reload_conf()")
        expected = "off" if change == "SET" else "on"
        eventually(lambda: postgres.execute("SHOW fsync") == [(expected,)], "the server has read its settings")

    reload("SET")
    try:
        with capture_logs() as logs:
            SqlStore.at(database_url).close()
    finally:
        reload("RESET")
    assert [line["log_level"] for line in logs if line["event"] == "database_not_durable"] == ["warning"]
    assert PASSWORD not in str(logs)


def test_a_database_of_another_encoding_is_refused(postgres: Server) -> None:
    options = "TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE_PROVIDER libc LOCALE 'C'"
    with (
        postgres.database(options) as url,
        pytest.raises(InvalidConfig, match="keeps text as SQL_ASCII: make a database with ENCODING 'UTF8'"),
    ):
        SqlStore.at(url)


def test_a_user_who_may_make_no_tables_is_told_what_to_grant(postgres: Server, database_url: str) -> None:
    name = parse_url(database_url).database
    postgres.execute("CREATE ROLE guest LOGIN PASSWORD 'g'")
    try:
        url = postgres.url(str(name), user="guest", password="g")
        with pytest.raises(StoreUnavailable, match=r"permission denied for schema public.*; make its user the owner"):
            SqlStore.at(url)
    finally:
        postgres.execute("DROP ROLE guest")


def test_a_database_that_only_reads_is_store_unavailable(postgres: Server, database_url: str) -> None:
    SqlStore.at(database_url).close()
    postgres.execute(f"ALTER DATABASE {parse_url(database_url).database} SET default_transaction_read_only = on")
    with pytest.raises(StoreUnavailable, match=r"cannot open the database: .* in a read-only transaction"):
        SqlStore.at(database_url)


# URLs


WRONG_URLS = {
    "no URL": ("secret", "database_url is no URL; write postgresql://"),
    "a port that is none": ("postgresql://u:secret@host:port/d", "database_url is no URL"),
    "another database": ("mysql://u:secret@host/d", "database_url is not of PostgreSQL; .* leave it out for SQLite"),
    "a file": ("sqlite:///secret", "database_url is not of PostgreSQL"),
    "an @ in the password": ("postgresql://u:p@secret@host/d", "an @ too many; write %40"),
    "a / in the password": ("postgresql://u:p@se/cret@host/d", "an @ too many; write %40"),
    "no database": ("postgresql://u:secret@host", "names no database"),
    "a parameter that is none": ("postgresql://u:secret@127.0.0.1/d?colour=blue", 'invalid .* option "colour"'),
}


@pytest.mark.parametrize("url", WRONG_URLS)
def test_a_wrong_url_is_told_of_without_what_is_in_it(url: str) -> None:
    value, said = WRONG_URLS[url]
    with pytest.raises(InvalidConfig, match=said) as caught:
        SqlStore.at(value)
    assert "secret" not in caught.value.detail
    assert "cret" not in caught.value.detail.replace("secret", "")


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_the_usual_ways_to_write_a_url_all_mean_psycopg_3(database_url: str, scheme: str) -> None:
    store = SqlStore.at(database_url.replace("postgresql", scheme, 1))
    assert store.database.engine.driver == "psycopg"
    assert re.fullmatch(r"postgresql://127\.0\.0\.1:\d+/test_\d+", store.database.name)
    store.close()


def test_a_database_that_cannot_be_reached_is_told_of_in_the_servers_words(postgres: Server) -> None:
    for url, said in (
        (postgres.url("postgres", password="wrong"), "password authentication failed for user"),
        (postgres.url("postgres", user="nobody"), "authentication failed for user"),
        (postgres.url("nowhere"), 'database "nowhere" does not exist'),
        (f"postgresql://{USER}:wrong@127.0.0.1:1/d", "refused"),
        (f"postgresql://{USER}:wrong@no-such-host.invalid/d", "no-such-host.invalid"),
    ):
        with pytest.raises(StoreUnavailable, match=f"^cannot open the database: .*{said}") as caught:
            SqlStore.at(url)
        assert "wrong" not in caught.value.detail
        assert PASSWORD not in caught.value.detail
        assert "\n" not in caught.value.detail


def test_without_psycopg_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidConfig, match=r"^PostgreSQL needs psycopg: pip install 'fedplcc\[postgres\]'$"):
        SqlStore.at("postgresql://u@host/d")
