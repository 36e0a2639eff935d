"""Results of a round: accuracy by domain, losses, and the lines and the manifest that a run leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedplcc.aggregator.rounds import class_results, results
from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.errors import MalformedRequest
from fedplcc.shared.reasons import Reason, Stated, StoppedEarly, sentence_of
from fedplcc.shared.scoring.histograms import bins_of, histograms_of
from fedplcc.shared.types import Evaluation, EvaluationCounts, Event, Round, RoundPhase, RunStatus, ScoreHistograms
from fedplcc.shared.version import VERSION
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient
from tests.support.records.builders import a_blob, a_client, a_round, a_run, an_evaluation, an_update


def report(client_id: str, domain: str, correct: int, total: int, **names: str) -> Any:
    counts = EvaluationCounts(names.get("set_name", "test"), names.get("model", "global"), (correct, 0), (total, 0))
    return replace(an_evaluation(client_id, domain=domain), counts=(counts,))


def test_a_domains_predictions_are_pooled_over_its_clients() -> None:
    reports = [report("ann", "city", 1, 1), report("bob", "city", 0, 9), report("zoe", "farm", 3, 4)]
    assert results.accuracy_by_domain(reports, ["city", "farm"]) == {
        "city": 0.1,
        "farm": 0.75,
        "mean": pytest.approx((0.1 + 0.75) / 2),
        "worst": 0.1,
    }


def test_a_domain_without_a_report_or_test_samples_is_none_and_left_out_of_mean_and_worst() -> None:
    reports = [report("ann", "city", 1, 2), report("bob", "sea", 0, 0)]
    assert results.accuracy_by_domain(reports, ["city", "farm", "sea"]) == {
        "city": 0.5,
        "farm": None,
        "sea": None,
        "mean": 0.5,
        "worst": 0.5,
    }


def test_joining_is_worth_what_a_clients_own_model_has_above_its_images_alone() -> None:
    both = [report("ann", "city", correct, 10, model=model) for model, correct in (("local", 9), ("alone", 7))]
    of_one = [replace(both[0], counts=both[0].counts + both[1].counts), report("bob", "city", 5, 10, model="local")]
    of_none = [report("eve", "farm", 0, 0, model="local"), report("zoe", "farm", 5, 10)]
    assert results.joining_by_client([*of_one, *of_none]) == {"ann": pytest.approx(0.2)}
    assert results.joining_by_client([]) == {}


def test_joining_is_counted_by_the_runs_score() -> None:
    counts = tuple(
        EvaluationCounts("test", model, correct=correct, total=(90, 10))
        for model, correct in (("local", (80, 8)), ("alone", (88, 2)))
    )
    reports = [Evaluation(client_id="ann", domain="city", counts=counts)]
    assert results.joining_by_client(reports) == {"ann": pytest.approx(-0.02)}
    assert results.joining_by_client(reports, is_balanced=True) == {
        "ann": pytest.approx((80 / 90 + 0.8 - 88 / 90 - 0.2) / 2)
    }


def test_only_the_global_model_on_the_test_set_counts() -> None:
    reports = [
        report("ann", "city", 1, 2),
        report("ann", "city", 2, 2, model="local"),
        report("ann", "city", 2, 2, set_name="train"),
    ]
    assert results.accuracy_by_domain(reports, ["city"])["city"] == 0.5


def test_a_line_has_the_accuracies_under_attack_beside_those_without() -> None:
    reports = {
        name: replace(
            an_evaluation(name, domain=name),
            counts=tuple(
                EvaluationCounts(set_name, model, (correct, 0), (4, 0))
                for model in ("global", "local")
                for set_name, correct in (("test", 4), ("test/fgsm", 2), ("test/pgd20", own))
            ),
        )
        for name, own in (("ann", 1), ("bob", 0))
    }
    current = replace(a_round(1, RoundPhase.EVALUATING), evaluations=reports, model=a_blob("m"), prototypes=a_blob("p"))
    line = results.metrics_line(
        current, domains={"ann": "ann", "bob": "bob"}, num_global_prototypes=0, attacks=("fgsm", "pgd20")
    )
    assert line["accuracy"] == {"ann": 1.0, "bob": 1.0, "mean": 1.0, "worst": 1.0}
    assert line["accuracy_attacked"] == {
        "fgsm": {"ann": 0.5, "bob": 0.5, "mean": 0.5, "worst": 0.5},
        "pgd20": {"ann": 0.25, "bob": 0.0, "mean": 0.125, "worst": 0.0},
    }
    domains = {"ann": "ann"}
    assert "accuracy_attacked" not in results.metrics_line(current, domains=domains, num_global_prototypes=0)
    skipped = results.metrics_line(
        current, domains=domains, num_global_prototypes=0, attacks=("fgsm",), is_evaluated=False
    )
    assert skipped["accuracy"] is skipped["accuracy_attacked"] is None


def test_a_line_has_the_accuracy_on_validation_images_where_a_client_or_the_run_sets_some_aside() -> None:
    counts = tuple(EvaluationCounts(name, "global", (n, 0), (4, 0)) for name, n in (("test", 4), ("validation", 3)))
    reports = {"ann": replace(an_evaluation("ann", domain="city"), counts=counts)}
    made = replace(a_round(1, RoundPhase.EVALUATING), model=a_blob("m"), prototypes=a_blob("p"))
    with_reports = replace(made, evaluations=reports)

    def line(current: Any, **options: Any) -> dict[str, Any]:
        return results.metrics_line(current, domains={"ann": "city"}, num_global_prototypes=0, **options)

    for options in ({"is_alone": True}, {"is_validated": True}):
        assert line(with_reports, **options)["accuracy_validation"] == {"city": 0.75, "mean": 0.75, "worst": 0.75}
    assert line(with_reports)["accuracy"]["mean"] == 1.0
    assert "accuracy_validation" not in line(with_reports), "one of several clients"
    assert "accuracy_validation" not in line(made)
    assert "accuracy_validation" not in line(made, is_alone=True)
    assert line(made, is_validated=True)["accuracy_validation"] == {"city": None, "mean": None, "worst": None}
    assert line(made, is_validated=True, is_evaluated=False)["accuracy_validation"] is None


def test_one_client_that_reports_on_validation_images_of_its_own_does_not_validate_a_run() -> None:
    def reports(**others: int | None) -> dict[str, Any]:
        """Each client's number of validation images beside four test images."""
        return {
            name: replace(
                an_evaluation(name, domain=f"{name}-domain"),
                counts=(
                    EvaluationCounts("test", "global", (2, 0), (4, 0)),
                    *([] if number is None else [EvaluationCounts("validation", "global", (number, 0), (number, 0))]),
                ),
            )
            for name, number in {"eve": 1, **others}.items()
        }

    def line(evaluations: dict[str, Any], **options: Any) -> dict[str, Any]:
        made = replace(a_round(1, RoundPhase.EVALUATING), model=a_blob("m"), prototypes=a_blob("p"))
        domains = {name: f"{name}-domain" for name in evaluations}
        current = replace(made, evaluations=evaluations)
        return results.metrics_line(current, domains=domains, num_global_prototypes=0, **options)

    with_one = reports(ann=None, bob=3)
    assert "accuracy_validation" not in line(with_one)
    assert "accuracy_validation" not in line(reports(ann=0, bob=3)), "no images are none"
    assert "accuracy_validation" not in line(reports()), "no other client reports"
    assert line(reports(ann=2, bob=3))["accuracy_validation"]["mean"] == 1.0
    by_rule = line(with_one, is_validated=True)["accuracy_validation"]
    assert by_rule["ann-domain"] is None, "the run's rule is not undone by a client that leaves its images out"
    assert by_rule["mean"] == 1.0


