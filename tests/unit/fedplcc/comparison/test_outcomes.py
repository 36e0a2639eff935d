"""Last round, best round, means of the last rounds, and their spread over seeds, against numpy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedplcc.comparison.outcomes import VIEWS, View, curve, gains, outcome, over_seeds, ranks, total_of
from fedplcc.comparison.reading import CellResult, read_cell
from fedplcc.comparison.report.document import markdown
from fedplcc.comparison.report.parts import report as report_of
from fedplcc.comparison.round_values import RoundValues
from fedplcc.runs.artifacts import EVALUATIONS, METRICS
from tests.support import of_kind, present
from tests.support.records.comparisons import RUN, a_result, cells_of, findings_of, write_cell, write_comparison

DOMAINS = ("mnist", "svhn")


def a_round(number: int, **accuracy: float | None) -> RoundValues:
    return RoundValues(number=number, accuracy={"global": accuracy}, counts={}, computed={}, measured={})


def random_rounds(seed: int, count: int = 12) -> tuple[np.ndarray, list[RoundValues]]:
    """Accuracies `[rounds, domains]`, and the same as rounds."""
    values = np.random.default_rng(seed).integers(0, 1001, (count, len(DOMAINS))) / 1000
    return values, [a_round(i + 1, **dict(zip(DOMAINS, map(float, row), strict=True))) for i, row in enumerate(values)]


@pytest.mark.parametrize("seed", range(5))
def test_every_view_is_what_numpy_makes_of_the_rounds(seed: int) -> None:
    values, rounds = random_rounds(seed)
    best = int(values.mean(axis=1).argmax())
    expected = {
        "last": values[-1],
        "best": values[best],
        "last5": values[-5:].mean(axis=0),
        "last10": values[-10:].mean(axis=0),
    }
    assert outcome(rounds, "validated") is None, "there are no validation images"
    for view in (view for view in VIEWS if view in expected):
        found = present(outcome(rounds, view))
        by_domain = [found.accuracy[domain] for domain in DOMAINS]
        np.testing.assert_allclose(by_domain, expected[view], rtol=1e-12)  # type: ignore[arg-type]
        assert found.accuracy["mean"] == pytest.approx(expected[view].mean(), rel=1e-12)
        assert found.accuracy["worst"] == pytest.approx(expected[view].min(), rel=1e-12)
    assert outcome(rounds, "best").rounds == (best + 1,)  # type: ignore[union-attr]


def test_of_equal_rounds_the_first_is_the_best() -> None:
    found = present(outcome([a_round(1, a=0.5), a_round(2, a=0.75), a_round(3, a=0.75)], "best"))
    assert found.rounds == (2,)


def validated_round(number: int, *, on_validation: float, **accuracy: float) -> RoundValues:
    by_model = {"global": accuracy, "local": accuracy, "global/validation": dict.fromkeys(accuracy, on_validation)}
    return RoundValues(number=number, accuracy=by_model, counts={}, computed={}, measured={})


def test_the_best_round_by_validation_is_chosen_without_a_look_at_the_test_images() -> None:
    rounds = [
        validated_round(1, on_validation=0.2, a=0.9, b=0.9),
        validated_round(2, on_validation=0.8, a=0.5, b=0.25),
        validated_round(3, on_validation=0.8, a=1.0, b=1.0),
    ]
    found = present(outcome(rounds, "validated"))
    assert found.rounds == (2,), "of equal ones the first"
    assert found.accuracy == {"a": 0.5, "b": 0.25, "mean": 0.375, "worst": 0.25}
    best = present(outcome(rounds, "best"))
    assert best.rounds == (3,)
    assert outcome(rounds, "validated", "local") is None, (
        "validation images say nothing of a model that did not see them"
    )


def test_a_view_of_the_last_rounds_takes_none_from_before_them() -> None:
    unevaluated = [RoundValues(number=number, accuracy={}, counts={}, computed={}, measured={}) for number in (11, 12)]
    rounds = [a_round(10, a=0.0), *unevaluated, a_round(13, a=0.5), a_round(15, a=1.0)]
    for view, numbers in {"last": (15,), "last5": (13, 15), "last10": (10, 13, 15)}.items():
        found = outcome(rounds, view)  # type: ignore[arg-type]
        assert found is not None
        assert found.rounds == numbers


def test_a_round_that_was_not_evaluated_is_read_and_in_no_view(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path), tmp_path / "out"
    cell = a_result(path, out, {"mnist": 0.25}, {"mnist": 1.0}, {"mnist": 0.5}).cell
    lines = [json.loads(line) for line in (cell.folder / METRICS).read_text().splitlines()]
    lines[1]["accuracy"] = None
    (cell.folder / METRICS).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    result = of_kind(CellResult, read_cell(cell))
    assert [current.accuracy for current in result.rounds][1] == {}
    assert list(curve([result], "mean")) == [1, 3]
    best = present(outcome(result.rounds, "best"))
    assert (best.rounds, best.accuracy["mean"]) == ((3,), 0.5)


def test_accuracies_under_an_attack_are_read_as_of_a_model_of_their_own(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path), tmp_path / "out"
    cell = a_result(path, out, {"mnist": 1.0}, {"mnist": 1.0}, {"mnist": 1.0}).cell
    lines = [json.loads(line) for line in (cell.folder / METRICS).read_text().splitlines()]
    for line in lines:
        line["accuracy_attacked"] = {"fgsm": {"mnist": 0.5, "mean": 0.5, "worst": 0.5}}
    (cell.folder / METRICS).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    local = {"set_name": "test/fgsm", "model": "local", "correct": [1, 0], "total": [2, 2]}
    report = {"round": 3, "client_id": "mnist", "domain": "mnist", "counts": [local]}
    (cell.folder / EVALUATIONS).write_text(json.dumps(report) + "\n")
    result = of_kind(CellResult, read_cell(cell))
    assert over_seeds([result], "last", "global/fgsm")["mean"].mean == 0.5
    assert over_seeds([result], "last", "local/fgsm")["mnist"].mean == 0.25, "of the reports"
    assert over_seeds([result], "last")["mean"].mean == 1.0
    text = markdown(report_of(findings_of(path, [cell])))
    assert "Last round, global model, under FGSM" in text
    assert "Last round, local models, each on its own domain, under FGSM" in text
    assert "PGD20" not in text


def test_a_domain_that_nobody_reported_is_left_out_and_not_taken_for_zero() -> None:
    rounds = [a_round(1, a=0.5, b=0.25), a_round(2, a=0.75, b=None)]
    last, both = outcome(rounds, "last"), outcome(rounds, "last5")
    assert last is not None
    assert both is not None
    assert last.accuracy == {"a": 0.75, "b": None, "mean": 0.75, "worst": 0.75}
    assert both.accuracy == {"a": 0.625, "b": 0.25, "mean": 0.4375, "worst": 0.25}


def test_a_round_is_no_better_for_a_hard_domain_that_is_away(tmp_path: Path) -> None:
    rounds = [a_round(1, a=0.5, b=0.2), a_round(2, a=0.6, b=0.3), a_round(3, a=0.6), a_round(4, b=0.9)]
    best = present(outcome(rounds, "best"))
    assert best.rounds == (4,), "by the domains that two rounds share: 3 is as good as 2, and 4 is better"
    path, out = write_comparison(tmp_path), tmp_path / "out"
    whole = a_result(path, out, {"mnist": 0.5, "svhn": 0.5}, {"mnist": 0.5, "svhn": 0.5}, {"mnist": 0.5, "svhn": 0.5})
    said = "not every round has a score of every domain"
    assert said not in markdown(report_of(findings_of(path, [whole.cell])))
    partial = a_result(path, out, {"mnist": 0.5, "svhn": 0.5}, {"svhn": 0.9}, {"mnist": 0.6})
    assert partial.domains == ["mnist", "svhn"]
    assert said in markdown(report_of(findings_of(path, [partial.cell])))
    whole = a_result(path, out, *[{"mnist": 0.5, "svhn": 0.5}] * 3)
    other = next(cell for cell in cells_of(path, out) if cell.seed != whole.cell.seed)
    write_cell(other, [{"mnist": 0.6, "svhn": None}] * 3)
    assert said in markdown(report_of(findings_of(path, [whole.cell, other]))), "one seed has no score of a domain"


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, list[CellResult]]:
    """Two rows of three seeds, of which the second lacks seed 1."""
    path = write_comparison(tmp_path)
    found: dict[str, list[CellResult]] = {"average": [], "prototypes": []}
    for cell in cells_of(path, tmp_path / "out"):
        if cell.row == "all" or (cell.row, cell.seed) == ("prototypes", 1):
            continue
        above = 0.1 * (1 + cell.seed) if cell.row == "prototypes" else 0.0
        write_cell(cell, [{"mnist": 0.25, "svhn": 0.25}] * 2 + [{"mnist": 0.5 + above, "svhn": 0.25 + above}])
        result = of_kind(CellResult, read_cell(cell))
        found[cell.row].append(result)
    return found


def test_a_row_is_spread_over_its_seeds_by_domain(rows: dict[str, list[CellResult]]) -> None:
    found = over_seeds(rows["prototypes"], "last")
    assert list(found) == ["mnist", "svhn", "mean", "worst"]
    assert found["mnist"].mean == pytest.approx(np.mean([0.6, 0.8]))
    assert found["worst"].std == pytest.approx(np.std([0.35, 0.55], ddof=1))
    assert found["mean"].count == 2


@pytest.mark.parametrize("view", ["last", "best"])
def test_the_gain_over_another_row_is_taken_seed_by_seed(rows: dict[str, list[CellResult]], view: View) -> None:
    found = gains(rows["prototypes"], rows["average"], view, "mean")
    assert found == {0: pytest.approx(0.1), 2: pytest.approx(0.3)}, "of the seeds that both have"
    assert gains(rows["prototypes"], [], view, "mean") == {}
    assert gains(rows["prototypes"], rows["average"], view, "usps") == {}


def test_equal_rows_share_their_rank() -> None:
    assert ranks({"a": 0.5, "b": 0.75, "c": 0.5, "d": 0.25}) == {"a": 2, "b": 1, "c": 2, "d": 4}
    assert ranks({}) == {}


def test_a_curve_has_every_round_over_the_seeds(rows: dict[str, list[CellResult]]) -> None:
    found = curve(rows["average"], "worst")
    assert list(found) == [1, 2, 3]
    assert found[3].mean == 0.25
    assert found[1].count == 3


def test_what_was_measured_is_summed_over_the_rounds(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, run=RUN.replace("rounds = 3", "rounds = 2"))
    result = a_result(path, tmp_path / "out", {"mnist": 0.5}, {"mnist": 0.5}, seconds=1.5)
    assert total_of(result, "seconds.total") == 3.0
    assert total_of(result, "bytes.sent") == 2e6
    assert total_of(result, "bytes.received") == 6e6
    assert total_of(result, "nothing") is None
