"""Series of /metrics: everything known from the start, active runs only, and no more series than the bounds allow."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.metrics.outcomes import REFUSALS, REPORT_REFUSALS, What
from fedplcc.aggregator.metrics.round_times import Phase
from fedplcc.aggregator.metrics.rounds import RESULTS
from fedplcc.aggregator.metrics.runs import CLASSES, KEEP_ENDED_S, LOSS_TERMS, MAX_NAME, MAX_RUNS
from fedplcc.shared import errors
from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.types import ClientActivity, Payload, PrototypeCounts, RoundPhase, Run, RunStatus, Update
from tests.support.records.builders import a_round, a_run


@pytest.fixture
def registry() -> CollectorRegistry:
    return new_registry("aggregator")


@pytest.fixture
def metrics(registry: CollectorRegistry) -> AggregatorMetrics:
    return AggregatorMetrics(registry)


def series(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    """Values of a metric by its labels' values, in the order of the labels' names."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == f"fedplcc_{name}"
    }


def a_committed_run(run_id: str = "one", number: int = 1, **values: Any) -> Run:
    line: Mapping[str, Any] = {
        "accuracy": {"city": 0.5, "mean": 0.5, "worst": 0.5},
        "loss": {"ce": 1.0},
        "prototypes": {"local": 4, "global": 2},
        **values,
    }
    started = {"collecting": 100.0, "aggregating": 103.0, "evaluating": 103.5, "committed": 104.0}
    current = a_round(number, RoundPhase.COMMITTED, results_json=json.dumps(line), phase_started_at=started)
    return a_run(run_id=run_id, current_round=current)


def commit(
    metrics: AggregatorMetrics, run: Run, counts: list[int], *, now: float, weights: Sequence[float] = ()
) -> None:
    """Let a run's round be opened, evaluated and become the committed one that it has, on the disk at `now`."""
    assert run.current_round is not None
    earlier = replace(run, current_round=a_round(run.current_round.number - 1, RoundPhase.COMMITTED))
    opened = replace(run, current_round=replace(run.current_round, phase=RoundPhase.COLLECTING))
    metrics.rounds.stepped(earlier, opened, now=min(run.current_round.phase_started_at.values()))
    evaluating = replace(run, current_round=replace(run.current_round, phase=RoundPhase.EVALUATING))
    metrics.rounds.stepped(evaluating, run, now=now)
    found = PrototypeCounts(
        by_class=tuple(counts), weights=(min(weights), statistics.median(weights), max(weights)) if weights else None
    )
    metrics.runs.committed(run, replace(run.current_round, prototype_counts=found))


def test_every_known_label_is_there_from_the_start(registry: CollectorRegistry, metrics: AggregatorMetrics) -> None:
    for name, refusals in (("client_updates_total", REFUSALS), ("client_reports_total", REPORT_REFUSALS)):
        outcomes = {refusal.reason.lower() for refusal in refusals} | {"accepted", "duplicate"}
        assert series(registry, name) == {(outcome,): 0 for outcome in outcomes}
    assert set(series(registry, "round_phase_duration_seconds_count")) == {(phase.value,) for phase in Phase}
    assert set(series(registry, "transfer_bytes_total")) == {
        (direction, kind) for direction in ("sent", "received") for kind in ("model", "prototypes")
    }
    for name in ("transfers_resumed_total", "transfer_resent_bytes_total"):
        assert set(series(registry, name)) == {("sent",), ("received",)}
    states = {"registered", "connected", "quarantined", *(activity.value for activity in ClientActivity)}
    assert set(series(registry, "clients")) == {(state,) for state in states}
    assert set(series(registry, "runs")) == {(status.value,) for status in RunStatus if not status.is_final}
    assert series(registry, "rounds_total") == {(result,): 0 for result in RESULTS}
    assert series(registry, "runs_ended_total") == {(status.value,): 0 for status in RunStatus if status.is_final}
    assert series(registry, "recoveries_total") == {(): 0}
    assert series(registry, "client_problems_total") == {(): 0}