@pytest.mark.parametrize("domain", class_results.SUMMARIES)
def test_a_domain_cannot_be_called_as_a_summary(tmp_path: Any, domain: str) -> None:
    with LocalFederation(tmp_path, [NumpyClient("ann", domain=domain)]) as federation:
        with pytest.raises(MalformedRequest, match=domain):
            federation.join()
        assert federation.coordinator.list_clients() == []


def test_losses_are_means_over_samples_by_term() -> None:
    updates = [
        an_update("ann", num_examples=3, losses={"ce": 1.0, "contra": 2.0}),
        an_update("bob", num_examples=1, losses={"ce": 5.0}),
    ]
    assert results.mean_losses(updates) == {"ce": 2.0, "contra": 2.0}
    assert results.mean_losses([]) == {}


def a_committed_round(**changes: Any) -> Any:
    return a_round(
        3,
        RoundPhase.COMMITTED,
        updates={"bob": an_update("bob", num_prototypes=2), "ann": an_update("ann", num_excluded=2)},
        evaluations={"bob": an_evaluation("bob"), "ann": an_evaluation("ann", correct=(10, 10, 10))},
        model=a_blob("new"),
        prototypes=a_blob("new prototypes", "global_cluster"),
        phase_started_at={"collecting": 10.0, "aggregating": 14.0, "evaluating": 14.5},
        **changes,
    )


