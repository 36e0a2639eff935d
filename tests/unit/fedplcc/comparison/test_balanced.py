"""Balanced accuracy is the mean recall of the classes that a domain's test images have."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score

from fedplcc.comparison.outcomes import outcome, over_seeds
from fedplcc.comparison.plan import Cell
from fedplcc.comparison.reading import CellResult, read_cell
from fedplcc.comparison.report.document import markdown
from fedplcc.comparison.report.parts import report as report_of
from fedplcc.comparison.report.writing import csv_tables
from fedplcc.comparison.round_values import balanced, classes_by_round
from fedplcc.runs.artifacts import EVALUATIONS, METRICS
from fedplcc.shared.scoring.scores import balanced_accuracy
from tests.support import of_kind, present
from tests.support.records.comparisons import a_result, findings_of, write_comparison


def found_by_round(reports: list[dict[str, Any]]) -> dict[int, dict[tuple[str, str], float | None]]:
    return {
        number: {
            (domain, model): value for model, found in balanced(classes).items() for domain, value in found.items()
        }
        for number, classes in classes_by_round(reports).items()
    }


def report(correct: list[int], total: list[int], *, domain: str = "city", **changes: Any) -> dict[str, Any]:
    counts = {"set_name": "test", "model": "global", "correct": correct, "total": total, **changes}
    return {"round": 1, "domain": domain, "counts": [counts]}


def test_every_class_counts_alike_however_few_its_images_are() -> None:
    found = found_by_round([report([90, 0, 0], [90, 10, 0])])
    assert found == {1: {("city", "global"): 0.5}}, "accuracy would be 0.9; a class without images does not count"


def test_a_domains_clients_are_pooled_and_other_sets_are_left_out() -> None:
    reports = [
        report([1, 0], [2, 0]),
        report([3, 4], [4, 4]),
        report([0, 0], [9, 9], set_name="validation"),
        report([0, 0], [9, 9], set_name="test/fgsm"),
        report([0, 0], [0, 0], domain="sea"),
    ]
    assert found_by_round(reports) == {1: {("city", "global"): pytest.approx((4 / 6 + 1) / 2)}}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_it_is_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = zip(*pairs, strict=True)
    total = [truth.count(k) for k in range(4)]
    correct = [sum(t == p == k for t, p in pairs) for k in range(4)]
    (share,) = found_by_round([report(correct, total)])[1].values()
    present = [pair for pair in pairs if pair[1] in truth]
    if len(present) == len(pairs) and len(set(truth)) > 1:  # scikit-learn warns of what is not so
        assert share == pytest.approx(balanced_accuracy_score(truth, predicted))


def scored_cell(tmp_path: Path) -> Cell:
    """A cell of three rounds: the second is the best by accuracy, the third by the score."""
    path, out = write_comparison(tmp_path), tmp_path / "out"
    cell = a_result(path, out, {"mnist": 0.5}, {"mnist": 0.9}, {"mnist": 0.6}).cell
    lines = [json.loads(line) for line in (cell.folder / METRICS).read_text().splitlines()]
    reports = []
    for line, correct in zip(lines, ([5, 0], [9, 0], [5, 1]), strict=True):
        value = balanced_accuracy(correct, [9, 1])
        line["balanced_accuracy"] = {"mnist": value, "mean": value, "worst": value}
        line["macro_f1"] = {"mnist": 0.3, "mean": 0.3, "worst": 0.3}
        cells = [[correct[0], 9 - correct[0]], [1 - correct[1], correct[1]]]
        reports.append(report(correct, [9, 1], domain="mnist", confusion=cells) | {"round": line["round"]})
    (cell.folder / METRICS).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (cell.folder / EVALUATIONS).write_text("".join(f"{json.dumps(each)}\n" for each in reports))
    return cell


def test_a_comparison_is_of_the_runs_score_and_keeps_the_accuracy_beside_it(tmp_path: Path) -> None:
    cell = scored_cell(tmp_path)
    result = of_kind(CellResult, read_cell(cell))
    best = present(outcome(result.rounds, "best"))
    assert best.rounds == (3,)
    assert best.accuracy["mnist"] == pytest.approx((5 / 9 + 1) / 2)
    assert over_seeds([result], "last", "global/accuracy")["mean"].mean == 0.6
    assert over_seeds([result], "last", "global/macro_f1")["mean"].mean == 0.3
    findings = findings_of(tmp_path / "compare.toml", [cell])
    text = markdown(report_of(findings))
    assert "Last round, global model, balanced accuracy" in text
    assert "Last round, global model, accuracy" in text
    assert "Last round, global model, macro F1" in text
    assert "The score of these runs is balanced accuracy" in text
    tables = csv_tables(findings)
    rows = list(csv.DictReader(io.StringIO(tables["evaluations.csv"])))
    assert [float(row["accuracy"]) for row in rows if row["model"] == "global"] == [0.5, 0.9, 0.6]
    of_classes = list(csv.DictReader(io.StringIO(tables["classes.csv"])))
    assert [row["class"] for row in of_classes] == ["0", "1"]
    assert [float(row["precision"]) for row in of_classes] == pytest.approx([1.0, 1 / 5])
    assert [float(row["specificity"]) for row in of_classes] == pytest.approx([1.0, 5 / 9])


def test_rounds_of_one_run_are_never_compared_by_two_scores(tmp_path: Path) -> None:
    cell = scored_cell(tmp_path)
    lines = [json.loads(line) for line in (cell.folder / METRICS).read_text().splitlines()]
    del lines[1]["balanced_accuracy"]
    (cell.folder / METRICS).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    result = of_kind(CellResult, read_cell(cell))
    assert [current.values["global"]["mnist"] for current in result.rounds] == pytest.approx([5 / 18, 0.5, 7 / 9])
    (cell.folder / EVALUATIONS).unlink()
    result = of_kind(CellResult, read_cell(cell))
    assert [current.values["global"]["mnist"] for current in result.rounds] == [0.5, 0.9, 0.6]


def test_clients_own_models_are_scored_alike_where_only_the_last_rounds_have_them(tmp_path: Path) -> None:
    cell = scored_cell(tmp_path)
    lines = [json.loads(line) for line in (cell.folder / METRICS).read_text().splitlines()]
    reports = [json.loads(line) for line in (cell.folder / EVALUATIONS).read_text().splitlines()]
    for line in lines[:-1]:
        line["accuracy_local"] = {"mnist": None, "mean": None, "worst": None}
    lines[-1]["accuracy_local"] = {"mnist": 0.8, "mean": 0.8, "worst": 0.8}
    reports[-1]["counts"].append({"set_name": "test", "model": "local", "correct": [8, 0], "total": [9, 1]})
    (cell.folder / METRICS).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (cell.folder / EVALUATIONS).write_text("".join(f"{json.dumps(each)}\n" for each in reports))
    result = of_kind(CellResult, read_cell(cell))
    own = present(outcome(result.rounds, "last", "local"))
    assert own.accuracy["mnist"] == pytest.approx(4 / 9)
