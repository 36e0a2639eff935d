"""The contract of every store for clients, updates and blobs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from sqlalchemy.event import listen

from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.types import ClientActivity, ClientProblem, CommittedUpdate, Environment, RunSpec, Update
from tests.support import present
from tests.support.records.builders import a_blob, a_client, a_round, a_run, an_update
from tests.support.records.stored_runs import add_run


def test_a_client_is_kept_without_what_passes(store: Store) -> None:
    client = a_client(problem=ClientProblem(reason="INVALID_DATA", detail="no images", hint="look", is_fatal=True))
    busy = replace(client, is_connected=True, activity=ClientActivity.TRAINING, run_id="r", round=3, progress=0.5)
    with store.transaction() as transaction:
        transaction.save_client(replace(busy, readings={"loss": 1.0}))
        transaction.save_client(a_client("abe"))
    assert store.find_client("ann") == client
    assert store.list_clients() == [a_client("abe"), client]
    assert store.find_client("eve") is None


def test_clients_come_by_id_in_parts(store: Store) -> None:
    with store.transaction() as transaction:
        for client_id in ("bob", "ann", "Zoe", "éva", "abe"):
            transaction.save_client(a_client(client_id))
    assert [client.client_id for client in store.list_clients()] == ["Zoe", "abe", "ann", "bob", "éva"]
    assert [client.client_id for client in store.list_clients(limit=2)] == ["Zoe", "abe"]
    assert [client.client_id for client in store.list_clients(after="abe", limit=2)] == ["ann", "bob"]
    assert [client.client_id for client in store.list_clients(after="bob")] == ["éva"]
    assert store.list_clients(after="éva") == []


def test_saving_a_client_again_replaces_it(store: Store) -> None:
    changed = a_client(domain="other", num_examples=3, class_counts={"ä": 3}, environment=Environment(), problem=None)
    for client in (a_client(problem=ClientProblem(reason="X", detail="x")), changed):
        with store.transaction() as transaction:
            transaction.save_client(client)
    assert store.list_clients() == [changed]


def test_domains_are_those_of_the_clients_asked_for(store: Store) -> None:
    with store.transaction() as transaction:
        for name in ("ann", "bob", "zoe"):
            transaction.save_client(a_client(name))
    assert store.domains(["zoe", "ann", "eve"]) == {"ann": "ann-domain", "zoe": "zoe-domain"}
    assert store.domains([]) == {}


def test_the_newest_committed_update_of_a_client_is_found_across_runs(store: Store) -> None:
    first, second = add_run(store, a_run(run_id="first")), add_run(store, a_run(run_id="second"))
    assert store.last_committed("ann") is None
    for run, number in ((first, 5), (second, 1), (first, 4)):
        update = an_update("ann", content=f"{run.run_id} {number}")
        with store.transaction() as transaction:
            transaction.add_update(run.run_id, number, update)
            transaction.add_update(run.run_id, number, an_update("bob", content=f"{run.run_id} {number}"))
        sha256s = tuple(blob.sha256 for blob in update.payload.blobs)
        assert store.last_committed("ann") == CommittedUpdate(run.run_id, number, sha256s)


def test_the_newest_release_of_a_client_is_found_whatever_it_committed_afterwards(store: Store) -> None:
    without = '"privacy":{"claim":"none","clip":null}'
    noisy = f'{{"model":{{"options":{{{without}}}}},"privacy":{{"claim":"site","clip":0.1}}}}'
    plain = add_run(store, a_run(run_id="plain", config_json=f'{{"model":{{"privacy":{{"clip":1}}}},{without}}}'))
    first, second = (add_run(store, a_run(run_id=name, config_json=noisy)) for name in ("first", "second"))
    for run, number in ((plain, 1), (first, 0)):
        with store.transaction() as transaction:
            transaction.add_update(run.run_id, number, an_update("ann", content=f"{run.run_id} {number}"))
        assert store.last_release("ann") is None
    for run, number in ((first, 5), (second, 1), (first, 4)):
        with store.transaction() as transaction:
            transaction.add_update(run.run_id, number, an_update("ann", content=f"{run.run_id} {number}"))
            transaction.add_update(plain.run_id, 1 + number, an_update("ann", content=f"plain {run.run_id} {number}"))
        told = RunSpec(run_id=run.run_id, config_json=noisy, config_hash=run.config_hash)
        assert store.last_release("ann") == (told, number)
        assert store.last_release("bob") is None
    with store.transaction() as transaction:
        transaction.remove_update(first.run_id, 4, an_update("ann", content="first 4"))
    assert store.last_release("ann") == (replace(told, run_id=second.run_id), 1)
    with store.transaction() as transaction:
        transaction.remove_rows(second.run_id, 100)
    assert store.last_release("ann") == (told, 5)
    third = add_run(store, a_run(run_id="third", config_json=noisy))
    with store.transaction() as transaction:
        transaction.add_update(third.run_id, 1, an_update("bob", content="third"))
    assert store.last_release("bob") == (replace(told, run_id=third.run_id), 1)


def test_the_documents_of_all_runs_are_read_for_the_first_join_alone(store: SqlStore) -> None:
    plain, statements = add_run(store, a_run()), list[str]()
    run = add_run(store, a_run(run_id="noisy", config_json='{"privacy":{"claim":"site","clip":0.1}}'))
    listen(store.database.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    for number in range(1, 4):
        with store.transaction() as transaction:
            transaction.add_update(plain.run_id, number, an_update("ann", content=f"{number}"))
            transaction.add_update(run.run_id, number, an_update("ann", content=f"noisy {number}"))
        assert present(store.last_release("ann"))[1] == number
    assert sum("LIKE" in each.upper() for each in statements) == 1


def test_a_commit_costs_the_same_however_many_updates_are_stored(store: SqlStore) -> None:
    run, statements = add_run(store, a_run()), list[str]()
    listen(store.database.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    for number in range(1, 4):
        with store.transaction() as transaction:
            transaction.add_update(run.run_id, number, an_update("ann", content=f"{number}"))
        with suppress(LookupError), store.transaction() as transaction:
            transaction.add_update(run.run_id, 9, an_update("ann", content="undone"))
            raise LookupError
        assert present(store.last_committed("ann")).round == number
    assert sum("max(updates.commit_order)" in each for each in statements) == 1


def test_updates_of_one_run_are_listed_by_round_and_client_in_parts(store: Store) -> None:
    first, second = add_run(store, a_run()), add_run(store, a_run(run_id="test-0001"))
    keys = [(first, 2, "bob"), (first, 1, "bob"), (second, 1, "ann"), (first, 2, "ann"), (first, 10, "ann")]
    made = {(run.run_id, number, name): an_update(name, content=f"{run.run_id} {number}") for run, number, name in keys}
    for (run_id, number, _name), update in made.items():
        with store.transaction() as transaction:
            transaction.add_update(run_id, number, update)
    listed = [(1, "bob"), (2, "ann"), (2, "bob"), (10, "ann")]
    expected = [(number, made[first.run_id, number, name]) for number, name in listed]
    assert store.list_updates(first.run_id) == expected
    assert store.list_updates(first.run_id, limit=3) == expected[:3]
    assert store.list_updates(first.run_id, after=(2, "ann"), limit=1) == expected[2:3]
    assert store.list_updates(first.run_id, after=(2, "")) == expected[1:]
    assert store.list_updates(first.run_id, after=(10, "ann")) == []
    assert store.list_updates("none") == []


def test_the_newest_update_of_each_client_within_some_rounds_of_one_run(store: Store) -> None:
    first, second = add_run(store, a_run()), add_run(store, a_run(run_id="test-0001"))
    keys = [(first, 1, "ann"), (first, 1, "bob"), (first, 3, "ann"), (second, 2, "ann"), (first, 4, "bob")]
    made = {(run.run_id, number, name): an_update(name, content=f"{run.run_id} {number}") for run, number, name in keys}
    for (run_id, number, _name), update in made.items():
        with store.transaction() as transaction:
            transaction.add_update(run_id, number, update)

    def newest(begin: int, end: int) -> dict[str, Update]:
        return store.newest_updates(first.run_id, first=begin, end=end)

    assert newest(1, 5) == {"ann": made["test-0000", 3, "ann"], "bob": made["test-0000", 4, "bob"]}
    assert newest(1, 4) == {"ann": made["test-0000", 3, "ann"], "bob": made["test-0000", 1, "bob"]}
    assert newest(2, 4) == {"ann": made["test-0000", 3, "ann"]}
    assert newest(2, 3) == {}
    assert store.newest_updates("none", first=0, end=9) == {}


def test_a_client_has_stored_what_it_committed_and_nobody_else_has(store: Store) -> None:
    run = add_run(store, a_run())
    update = an_update("ann")
    with store.transaction() as transaction:
        transaction.add_update(run.run_id, 1, update)
        transaction.add_update(run.run_id, 2, update)  # the same blobs again
        transaction.add_blob(a_blob("global"))
    for blob in update.payload.blobs:
        assert store.has_stored("ann", blob.sha256)
        assert not store.has_stored("bob", blob.sha256)
        assert store.find_blob(blob.sha256) == blob.size_bytes
    assert not store.has_stored("ann", a_blob("global").sha256), "naming a blob stores it for nobody"


def test_naming_a_blob_again_changes_nothing(store: Store) -> None:
    for _ in range(2):
        with store.transaction() as transaction:
            transaction.add_blob(a_blob("x"))
    assert store.find_blob(a_blob("x").sha256) == 1
    assert store.find_blob(a_blob("y").sha256) is None


def test_named_blobs_are_listed_in_order_in_parts(store: Store) -> None:
    blobs = [a_blob(content) for content in "abc"]
    with store.transaction() as transaction:
        for blob in blobs:
            transaction.add_blob(blob)
    expected = sorted((blob.sha256, blob.size_bytes) for blob in blobs)
    assert store.list_blobs() == expected
    assert store.list_blobs(limit=2) == expected[:2]
    assert store.list_blobs(after=expected[1][0]) == expected[2:]


def test_a_forgotten_blob_is_nobody_s_and_may_be_named_again(store: Store) -> None:
    update = an_update("ann")
    run = add_run(store, a_run(current_round=a_round(1, updates={"ann": update})))
    with store.transaction() as transaction:
        transaction.add_blob(a_blob("kept"))
    names = [blob.sha256 for blob in update.payload.blobs]
    for _ in range(2):
        with store.transaction() as transaction:
            transaction.forget_blobs(names)
    assert [store.find_blob(name) for name in names] == [None, None]
    assert not any(store.has_stored("ann", name) for name in names)
    assert store.list_blobs() == [(a_blob("kept").sha256, a_blob("kept").size_bytes)]
    found = present(store.find_round(run.run_id, 1))
    assert found.updates["ann"] == update, "the record stays"
    with store.transaction() as transaction:
        transaction.add_update(run.run_id, 2, update)
    assert all(store.has_stored("ann", name) for name in names)