def test_a_metrics_line_sums_up_its_round() -> None:
    line = results.metrics_line(a_committed_round(), domains=DOMAINS, num_global_prototypes=5)
    assert line == {
        "round": 3,
        "accuracy": {"ann-domain": 1.0, "bob-domain": 0.2, "mean": 0.6, "worst": 0.2},
        "loss": {"ce": pytest.approx(1 / 3), "contra": 2.0},
        "prototypes": {"local": 6, "global": 5},
        "num_examples": 24,
        "num_excluded": 3,
        "cohort": ["ann", "bob"],
        "model_sha256": a_blob("new").sha256,
        "prototypes_sha256": a_blob("new prototypes").sha256,
    }


DOMAINS = {"ann": "ann-domain", "bob": "bob-domain"}


def test_a_metrics_line_has_the_same_bytes_in_any_order_of_arrival_and_at_any_speed() -> None:
    current = a_committed_round()
    slower = replace(
        current,
        updates={
            name: replace(current.updates[name], timings={"train_seconds": 9.0}) for name in sorted(current.updates)
        },
        evaluations=dict(sorted(current.evaluations.items())),
        phase_started_at={"collecting": 0.0},
    )
    lines = {
        canonical_json(results.metrics_line(one, domains=DOMAINS, num_global_prototypes=5)) for one in (current, slower)
    }
    assert len(lines) == 1


def test_a_timings_line_says_where_the_time_went() -> None:
    line = results.timings_line(a_committed_round(), now=16.0)
    assert line["seconds"] == {"collecting": 4.0, "aggregating": 0.5, "evaluating": 1.5, "total": 6.0}
    assert line["clients"]["ann"] == {"train_seconds": 0.7, "evaluation_seconds": 0.2}
    sizes = [blob.size_bytes for update in a_committed_round().updates.values() for blob in update.payload.blobs]
    assert line["bytes_received"] == sum(sizes)
    json.dumps(line, allow_nan=False)


def test_the_manifest_names_everybody_who_was_admitted_with_their_machines() -> None:
    entries = [results.roster_entry(a_client(name)) for name in ("ann", "zoe")]
    admissions = [
        Event(type="run_started", data={"clients": {"zoe": entries[1]}}),
        Event(type="clients_admitted", data={"clients": {"ann": entries[0]}}),
    ]
    run = a_run()
    manifest = results.manifest(run, json.loads(run.config_json), admissions)
    assert list(manifest["clients"]) == ["ann", "zoe"]
    assert manifest["clients"]["ann"]["environment"]["cpu"] == "x86-64"
    assert (manifest["config_hash"], manifest["config"]["run"]["method"]) == (run.config_hash, "fedavg")
    assert manifest["aggregator"]["fedplcc"] == VERSION
    assert set(manifest["aggregator"]["packages"]) == set(results.PACKAGES)
    json.dumps(manifest, allow_nan=False)


def test_the_manifest_says_why_a_run_ended_before_its_last_round() -> None:
    def ending(status: RunStatus, reason: Reason | None) -> dict[str, Any]:
        manifest = results.manifest(replace(a_run(status), reason=reason), {}, [])
        return {key: manifest[key] for key in ("status", "reason") if key in manifest}

    early = StoppedEarly(best_round=4, patience=2)
    assert ending(RunStatus.COMPLETED, early) == {"status": "completed", "reason": sentence_of(early)}
    assert ending(RunStatus.STOPPED, Stated("by hand")) == {"status": "stopped", "reason": "by hand"}
    assert ending(RunStatus.COMPLETED, None) == {}
    assert ending(RunStatus.RUNNING, Stated("waits")) == {}


