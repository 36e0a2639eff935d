"""The pool of aggregations: no run waits for another one's, and each run gets its turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from fedplcc.aggregator.aggregation_pool import THREADS, AggregationPool
from fedplcc.aggregator.computation.aggregation import Aggregated, aggregate
from fedplcc.aggregator.computation.round_inputs import RoundInputs
from fedplcc.shared.types import RoundPhase, Run, RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient
from tests.support.federation.processes import eventually

GRACE_S = 30.0
JOINED = (NumpyClient("ann", size=3), NumpyClient("bob", size=3))


@pytest.fixture
def pool(federation: LocalFederation) -> Iterator[AggregationPool]:
    pool = AggregationPool(federation.coordinator)
    pool.start()
    yield pool
    pool.stop(GRACE_S)


def clients_work(federation: LocalFederation) -> bool:
    """Let every client do its task once; whether any had one."""
    return any([federation.perform(client, federation.task(client)) for client in federation.clients.values()])


def ends(federation: LocalFederation, run: Run) -> Run:
    """Let the clients work until a run has ended."""

    def has_ended() -> bool:
        clients_work(federation)
        return federation.coordinator.has_ended(run.run_id)

    eventually(has_ended, f"run {run.run_id} ends")
    return federation.coordinator.get_run(run.run_id)


def aggregates_with(monkeypatch: pytest.MonkeyPatch, before: Callable[[Run], None]) -> None:
    """Call a function before every aggregation, in its thread."""

    def watched(of: RoundInputs) -> Aggregated:
        before(of.run)
        return aggregate(of)

    monkeypatch.setattr("fedplcc.aggregator.aggregating.round_work.aggregate", watched)


@pytest.mark.parametrize("num_endless", [1, THREADS - 1])
def test_runs_whose_aggregation_does_not_end_keep_no_other_run_waiting(
    federation: LocalFederation, pool: AggregationPool, monkeypatch: pytest.MonkeyPatch, num_endless: int
) -> None:
    endless = [federation.create() for _ in range(num_endless)]
    names = {run.run_id for run in endless}
    may_end = threading.Event()

    def wait(run: Run) -> None:
        if run.run_id in names:
            may_end.wait()

    aggregates_with(monkeypatch, wait)
    try:
        honest = federation.create("fedplcc", run={"rounds": 3})
        assert ends(federation, honest).status is RunStatus.COMPLETED
        for run in endless:
            current = federation.coordinator.get_run(run.run_id).current_round
            assert current is not None
            assert current.phase is RoundPhase.AGGREGATING
    finally:
        may_end.set()
    for run in endless:
        assert ends(federation, run).status is RunStatus.COMPLETED


def test_as_many_long_aggregations_as_there_are_threads_leave_one_for_short_ones(
    federation: LocalFederation, pool: AggregationPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = [federation.create("fedplcc") for _ in range(THREADS + 1)]
    names = {run.run_id for run in endless}
    may_end = threading.Event()

    def wait(run: Run) -> None:
        if run.run_id in names:
            may_end.wait()

    aggregates_with(monkeypatch, wait)
    monkeypatch.setattr("fedplcc.aggregator.aggregating.aggregation_turns.SHORT_PROTOTYPES", 5)
    try:
        honest = federation.create("fedavg", run={"rounds": 3})
        assert ends(federation, honest).status is RunStatus.COMPLETED
    finally:
        may_end.set()
    for run in endless:
        assert ends(federation, run).status is RunStatus.COMPLETED


def test_a_round_is_aggregated_by_one_thread(
    federation: LocalFederation, pool: AggregationPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, int]] = []
    aggregates_with(monkeypatch, lambda run: begun.append((run.run_id, run.round_number)))
    run = federation.create(run={"rounds": 5})
    assert ends(federation, run).status is RunStatus.COMPLETED
    assert begun == [(run.run_id, number) for number in range(1, 6)]


def test_a_crash_delays_its_run_alone(
    federation: LocalFederation, pool: AggregationPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing = federation.create()
    is_mended = threading.Event()

    def crash(run: Run) -> None:
        if run.run_id == crashing.run_id and not is_mended.is_set():
            raise ZeroDivisionError

    aggregates_with(monkeypatch, crash)
    honest = federation.create("fedplcc", run={"rounds": 3})
    assert ends(federation, honest).status is RunStatus.COMPLETED
    assert len(federation.events(crashing.run_id, "aggregation_failed")) == 1
    is_mended.set()
    federation.clock.now += 10
    assert ends(federation, crashing).status is RunStatus.COMPLETED