@pytest.mark.parametrize("what", ["update", "report"])
def test_every_refusal_is_counted_under_its_reason_and_nothing_else_is(
    registry: CollectorRegistry, metrics: AggregatorMetrics, what: What
) -> None:
    refusals = REFUSALS if what == "update" else REPORT_REFUSALS
    for refusal in refusals:
        assert metrics.outcomes.refused(refusal("no"), what=what)
    for other in (errors.StoreUnavailable("away"), errors.FailedPrecondition("taken over"), errors.Internal("a bug")):
        assert not metrics.outcomes.refused(other, what=what)
    assert series(registry, f"client_{what}s_total") == {
        **{(refusal.reason.lower(),): 1 for refusal in refusals},
        ("accepted",): 0,
        ("duplicate",): 0,
    }


def test_every_way_in_which_a_round_takes_nothing_is_counted_under_a_reason_of_its_own() -> None:
    """A new kind of RoundClosed has to be counted somewhere, and the kind without a reason of its own nowhere."""
    assert set(errors.RoundClosed.__subclasses__()) <= {*REFUSALS, *REPORT_REFUSALS}
    assert errors.RoundClosed not in {*REFUSALS, *REPORT_REFUSALS}


def test_the_accuracy_of_local_models_is_shown_as_long_as_it_is_known(
    registry: CollectorRegistry, metrics: AggregatorMetrics
) -> None:
    local = {"city": 0.25, "farm": 0.75, "mean": 0.5, "worst": 0.25}
    runs = [a_committed_run(accuracy_local=local), a_committed_run("two")]
    metrics.runs.follow(runs, now=100.0)
    for run in runs:
        commit(metrics, run, [], now=104.0)
    assert series(registry, "local_accuracy_ratio") == {("one", "mean"): 0.5, ("one", "worst"): 0.25}
    commit(metrics, a_committed_run(number=2, accuracy_local=dict.fromkeys(local)), [], now=108.0)
    assert series(registry, "local_accuracy_ratio") == {}


def test_what_joining_is_worth_is_shown_for_a_bounded_number_of_clients(
    registry: CollectorRegistry, metrics: AggregatorMetrics
) -> None:
    gains = {f"site-{number:02}": number / 100 - 0.05 for number in range(20)}
    run = a_committed_run(joining=gains)
    metrics.runs.follow([run], now=100.0)
    commit(metrics, run, [], now=104.0)
    shown = series(registry, "joining_ratio")
    assert shown["site-00", "one"] == -0.05
    assert len(shown) == 17
    assert ("other", "one") in shown
    commit(metrics, a_committed_run(number=2, joining=None), [], now=108.0)
    assert series(registry, "joining_ratio") == {}


def test_a_committed_round_shows_its_results_and_durations(
    registry: CollectorRegistry, metrics: AggregatorMetrics
) -> None:
    run = a_committed_run(
        accuracy={"city": 0.25, "farm": 0.75, "mean": 0.5, "worst": 0.25}, loss={"ce": 1.5, "contra": 0.5}
    )
    metrics.runs.follow([run], now=100.0)
    commit(metrics, run, [2, 0, 1], now=104.0)
    assert series(registry, "domain_accuracy_ratio") == {("city", "one"): 0.25, ("farm", "one"): 0.75}
    assert series(registry, "worst_domain_accuracy_ratio") == {("one",): 0.25}
    assert series(registry, "mean_domain_accuracy_ratio") == {("one",): 0.5}
    assert series(registry, "training_loss") == {("one", "ce"): 1.5, ("one", "contra"): 0.5}
    assert series(registry, "prototypes") == {("one", "local"): 4, ("one", "global"): 2}
    assert series(registry, "class_prototypes") == {("0", "one"): 2, ("1", "one"): 0, ("2", "one"): 1}
    assert series(registry, "round") == {("one",): 1}
    assert series(registry, "rounds_total")[("committed",)] == 1
    assert series(registry, "round_duration_seconds_sum") == {(): 4.0}
    seconds = series(registry, "round_phase_duration_seconds_sum")
    assert {phase: value for (phase,), value in seconds.items() if value} == {
        "collect": 3.0,
        "cluster": 0.5,
        "evaluate": 0.5,
    }, "nobody saw more of it than its record"