def test_seconds_that_two_processes_measured_are_not_told() -> None:
    line = results.timings_line(a_committed_round(), now=16.0, interrupted={"aggregating"})
    assert line["seconds"] == {"collecting": 4.0, "aggregating": None, "evaluating": 1.5, "total": None}
    json.dumps(line, allow_nan=False)


def uneven(correct: tuple[int, ...], total: tuple[int, ...], **validation: tuple[int, ...]) -> Round:
    """A round with one report on test images, and on validation images if there are some."""
    counts = [EvaluationCounts("test", "global", correct, total)]
    if validation:
        counts.append(EvaluationCounts("validation", "global", validation["right"], validation["of"]))
    reports = {"ann": replace(an_evaluation("ann", domain="city"), counts=tuple(counts))}
    return replace(a_round(9, RoundPhase.EVALUATING), evaluations=reports, model=a_blob("m"), prototypes=a_blob("p"))


def line_of(current: Round, **options: Any) -> dict[str, Any]:
    return results.metrics_line(current, domains={"ann": "city"}, num_global_prototypes=0, is_alone=True, **options)


def test_the_score_is_balanced_where_test_classes_are_uneven_or_the_run_says_so() -> None:
    line = line_of(uneven((40, 0), (40, 10), right=(4, 1), of=(4, 2)))
    assert line["accuracy"]["city"] == 0.8
    assert line["balanced_accuracy"] == {"city": 0.5, "mean": 0.5, "worst": 0.5}
    assert line["balanced_accuracy_validation"]["mean"] == 0.75
    assert line["unfound"] == [1]
    even = line_of(uneven((10, 1), (10, 10)))
    assert not {"balanced_accuracy", "balanced_accuracy_validation", "unfound"} & set(even)
    assert line_of(uneven((10, 1), (10, 10)), score="balanced_accuracy")["balanced_accuracy"]["mean"] == 0.55
    assert "balanced_accuracy" not in line_of(uneven((40, 0), (40, 10)), score="accuracy")
    skipped = line_of(uneven((40, 0), (40, 10)), is_evaluated=False)
    assert not {"balanced_accuracy", "unfound"} & set(skipped)


def test_a_line_has_macro_f1_where_every_report_has_a_confusion_matrix() -> None:
    def line(**matrices: tuple[int, ...]) -> dict[str, Any]:
        reports = {
            name: replace(
                an_evaluation(name, domain=name), counts=(EvaluationCounts("test", "global", (3, 1), (4, 4), matrix),)
            )
            for name, matrix in matrices.items()
        }
        current = replace(
            a_round(1, RoundPhase.EVALUATING), evaluations=reports, model=a_blob("m"), prototypes=a_blob("p")
        )
        domains = {name: name for name in matrices}
        return results.metrics_line(current, domains={**domains, "zoe": "zoe"}, num_global_prototypes=0)

    macro = (6 / (4 + 6) + 2 / (4 + 2)) / 2
    found = line(ann=(3, 1, 3, 1))["macro_f1"]
    assert found == {"ann": macro, "zoe": None, "mean": macro, "worst": macro}
    assert "macro_f1" not in line(ann=(3, 1, 3, 1), bob=())
    assert "macro_f1" not in line(ann=())


def test_a_line_has_area_and_calibration_error_where_every_report_has_histograms() -> None:
    logits = np.array([[3.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 3.0]], np.float32)
    labels, predicted = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    made = histograms_of(bins_of(logits), labels, predicted, 2)

    def line(**histograms: ScoreHistograms | None) -> dict[str, Any]:
        reports = {
            name: replace(
                an_evaluation(name, domain=name), counts=(EvaluationCounts("test", "global", (1, 1), (2, 2), (), each),)
            )
            for name, each in histograms.items()
        }
        current = replace(
            a_round(1, RoundPhase.EVALUATING), evaluations=reports, model=a_blob("m"), prototypes=a_blob("p")
        )
        return results.metrics_line(current, domains={name: name for name in histograms}, num_global_prototypes=0)

    found = line(ann=made)
    assert found["auc"] == {"ann": 0.75, "mean": 0.75, "worst": 0.75}
    assert found["calibration_error"]["worst"] == found["calibration_error"]["ann"] > 0
    assert "auc" not in line(ann=made, bob=None)
