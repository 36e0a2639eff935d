"""A start of the aggregator, and the scrapes after it, cost the same whether a run has had ten rounds or thousands."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import generate_latest

from fedplcc.aggregator.coordinator.service import Coordinator
from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.process.metrics import new_registry
from tests.support.federation.in_process import Clock, LocalFederation
from tests.support.records.long_history import clients, with_long_history
from tests.support.records.sql_statements import statements

NOW = 1e6


def start(folder: Path, num_rounds: int) -> tuple[str, list[str], list[str]]:
    """Make a run with so many rounds and start on it; returns its id, what the start asked, and what came after it."""
    folder.mkdir()
    run_id = with_long_history(folder, num_clients=2, num_rounds=num_rounds, now=NOW)
    clock = Clock()
    clock.now = NOW
    with LocalFederation(folder, clients(2), clock=clock) as federation:
        federation.join()
        federation.coordinator.tick()
        registry = new_registry("aggregator")
        with statements(federation.store) as of_start:
            metrics, blobs = AggregatorMetrics(registry), BlobStore(folder)
            Coordinator(federation.store, blobs, metrics, wall_clock=clock, monotonic_clock=clock)
        with statements(federation.store) as of_scrapes:
            first = generate_latest(registry)
            assert f'fedplcc_mean_domain_accuracy_ratio{{run="{run_id}"}}' in first.decode()
            generate_latest(registry)
    return run_id, of_start, of_scrapes


def test_a_start_asks_no_more_after_many_rounds_and_a_scrape_asks_nothing(folder: Path) -> None:
    (few_id, few, of_few), (many_id, many, of_many) = (start(folder / str(count), count) for count in (4, 120))
    assert few
    assert [text.replace(few_id, many_id) for text in few] == many
    assert of_few == of_many == []
