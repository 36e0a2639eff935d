"""A run whose test classes are uneven is shown by its balanced accuracy, and names the class that is never found.

Behind a score stands how far it may move with other test images; probabilities have a picture and areas under ROC curves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect
from sklearn.metrics import f1_score

from fedplcc.shared.scoring.histograms import bins_of, histograms_of, macro_area
from fedplcc.shared.types import Evaluation, EvaluationCounts, Task
from tests.support.federation.in_process import PassingClock
from tests.support.federation.numpy_client import CLASSES, NumpyClient
from tests.support.federation.served_gateway import ServedGateway
from tests.support.screens.browsing import Console

LABELS = np.repeat([0, 1, 2], [80, 10, 10])
PREDICTED = np.repeat([0, 2], [90, 10])
PREDICTED[95:] = 0
LOGITS = 3.0 * np.eye(3)[PREDICTED]
CONFUSION = tuple(np.bincount(3 * LABELS + PREDICTED, minlength=9).tolist())
HISTOGRAMS = histograms_of(bins_of(LOGITS), LABELS, PREDICTED, 3)


class Skewed(NumpyClient):
    """A client with eight times as many test images of the first class: 85 % are right, half of the classes' recall."""

    def evaluation(self, task: Task, model: bytes) -> Evaluation:
        asked = "" if task.run is None else task.run.config_json
        counts = EvaluationCounts(
            "test",
            "global",
            (80, 0, 5),
            (80, 10, 10),
            confusion=CONFUSION if '"confusion":true' in asked else (),
            histograms=HISTOGRAMS if '"histograms":true' in asked else None,
        )
        return replace(super().evaluation(task, model), counts=(counts,))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedGateway]:
    with ServedGateway(tmp_path, [Skewed("ann"), Skewed("bob")], clock=PassingClock()) as served:
        yield served


def test_an_uneven_run_is_shown_by_its_balanced_accuracy(console: Console) -> None:
    run_id = console.served.create_and_finish(run={"rounds": 5})
    (listed,) = console.served.http.get("/v1/runs").json()["runs"]
    assert (listed["score"], listed["mean_accuracy"]) == ("balanced_accuracy", pytest.approx(0.5))
    console.open(f"#/runs/{run_id}")
    page = console.page
    expect(page.locator(".run-warnings .notice")).to_contain_text(f"Class '{CLASSES[1]}' is never found")
    mean = page.locator(".stat", has_text="Mean accuracy")
    expect(mean.locator(".stat-value")).to_have_text("50.0 %")
    expect(mean.locator(".stat-note")).to_have_text(re.compile(r"^4\d\.\d to 5\d\.\d %, balanced$"))
    score = console.served.http.get(f"/v1/runs/{run_id}").json()["score"]
    assert (score["name"], score["round"], score["mean"]["value"]) == ("balanced_accuracy", 5, pytest.approx(0.5))
    assert score["mean"]["low"] < 0.5 < score["mean"]["high"]
    expect(page.get_by_label("Balanced", exact=True)).to_be_checked()
    expect(page.get_by_text("Mean 50.0 % in round 5.")).to_be_visible()
    page.get_by_label("Global model", exact=True).check()
    expect(page.get_by_text("Mean 85.0 % in round 5.")).to_be_visible()
    console.open("#/")
    expect(page.locator("tr", has_text=run_id)).to_contain_text("balanced 50.0 %")
    console.screenshot("balanced-score")


@pytest.mark.full
def test_a_run_with_histograms_shows_how_sure_it_is_and_areas_under_curves(console: Console) -> None:
    run_id = console.served.create_and_finish(run={"rounds": 1}, evaluation={"histograms": True})
    console.open(f"#/runs/{run_id}")
    page = console.page
    part = page.locator("details.disclosure", has=page.locator("h2", has_text="Classes"))
    picture = part.get_by_role("img", name=re.compile("Images that are right by how sure the model is"))
    expect(picture).to_be_visible()
    expect(picture.locator("circle title")).to_have_text("91.3 % sure: 85.0 % of 200 images right")
    expect(part.get_by_text("It is off by 6.3 % on average.")).to_be_visible()
    areas = part.get_by_role("table", name=re.compile("Area under the ROC curve"))
    area = macro_area(HISTOGRAMS)
    assert area is not None
    expect(areas.locator("tr", has_text="mean").locator("td")).to_have_text([f"{area:.3f}"] * 2)
    console.screenshot("probabilities")


@pytest.mark.full
def test_macro_f1_and_auc_stand_with_how_far_they_may_move(console: Console) -> None:
    run_id = console.served.create_and_finish(run={"rounds": 1}, evaluation={"histograms": True, "confusion": True})
    console.open(f"#/runs/{run_id}")
    score = console.served.http.get(f"/v1/runs/{run_id}").json()["score"]
    expected = f1_score(LABELS, PREDICTED, average="macro")
    assert score["macro_f1"]["value"] == pytest.approx(expected)
    f1, area = (console.page.locator(".stat", has_text=name) for name in ("Macro F1", "AUC"))
    expect(f1.locator(".stat-value")).to_have_text(f"{100 * expected:.1f} %")
    low, value, high = (score["macro_f1"][name] for name in ("low", "value", "high"))
    assert low < value < high
    expect(f1.locator(".stat-note")).to_have_text(f"{100 * low:.1f} to {100 * high:.1f} %")
    low, value, high = (score["auc"][name] for name in ("low", "value", "high"))
    expect(area.locator(".stat-value")).to_have_text(f"{value:.3f}")
    expect(area.locator(".stat-note")).to_have_text(f"{low:.3f} to {high:.3f}")
    console.screenshot("macro-f1-and-auc")
    run_id = console.served.create_and_finish(run={"rounds": 1})
    console.open(f"#/runs/{run_id}")
    expect(console.page.locator(".stat", has_text="Mean accuracy")).to_be_visible()
    expect(f1).to_be_hidden()
    expect(area).to_be_hidden()
