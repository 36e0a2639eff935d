"""Every way in which a report could hurt a run: each is refused by its own check, and changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.errors import MalformedUpdate, NotInCohort
from fedplcc.shared.scoring.histograms import histograms_of
from fedplcc.shared.types import Evaluation, EvaluationCounts, Run, TaskKind
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient
from tests.unit.aggregator.computation.test_poisoned_updates import BOB, JOINED, NAN, assert_ends_right

__all__ = ["JOINED"]


def counts(**changes: Any) -> EvaluationCounts:
    fields = {"set_name": "test", "model": "global", "correct": (1, 2, 3), "total": (10, 10, 10)}
    return EvaluationCounts(**{**fields, **changes})


HISTOGRAMS = histograms_of(
    np.zeros((30, 4), np.int16), np.repeat([0, 1, 2], 10), np.repeat([0, -1, 1, -1, 2, -1], [1, 9, 2, 8, 3, 7]), 3
)
"""Of the samples that `counts` counts."""


BAD_REPORTS: dict[str, tuple[dict[str, Any], str]] = {
    "no set": ({"counts": ()}, "counts"),
    "too many sets": ({"counts": tuple(counts(set_name=f"set{index}") for index in range(17))}, "counts"),
    "a set twice": ({"counts": (counts(), counts(correct=(0, 0, 0)))}, "counts"),
    "too few classes": ({"counts": (counts(correct=(1, 2)),)}, "counts"),
    "too many classes": ({"counts": (counts(total=(1, 2, 3, 4)),)}, "counts"),
    "more correct than total": ({"counts": (counts(correct=(11, 2, 3)),)}, "counts"),
    "negative counts": ({"counts": (counts(correct=(-1, 2, 3)),)}, "counts"),
    "absurd totals": ({"counts": (counts(total=(2**62, 10, 10)),)}, "counts"),
    "negative totals": ({"counts": (counts(correct=(-3, 0, 0), total=(-2, 0, 0)),)}, "counts"),
    "an unknown model": ({"counts": (counts(model="other"),)}, "counts"),
    "a set without a name": ({"counts": (counts(set_name=""),)}, "counts"),
    "an endless name": ({"counts": (counts(set_name="x" * 65),)}, "counts"),
    "a matrix that nobody asked for": ({"counts": (counts(confusion=(1, 9, 0, 0, 2, 8, 0, 0, 3)),)}, "counts"),
    "histograms that nobody asked for": ({"counts": (counts(histograms=HISTOGRAMS),)}, "counts"),
    "a NaN timing": ({"timings": {"seconds": NAN}}, "entries"),
}


def evaluating(federation: LocalFederation, **evaluation: Any) -> Run:
    """A run that asks bob for his report on round 1, and has that of ann."""
    run = federation.create("fedplcc", run={"rounds": 1}, evaluation=evaluation)
    federation.step(["ann"])
    federation.step(["ann", "bob"])
    assert federation.task(BOB).kind is TaskKind.EVALUATE
    return run


def report(federation: LocalFederation, run: Run, said: Evaluation) -> None:
    federation.coordinator.report_evaluation("bob", BOB.token, run.run_id, 1, said)


def assert_refused_report(federation: LocalFederation, run: Run, said: Evaluation, check: str) -> None:
    with pytest.raises(MalformedUpdate) as refused:
        report(federation, run, said)
    assert refused.value.metadata["check"] == check, said
    assert federation.coordinator.list_evaluations(run.run_id) == []


def test_a_bad_report_is_refused_and_the_run_is_unharmed(federation: LocalFederation) -> None:
    run = evaluating(federation)
    for changes, check in BAD_REPORTS.values():
        said = replace(Evaluation(client_id="bob", domain="bob-domain", counts=(counts(),)), **changes)
        assert_refused_report(federation, run, said, check)
    assert_ends_right(federation, run.run_id)


BAD_MATRICES: dict[str, tuple[int, ...]] = {
    "too few cells": (1, 2, 3),
    "too many cells": (1, 9, 0, 0, 2, 8, 0, 0, 3, 0),
    "negative cells": (1, -1, 0, 0, 2, 0, 0, 0, 3),
    "another diagonal": (2, 0, 0, 0, 2, 0, 0, 0, 3),
    "more samples of a class than there are": (1, 9, 1, 0, 2, 0, 0, 0, 3),
    "absurd cells": (1, 2**62, 2**62, 0, 2, 0, 0, 0, 3),
}


def of_bob(**changes: Any) -> Evaluation:
    return Evaluation(client_id="bob", domain="bob-domain", counts=(counts(**changes),))


def test_a_bad_confusion_matrix_is_refused_and_a_right_or_missing_one_is_taken(federation: LocalFederation) -> None:
    run = evaluating(federation, confusion=True)
    for bad in BAD_MATRICES.values():
        assert_refused_report(federation, run, of_bob(confusion=bad), "counts")
    good = (1, 9, 0, 0, 2, 0, 0, 0, 3)  # eight samples of the second class and seven of the third have no prediction
    report(federation, run, of_bob(confusion=good))
    ((_, kept),) = federation.coordinator.list_evaluations(run.run_id)
    assert kept.counts[0].confusion == good


BAD_HISTOGRAMS: dict[str, dict[str, Any]] = {
    "more bins than there are": {"of_class": (*HISTOGRAMS.of_class, 0)},
    "a sample more": {"of_others": (HISTOGRAMS.of_others[0] + 1, *HISTOGRAMS.of_others[1:])},
    "absurd bins": {"confidence": (2**62, *HISTOGRAMS.confidence[1:])},
}


def test_bad_histograms_are_refused_and_right_ones_are_taken(federation: LocalFederation) -> None:
    run = evaluating(federation, histograms=True)
    for bad in BAD_HISTOGRAMS.values():
        assert_refused_report(federation, run, of_bob(histograms=replace(HISTOGRAMS, **bad)), "counts")
    assert_refused_report(federation, run, of_bob(histograms=HISTOGRAMS, set_name="test/fgsm"), "counts")
    report(federation, run, of_bob(histograms=HISTOGRAMS))
    ((_, kept),) = federation.coordinator.list_evaluations(run.run_id)
    assert kept.counts[0].histograms == HISTOGRAMS


def test_a_bad_report_of_somebody_who_was_not_asked_is_nobodys_fault_in_the_run(federation: LocalFederation) -> None:
    run, stranger = evaluating(federation), NumpyClient("zed")
    federation.coordinator.join(stranger.record, stranger.token)
    bad = Evaluation(client_id="zed", domain="zed-domain", counts=())
    with pytest.raises(NotInCohort):
        federation.coordinator.report_evaluation("zed", stranger.token, run.run_id, 1, bad)
    assert federation.metric("client_reports_total", outcome="malformed_update") == 0
