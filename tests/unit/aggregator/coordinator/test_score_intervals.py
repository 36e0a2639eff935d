"""Intervals of a run's score by its number of test images, in the event and in run.json, and the score as a metric."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.scoring.intervals import accuracy_interval, balanced_interval, mean_interval
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient


@pytest.mark.parametrize(("score", "key"), [("accuracy", "accuracy"), ("balanced_accuracy", "balanced_accuracy")])
def test_the_last_rounds_score_has_an_interval_for_each_domain_and_over_them(
    folder: Path, score: str, key: str
) -> None:
    clients = [NumpyClient("ann", domain="north"), NumpyClient("bob", domain="south", counts=(30, 3, 5))]
    with LocalFederation(folder, clients) as federation:
        federation.join()
        run = federation.create(evaluation={"score": score})
        run = federation.run_to_end(run.run_id)
        event = federation.events(run.run_id, "round_committed")[-1]
        line: dict[str, Any] = json.loads(federation.metrics_lines(run.run_id)[-1])
        of_domain = {
            report.domain: (report.counts[0].correct, report.counts[0].total)
            for number, report in federation.coordinator.list_evaluations(run.run_id)
            if number == line["round"]
        }
        interval = balanced_interval if score == "balanced_accuracy" else accuracy_interval
        wanted = {name: interval(*counts) for name, counts in of_domain.items()}
        mean = mean_interval([line[key][name] for name in wanted], [each for each in wanted.values() if each])
        worst = min(wanted, key=lambda name: line[key][name])
        for name, each in {**wanted, "mean": mean, "worst": wanted[worst]}.items():
            assert each is not None
            assert event.data["intervals"][name] == [each.low, each.high]
        told = federation.coordinator.manifest(run)["score"]
        assert (told["name"], told["round"], told["confidence"]) == (score, line["round"], 0.95)
        assert {name: found["value"] for name, found in told["values"].items()} == line[key]
        assert told["values"]["mean"]["low"] == event.data["intervals"]["mean"][0]
        for summary in ("mean", "worst"):
            shown = federation.metric("run_score_ratio", run=run.run_id, score=score, summary=summary)
            assert shown == line[key][summary]