def test_a_value_that_this_round_does_not_know_is_not_carried_forward(
    registry: CollectorRegistry, metrics: AggregatorMetrics
) -> None:
    first = a_committed_run(accuracy={"city": 0.25, "farm": 0.75, "mean": 0.5, "worst": 0.25}, loss={"ce": 1, "x": 2})
    metrics.runs.follow([first], now=100.0)
    commit(metrics, first, [1], now=104.0)
    commit(metrics, a_committed_run(accuracy={"city": None, "sea": 0.1, "mean": 0.1, "worst": 0.1}), [1], now=104.0)
    assert series(registry, "domain_accuracy_ratio") == {("sea", "one"): 0.1}
    assert series(registry, "training_loss") == {("one", "ce"): 1}
    commit(metrics, a_committed_run(accuracy={"city": None, "mean": None, "worst": None}), [1], now=104.0)
    for name in ("domain_accuracy_ratio", "mean_domain_accuracy_ratio", "worst_domain_accuracy_ratio"):
        assert series(registry, name) == {}
    commit(metrics, first, [1], now=104.0)
    assert series(registry, "domain_accuracy_ratio") == {("city", "one"): 0.25, ("farm", "one"): 0.75}


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.FAILED])
def test_the_series_of_a_run_are_gone_when_it_has_ended(
    registry: CollectorRegistry, metrics: AggregatorMetrics, status: RunStatus
) -> None:
    for run in (a_committed_run("one"), a_committed_run("two")):
        metrics.runs.follow([a_committed_run("one"), a_committed_run("two")], now=100.0)
        commit(metrics, run, [1, 1], now=104.0)
    left = [a_run(status, run_id="one"), a_committed_run("two")]
    metrics.runs.follow(left, now=200.0)
    assert set(series(registry, "round")) == {("one",), ("two",)}, "scrapers still see its last round"
    metrics.runs.follow(left, now=200.0 + KEEP_ENDED_S)
    shown = {
        sample.labels["run"] for family in registry.collect() for sample in family.samples if "run" in sample.labels
    }
    assert shown == {"two"}
    assert series(registry, "rounds_total")[("committed",)] == 2, "counters do not go back"


def test_at_most_four_runs_have_series_and_the_next_follows_when_one_ends(
    registry: CollectorRegistry, metrics: AggregatorMetrics
) -> None:
    runs = [a_committed_run(f"run{index}") for index in range(MAX_RUNS + 2)]
    metrics.runs.follow(runs, now=100.0)
    for run in runs:
        commit(metrics, run, [1], now=104.0)
    assert set(series(registry, "round")) == {("run0",), ("run1",), ("run2",), ("run3",)}
    assert set(series(registry, "mean_domain_accuracy_ratio")) == set(series(registry, "round"))
    assert series(registry, "rounds_total")[("committed",)] == 6, "every run's rounds are counted"
    assert series(registry, "runs")[("running",)] == 6
    metrics.runs.follow(runs[1:], now=100.0)
    assert set(series(registry, "round")) == {("run1",), ("run2",), ("run3",), ("run4",)}


