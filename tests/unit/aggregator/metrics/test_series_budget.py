"""A process has fewer than 1,300 series, the aggregator twelve more for each client at most: a Prometheus stays small."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.metrics.runs import CLASSES, DOMAINS, LOSS_TERMS, MAX_RUNS, NAMED_FORGOTTEN, STAGES
from fedplcc.aggregator.presence.sessions import Sessions
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, run_service_pb2
from fedplcc.shared.identity.names import Role
from fedplcc.shared.process.certificate_metrics import CertificateSpan
from fedplcc.shared.process.metrics import OTHER, new_registry
from fedplcc.shared.readings import READINGS
from fedplcc.shared.types import Client, Heartbeat, PrototypeCounts, RoundPhase, Run
from tests.support.federation.in_process import Clock
from tests.support.records.builders import a_round, a_run

SERIES, SERIES_OF_CLIENT = 1300, 12
KINDS = {
    (False, False): "unary",
    (True, False): "client_stream",
    (False, True): "server_stream",
    (True, True): "bidi_stream",
}
TOLD_AT_TIMES = (
    "round_age_seconds",
    "round_stalled_seconds",
    "round_patience_seconds",
    "run_updates_refused_total",
    "checkpoint_age_seconds",
    "client_batch_seconds",
    "forgot_stages",
    "stage_forgotten",
)
"""What has a value only where there is something to say: it must be part of the budget."""


def a_busy_aggregator(
    *, clients: int, domains: int, classes: int, terms: int, runs: int = MAX_RUNS
) -> CollectorRegistry:
    """Everything that an aggregator can show with so many clients, each of which tells all readings."""
    registry, clock = new_registry("aggregator"), Clock()
    metrics = AggregatorMetrics(registry)
    metrics.runs.use_clock(clock)
    metrics.clients.series.use_clock(clock)
    for module, name in ((round_service_pb2, "RoundService"), (run_service_pb2, "RunService")):
        service = module.DESCRIPTOR.services_by_name[name]
        for method in service.methods:
            kind = KINDS[method.client_streaming, method.server_streaming]
            metrics.calls.serves(f"/{service.full_name}/{method.name}", kind)
    sessions = Sessions(10.0, clock)
    names = [f"client-{index:03}" for index in range(clients)]
    for name in names:
        session = sessions.join(Client(client_id=name, domain="city"), "token")
        sessions.record_heartbeat(session, Heartbeat(client_id=name, readings=dict.fromkeys(READINGS, 1.0)))
    open_runs = [_a_run(f"run-{index}", tuple(names), domains, terms) for index in range(runs)]
    metrics.runs.follow(open_runs, now=clock.now)
    for run in open_runs:
        assert run.current_round is not None
        counts = PrototypeCounts(by_class=(1,) * classes, weights=(0.5, 0.5, 0.5))
        metrics.runs.committed(run, replace(run.current_round, prototype_counts=counts))
        metrics.runs.forgot(run.run_id, range(1, 20))
        later = a_round(2, cohort=tuple(names))
        metrics.rounds.stepped(run, a_run(run_id=run.run_id, current_round=later), now=clock.now)
    metrics.runs.follow([a_run(run_id=run.run_id, current_round=a_round(2)) for run in open_runs], now=clock.now)
    for run in open_runs:
        metrics.runs.waits(run.run_id, moved_at=clock.now, patience_s=900.0)
    metrics.clients.follow(sessions, open_runs)
    assert metrics.clients.series.shown() == set(names)
    holders = [(Role.AGGREGATOR, ""), (Role.GATEWAY, ""), (Role.MONITOR, ""), (Role.CLIENT, OTHER)]
    spans = [
        CertificateSpan(role, client, 1.0, 1.0) for role, client in [*holders, *((Role.CLIENT, name) for name in names)]
    ]
    metrics.members.certificates.follow(lambda: spans)
    return registry


def _a_run(run_id: str, roster: tuple[str, ...], domains: int, terms: int) -> Run:
    line = {
        "accuracy": {**{f"domain-{index}": 0.5 for index in range(domains)}, "mean": 0.5, "worst": 0.5},
        "accuracy_local": {"mean": 0.5, "worst": 0.5},
        "stage": 20,
        "accuracy_by_stage": [0.5] * 20,
        "forgetting": 0.1,
        "accuracy_minority": 0.5,
        "loss": {f"term-{index}": 1.0 for index in range(terms)},
        "prototypes": {"local": 4, "global": 2},
    }
    committed = a_round(1, RoundPhase.COMMITTED, results_json=json.dumps(line))
    return a_run(run_id=run_id, roster=roster, current_round=committed)


def series_of(registry: CollectorRegistry) -> list[str]:
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_an_aggregator_of_100_clients_10_domains_and_4_runs_has_no_more_series_than_it_may() -> None:
    few, many = (series_of(a_busy_aggregator(clients=clients, domains=10, classes=10, terms=4)) for clients in (0, 100))
    shown = {"".join(line.partition("{")[0].split()[:1]) for line in many}
    assert {f"fedplcc_{name}" for name in TOLD_AT_TIMES} <= shown
    assert len(few) < SERIES, Counter(line.partition("{")[0] for line in few).most_common(12)
    assert len(many) - len(few) <= SERIES_OF_CLIENT * 100


def test_nor_where_clients_and_runs_bring_all_that_they_can() -> None:
    all_that_is_shown = {"domains": 1000, "classes": CLASSES, "terms": 100, "runs": 3 * MAX_RUNS}
    lines, crowded = (series_of(a_busy_aggregator(clients=clients, **all_that_is_shown)) for clients in (0, 100))
    assert sum(line.startswith("fedplcc_domain_accuracy_ratio{") for line in lines) == MAX_RUNS * (DOMAINS + 1)
    assert sum(line.startswith("fedplcc_stage_accuracy_ratio{") for line in lines) == MAX_RUNS * (STAGES + 1)
    assert sum(line.startswith("fedplcc_stage_forgotten{") for line in lines) == MAX_RUNS * NAMED_FORGOTTEN
    assert sum(line.startswith("fedplcc_training_loss{") for line in lines) == MAX_RUNS * (LOSS_TERMS + 1)
    assert len(lines) < SERIES, Counter(line.partition("{")[0] for line in lines).most_common(12)
    assert len(crowded) - len(lines) <= SERIES_OF_CLIENT * 100


def test_no_series_says_when_it_was_made() -> None:
    """Nobody asks for these, and they would be one more for each counter."""
    lines = series_of(a_busy_aggregator(clients=1, domains=1, classes=1, terms=1))
    assert not [line for line in lines if "_created" in line]
