"""State of a run, reduced from its events and its clients."""

from __future__ import annotations

import pytest

from fedplcc.terminal.run_history import MAX_NOTES, RunHistory
from shared.types import ClientActivity, RunStatus
from tests.support.records.run_history import (
    CLIENTS,
    DOMAINS,
    a_client,
    a_run_history,
    an_event,
    metrics_of,
    the_clients,
)
from tests.unit.fedplcc.records import a_local_line, a_run_document


def test_a_runs_document_is_where_it_begins() -> None:
    run = RunHistory.of(a_run_document(RunStatus.PAUSED))
    document = a_run_document(RunStatus.PAUSED)
    assert (run.run_id, run.method, run.total_rounds) == (document.run_id, document.method, document.total_rounds)
    assert run.status == "paused"


def test_events_tell_round_phase_and_who_is_done() -> None:
    run = a_run_history()
    assert (run.status, run.round, run.phase, run.done) == ("running", 13, "collecting", {"ward-1"})
    assert (run.num_committed, len(run.rounds)) == (12, 12)
    assert run.roster == frozenset(CLIENTS)
    for name in CLIENTS[1:]:
        run.take(an_event("update_committed", 13, name))
    run.take(an_event("round_aggregating", 13))
    assert (run.phase, run.done, run.phase_fraction) == ("aggregating", set(), None)
    run.take(an_event("round_evaluating", 13))
    run.take(an_event("evaluation_reported", 13, "lab"))
    assert (run.phase, run.done) == ("evaluating", {"lab"})


def test_a_phase_is_as_far_as_its_clients_say() -> None:
    run = a_run_history()
    # ward-1 is done, lab 42 %, ward-2 73 %, ward-3 10 %, ward-4 is away
    assert run.phase_fraction == pytest.approx((1 + 0.42 + 0.73 + 0.1 + 0) / 5)
    run.take_clients(
        [a_client("lab", ClientActivity.UPLOADING, 0.1), a_client("ward-2", ClientActivity.DOWNLOADING, 0.9)]
    )
    assert run.phase_fraction == pytest.approx((1 + 1) / 5), "who uploads has trained, who downloads has not"
    run.take_clients([a_client("lab", ClientActivity.TRAINING, 0.9, number=12)])
    assert run.phase_fraction == pytest.approx(1 / 5), "the progress of another round is none of this one"
    run.take(an_event("client_dropped", 13, "ward-4", reason="lost", detail="not connected"))
    assert run.phase_fraction == pytest.approx(1 / 4), "whom the round does not wait for does not count"
    run.take(an_event("client_returned", 13, "ward-4"))
    assert run.phase_fraction == pytest.approx(1 / 5)


def test_accuracies_are_series_with_their_last_change_and_best() -> None:
    run = a_run_history(2)
    assert [series.name for series in run.accuracies] == list(DOMAINS)
    first, second = (metrics_of(number)["accuracy"]["mnist"] for number in (1, 2))
    mnist = run.accuracies[0]
    assert (mnist.last, mnist.best) == (second, second)
    assert mnist.change == pytest.approx(second - first)
    assert run.worst_domain == "usps"
    assert [series.name for series in run.summaries] == ["mean", "worst"]
    assert [series.name for series in run.losses] == ["ce", "contrast", "alignment"]


def test_a_domain_without_a_report_is_a_gap_and_its_change_is_that_to_the_last_value() -> None:
    run = a_run_history(0)
    for number, value in enumerate((0.5, None, 0.75), start=1):
        line = {**metrics_of(number), "accuracy": {"mnist": value, "mean": value, "worst": value}}
        run.take(an_event("round_committed", number, metrics=line))
    (mnist,) = run.accuracies
    assert (mnist.values, mnist.change) == ([0.5, None, 0.75], 0.25)
    assert run.worst_domain is None, "of one domain none is the worst"


def test_rounds_that_were_not_evaluated_are_no_gaps_in_an_accuracy() -> None:
    run = a_run_history(0)
    run.take(an_event("round_committed", 1, metrics={**metrics_of(1), "accuracy": None}))
    assert (run.accuracies, run.evaluated, run.num_committed) == ([], [], 1)
    run.take(an_event("round_committed", 2, metrics=metrics_of(2)))
    run.take(an_event("round_committed", 3, metrics={**metrics_of(3), "accuracy": None}))
    assert [series.name for series in run.accuracies] == list(DOMAINS)
    assert list(run.accuracies[0].values) == [metrics_of(2)["accuracy"]["mnist"]]
    assert run.worst_domain == "usps"
    assert len(run.losses[0].values) == 3


def test_where_all_domains_are_alike_none_is_the_worst() -> None:
    run = a_run_history(0)
    alike = dict.fromkeys(("mnist", "usps", "mean", "worst"), 1.0)
    run.take(an_event("round_committed", 1, metrics={**metrics_of(1), "accuracy": alike}))
    assert run.worst_domain is None


def test_local_models_have_their_mean_beside_the_global_ones_or_in_its_place() -> None:
    run = a_run_history(0)
    run.take(an_event("round_committed", 1, metrics=a_local_line(1, north=0.5, south=1.0)))
    assert ([series.name for series in run.summaries], run.are_own_models) == (["mean", "worst", "local mean"], False)
    assert run.summaries[-1].last == 0.75
    run.take(an_event("round_committed", 2, metrics=a_local_line(2, is_alone=True, north=0.5)))
    assert ([series.name for series in run.summaries], run.are_own_models) == (["mean", "worst"], True)


def test_what_is_left_is_reckoned_by_the_last_rounds() -> None:
    run = a_run_history()
    assert run.left_s == pytest.approx(18 * 21)
    run.take(an_event("run_paused"))
    assert run.left_s is None


def test_the_status_and_its_reason_follow_the_events() -> None:
    run = a_run_history()
    for name, status in (("run_paused", "paused"), ("run_resumed", "running"), ("run_stopping", "stopping")):
        run.take(an_event(name, 13, reason="why"))
        assert (run.status, run.reason) == (status, "why")
    run.take(an_event("pause_requested"))
    assert run.is_pause_requested
    run.take(an_event("pause_withdrawn"))
    assert not run.is_pause_requested
    run.take(an_event("quorum_missing", 13, reason="1 of 3 clients"))
    assert run.reason == "1 of 3 clients"
    run.take(an_event("quorum_regained", 13))
    assert run.reason == ""


def test_only_the_runs_own_clients_are_kept() -> None:
    run = a_run_history()
    run.clients_trouble = "no aggregator answers"
    run.take_clients([*the_clients(), a_client("stranger")])
    assert [client.client_id for client in run.clients] == list(CLIENTS)
    assert run.clients_trouble == ""


def test_notes_are_kept_up_to_a_bound_and_know_trouble() -> None:
    run = a_run_history()
    assert [(note.is_trouble, note.text.partition(",")[0]) for note in run.notes] == [
        (True, "round 7 goes on without client ward-4"),
        (True, "client ward-3: 2 of 1"),
    ]
    for _ in range(2 * MAX_NOTES):
        run.take(an_event("run_recovered"))
    assert len(run.notes) == MAX_NOTES
    assert not run.notes[-1].is_trouble


def test_quarantine_and_release_are_remembered() -> None:
    run = a_run_history()
    run.take(an_event("client_quarantined", 13, "lab", reason="3 updates were refused"))
    assert run.quarantined == {"lab"}
    run.take(an_event("client_released", 13, "lab"))
    assert run.quarantined == set()