def test_one_client_that_makes_terms_up_takes_no_series_of_the_others(
    registry: CollectorRegistry, metrics: AggregatorMetrics
) -> None:
    terms = {f"a{index}": 9.0 for index in range(LOSS_TERMS)} | {"ce": 1.0}
    run = a_committed_run(loss=terms)
    assert run.current_round is not None
    sent = {"ann": {"ce": 1.0}, "bob": {"ce": 1.0}, "eve": terms}
    updates = {name: Update(client_id=name, payload=Payload(), num_examples=1, losses=sent[name]) for name in sent}
    metrics.runs.follow([run], now=100.0)
    commit(metrics, replace(run, current_round=replace(run.current_round, updates=updates)), [1], now=104.0)
    assert series(registry, "training_loss")[("one", "ce")] == 1.0


def test_names_that_clients_make_up_can_break_no_line_and_grow_no_longer_than_a_label_may(
    registry: CollectorRegistry, metrics: AggregatorMetrics
) -> None:
    hostile = 'ce"} 1\nfedplcc_round{run="x'
    run = a_committed_run(loss={hostile: 3.0, "x" * (MAX_NAME + 1): 4.0, "x" * MAX_NAME: 5.0})
    metrics.runs.follow([run], now=100.0)
    commit(metrics, run, [1], now=104.0)
    shown = {
        sample.labels["term"]: sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if sample.name == "fedplcc_training_loss"
    }
    assert shown == {hostile: 3.0, "other": 4.0, "x" * MAX_NAME: 5.0}


def test_the_gap_and_the_weights_follow_the_last_round(registry: CollectorRegistry, metrics: AggregatorMetrics) -> None:
    run = a_committed_run(accuracy={"city": 0.25, "farm": 0.75, "sea": None, "mean": 0.5, "worst": 0.25})
    metrics.runs.follow([run], now=100.0)
    commit(metrics, run, [1, 3], now=104.0, weights=[0.2, 0.5, 0.1, 1.0])
    assert series(registry, "domain_accuracy_gap_ratio") == {("one",): 0.5}
    assert series(registry, "prototype_cluster_weight") == {
        ("one", "min"): 0.1,
        ("one", "median"): 0.35,
        ("one", "max"): 1.0,
    }
    commit(metrics, a_committed_run(accuracy={"city": None, "mean": None, "worst": None}), [], now=108.0)
    assert series(registry, "domain_accuracy_gap_ratio") == {}
    assert series(registry, "prototype_cluster_weight") == {}, "a method without prototypes weighs none"


def test_a_run_of_many_classes_has_no_series_by_class(registry: CollectorRegistry, metrics: AggregatorMetrics) -> None:
    run = a_committed_run()
    metrics.runs.follow([run], now=100.0)
    commit(metrics, run, [1] * (CLASSES + 1), now=104.0)
    assert series(registry, "class_prototypes") == {}
    commit(metrics, run, [1] * CLASSES, now=104.0)
    assert len(series(registry, "class_prototypes")) == CLASSES


def test_what_is_looked_up_at_the_scrape_is_found_by_its_name_and_is_there_once(
    registry: CollectorRegistry, metrics: AggregatorMetrics
) -> None:
    for name in ("round_age_seconds", "client_connected", "data_free_bytes"):
        with pytest.raises(ValueError, match=f"fedplcc_{name}"):
            Gauge(f"fedplcc_{name}", "Another one of this name.", registry=registry)
    metrics.disk.file_system.follow(Path("/"))
    one = registry.restricted_registry(["fedplcc_data_free_bytes"])
    assert [family.name for family in one.collect()] == ["fedplcc_data_free_bytes"]


def test_clocks_that_go_back_give_no_negative_duration(registry: CollectorRegistry, metrics: AggregatorMetrics) -> None:
    commit(metrics, a_committed_run(), [1], now=50.0)
    assert series(registry, "round_duration_seconds_sum") == {(): 0.0}


def test_round_0_which_makes_the_first_model_is_neither_counted_nor_measured(
    registry: CollectorRegistry, metrics: AggregatorMetrics
) -> None:
    commit(metrics, a_committed_run(number=0), [1], now=104.0)
    assert series(registry, "round_duration_seconds_count") == {(): 0}
    assert series(registry, "rounds_total")[("committed",)] == 0
