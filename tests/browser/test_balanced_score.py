"""A run whose test classes are uneven is shown by its balanced accuracy, and names the class that is never found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

from fedplcc.shared.types import Evaluation, EvaluationCounts, Task
from tests.support.federation.in_process import PassingClock
from tests.support.federation.numpy_client import CLASSES, NumpyClient
from tests.support.federation.served_gateway import ServedGateway
from tests.support.screens.browsing import Console


class Skewed(NumpyClient):
    """A client with eight times as many test images of the first class: 85 % are right, half of the classes' recall."""

    def evaluation(self, task: Task, model: bytes) -> Evaluation:
        counts = EvaluationCounts("test", "global", (80, 0, 5), (80, 10, 10))
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
    expect(mean.locator(".stat-note")).to_contain_text("balanced")
    expect(page.get_by_label("Balanced", exact=True)).to_be_checked()
    expect(page.get_by_text("Mean 50.0 % in round 5.")).to_be_visible()
    page.get_by_label("Global model", exact=True).check()
    expect(page.get_by_text("Mean 85.0 % in round 5.")).to_be_visible()
    console.open("#/")
    expect(page.locator("tr", has_text=run_id)).to_contain_text("balanced 50.0 %")
    console.screenshot("balanced-score")
