"""Many open runs: a limit, an end for those that nobody joins, and a cost that does not grow with those that wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fedplcc.aggregator.coordinator.service import Coordinator
from fedplcc.aggregator.identity.audit import Audit
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.rounds import configuration
from fedplcc.aggregator.store.base import KEY, SESSION, ApiKey
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import TooManyCalls, TooManyOpenRuns
from fedplcc.shared.identity.principals import ANYONE, OWNER, Principal, current_principal
from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.reasons import NobodyJoined
from fedplcc.shared.steering import StopRun
from fedplcc.shared.types import Run, RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.unit.aggregator.coordinator.test_audited_changes import Audited


@contextmanager
def audited(folder: Path) -> Iterator[tuple[SqlStore, Coordinator]]:
    """A coordinator that writes an audit, and allows a key one open run."""
    with closing(SqlStore.in_folder(folder)) as store:
        coordinator = Coordinator(
            store,
            BlobStore(folder),
            AggregatorMetrics(new_registry("aggregator")),
            Limits(max_open_runs_per_key=1),
            audit=Audit(store),
        )
        yield store, coordinator


CLIENTS = ("ann", "bob")
DAY_S = 86_400.0


def a_waiting_run(federation: LocalFederation, name: str) -> Run:
    """A run for which somebody is missing."""
    return federation.coordinator.create_run(name, a_document(clients=("ann", "cat"), run={"name": name}))


@contextmanager
def few(folder: Path, *, runs: int = 3, runs_of_a_key: int = 100, days: float = 7.0) -> Iterator[LocalFederation]:
    limits = Limits(max_open_runs=runs, max_open_runs_per_key=runs_of_a_key, pending_days=days)
    with LocalFederation(folder, map(NumpyClient, CLIENTS), limits) as federation:
        federation.join()
        yield federation


@contextmanager
def called_by(principal: Principal) -> Iterator[None]:
    token = current_principal.set(principal)
    try:
        yield
    finally:
        current_principal.reset(token)


class TestTheLimit:
    def test_one_run_more_is_refused_by_name_and_costs_nothing(self, folder: Path) -> None:
        with few(folder) as federation:
            for number in range(3):
                a_waiting_run(federation, f"run{number}")
            blobs = federation.store.list_blobs()
            with pytest.raises(TooManyOpenRuns) as refusal:
                a_waiting_run(federation, "more")
            assert refusal.value.code.http_status == 429
            assert "3 runs" in refusal.value.detail
            assert federation.store.list_blobs() == blobs
            assert len(federation.coordinator.list_runs(limit=10)) == 3

    def test_one_key_leaves_room_for_others(self, folder: Path) -> None:
        with few(folder, runs=9, runs_of_a_key=2) as federation:
            with called_by(Principal(key_id="0a")):
                mine = [a_waiting_run(federation, f"run{number}") for number in range(2)]
                with pytest.raises(TooManyOpenRuns, match="2 runs of key:0a"):
                    a_waiting_run(federation, "more")
                assert a_waiting_run(federation, "run0") == mine[0], "a repeated request is none more"
            with called_by(Principal(key_id="0b")):
                a_waiting_run(federation, "theirs")
            with called_by(Principal(key_id="0a")):
                federation.coordinator.steer(mine[0].run_id, StopRun())
                a_waiting_run(federation, "more")

    def test_one_key_that_starts_and_stops_runs_in_a_loop_leaves_messages_to_others(self, folder: Path) -> None:
        with few(folder, runs_of_a_key=2) as federation:
            with called_by(Principal(key_id="0a")):
                for number in range(4):
                    federation.coordinator.steer(a_waiting_run(federation, f"run{number}").run_id, StopRun())
                with pytest.raises(TooManyCalls, match="key:0a begins more than 4 runs in an hour"):
                    a_waiting_run(federation, "more")
                federation.clock.now += 900
                a_waiting_run(federation, "later")
            with called_by(Principal(key_id="0b")):
                a_waiting_run(federation, "theirs")

    def test_more_open_runs_than_the_limit_come_up_again_after_it_was_lowered(self, folder: Path) -> None:
        with few(folder) as federation:
            for number in range(3):
                a_waiting_run(federation, f"run{number}")
            federation.limits = Limits(max_open_runs=1)
            federation.restart()
            assert [run.status for run in federation.coordinator.list_runs(limit=10)] == [RunStatus.PENDING] * 3

    def test_a_repeated_request_gets_its_run_all_the_same(self, folder: Path) -> None:
        with few(folder, runs=1) as federation:
            run = a_waiting_run(federation, "run")
            assert a_waiting_run(federation, "run") == run

    def test_who_created_a_run_is_known_after_a_restart(self, folder: Path) -> None:
        with audited(folder) as (store, coordinator), called_by(Principal(key_id="0a")):
            run = coordinator.create_run("run0", a_document(clients=CLIENTS))
            assert store.open_run_creators() == {run.run_id: "key:0a"}
        with audited(folder) as (store, coordinator), called_by(Principal(key_id="0a")):
            with pytest.raises(TooManyOpenRuns, match="key:0a"):
                coordinator.create_run("run1", a_document(clients=CLIENTS))
            coordinator.steer(run.run_id, StopRun())
            assert store.open_run_creators() == {}

    def test_a_run_that_ends_makes_room(self, folder: Path) -> None:
        with few(folder, runs=1) as federation:
            federation.coordinator.steer(a_waiting_run(federation, "run").run_id, StopRun())
            a_waiting_run(federation, "next")


class TestTheExpiry:
    def test_a_run_that_nobody_joins_is_stopped_with_its_reason(self, folder: Path) -> None:
        with few(folder, days=2.0) as federation:
            run = a_waiting_run(federation, "run")
            federation.clock.now += 2 * DAY_S
            federation.coordinator.tick()
            assert federation.coordinator.get_run(run.run_id).status is RunStatus.PENDING
            federation.clock.now += 1.0
            federation.coordinator.tick()
            after = federation.coordinator.get_run(run.run_id)
            assert (after.status, after.reason) == (RunStatus.STOPPED, NobodyJoined(2.0))
            assert [event.type for event in federation.events(run.run_id)][-2:] == ["run_stopping", "run_stopped"]

    def test_the_reason_survives_a_restart(self, folder: Path) -> None:
        with few(folder, days=2.0) as federation:
            run = a_waiting_run(federation, "run")
            federation.clock.now += 3 * DAY_S
            federation.coordinator.tick()
            federation.start_again()
            assert federation.coordinator.get_run(run.run_id).reason == NobodyJoined(2.0)

    def test_a_run_that_began_is_never_stopped_for_it(self, folder: Path) -> None:
        with few(folder, days=2.0) as federation:
            run = federation.create()
            federation.step()
            federation.clock.now += 30 * DAY_S
            federation.coordinator.tick()
            assert federation.coordinator.get_run(run.run_id).status is RunStatus.RUNNING


class Counted:
    """Counts what a start, a join or a tick does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parsed = 0

        def counted(*arguments: object) -> object:
            self.parsed += 1
            return parse_run_config(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(configuration, "parse_run_config", counted)
        configuration._config.cache_clear()


def transactions(federation: LocalFederation, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    seen: list[None] = []
    real = type(federation.store).transaction

    def counted(store: object) -> object:
        seen.append(None)
        return real(store)  # type: ignore[arg-type]

    monkeypatch.setattr(type(federation.store), "transaction", counted)
    return seen


class TestTheCost:
    WAITING = 90

    @pytest.fixture
    def crowded(self, folder: Path) -> Iterator[LocalFederation]:
        with few(folder, runs=1000) as federation:
            for number in range(self.WAITING):
                a_waiting_run(federation, f"run{number}")
            yield federation

    def test_a_restart_is_one_transaction_and_parses_no_configuration_of_a_run_that_waits(
        self, crowded: LocalFederation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counted, written = Counted(monkeypatch), transactions(crowded, monkeypatch)
        crowded.start_again()
        assert len(written) == 1
        assert counted.parsed == 0
        assert len(crowded.events("", "run_recovered")) == self.WAITING

    def test_ticks_and_joins_parse_nothing_and_write_no_run(
        self, crowded: LocalFederation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        crowded.start_again()
        crowded.join()
        counted, written = Counted(monkeypatch), transactions(crowded, monkeypatch)
        for _ in range(3):
            crowded.coordinator.tick()
            crowded.join()
        assert (counted.parsed, len(written)) == (0, 0)

    def test_each_running_run_is_parsed_once_however_many_there_are(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        number = configuration.CACHED + 6
        with few(folder, runs=1000) as federation:
            for index in range(number):
                federation.coordinator.create_run(f"run{index}", a_document(run={"name": f"run{index}"}))
            counted = Counted(monkeypatch)
            federation.restart()
            at_start = counted.parsed
            assert at_start <= number
            for _ in range(3):
                federation.coordinator.tick()
                federation.join()
            assert counted.parsed == at_start

    def test_the_configurations_of_ended_runs_are_forgotten(self, folder: Path) -> None:
        with few(folder, runs=1000) as federation:
            for index in range(configuration.CACHED + 6):
                run = federation.coordinator.create_run(f"run{index}", a_document(run={"name": f"run{index}"}))
                federation.coordinator.steer(run.run_id, StopRun())
                federation.run_to_end(run.run_id)
            assert federation.coordinator._ledger._memories._configs == {}, "the cache holds a bounded number of others"


class TestWhoBeganThem:
    def test_tasks_name_the_key_that_began_the_run_and_the_most_that_it_may_do(self, folder: Path) -> None:
        def saved(key_id: str, kind: str, label: str, *scopes: str) -> None:
            key = ApiKey(
                key_id=key_id,
                secret_sha256="0" * 64,
                kind=kind,
                label=label,
                scopes=scopes,
                created_at=1.0,
                expires_at=9e9,
            )
            with federation.store.transaction() as transaction:
                transaction.save_key(key)

        with Audited(folder, map(NumpyClient, CLIENTS)) as federation:
            federation.join()
            saved("0123456789ab", KEY, "ward round", "read", "run")
            saved("ba9876543210", SESSION, "key:0123456789ab", "read")
            callers = {
                Principal(key_id="0123456789ab"): "ward round (run)",
                Principal(key_id="ba9876543210"): "ward round (run)",
                Principal(key_id="ffffffffffff"): "key:ffffffffffff",
                OWNER: "the owner of the aggregator",
                ANYONE: "",
            }
            for caller, words in callers.items():
                with called_by(caller):
                    run_id = federation.create().run_id
                for _ in range(2):
                    task = federation.task(federation.clients["ann"])
                    assert task.run is not None
                    assert (task.run.run_id, task.run.started_by) == (run_id, words)
                    federation.restart()
                federation.coordinator.steer(run_id, StopRun())
                federation.run_to_end(run_id)
