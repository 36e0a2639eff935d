"""The page that compares runs: curves, keys that differ, accuracy by domain, and a link that keeps the choice."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.federation.served_gateway import ServedGateway
from tests.support.screens.browsing import Console, in_every_look


@pytest.fixture(scope="module")
def served(served_by_module: ServedGateway) -> ServedGateway:
    """One gateway for all tests; each has runs of its own."""
    return served_by_module


def two(served: ServedGateway, name: str) -> tuple[str, str]:
    """A run of FedPLCC of four rounds, and one of FedAvg of two with another batch size."""
    first = served.create_and_finish(method="fedplcc", run={"name": f"{name}-plcc", "rounds": 4})
    second = served.create_and_finish(run={"name": f"{name}-avg", "rounds": 2}, training={"batch_size": 7})
    return first, second


@in_every_look
def test_runs_are_compared_by_curves_domains_and_keys(console: Console) -> None:
    first, second = two(console.served, "side")
    console.open(f"#/runs/compare?run={first}&run={second}")
    page = console.page
    chart = page.get_by_role("figure", name="Mean and worst accuracy of the runs")
    for label in ("side-plcc, mean", "side-plcc, worst", "side-avg, mean", "side-avg, worst"):
        expect(chart.locator(".legend-item").filter(has_text=label)).to_be_visible()
    domains = page.get_by_role("region", name="Accuracy by domain")
    expect(domains.get_by_role("columnheader")).to_have_text(["Domain", "side-plccround 4", "side-avground 2"])
    for run_id, number, column in ((first, 4, 0), (second, 2, 1)):
        metrics = console.served.http.get(f"/v1/runs/{run_id}/rounds?after={number - 1}").json()["rounds"][-1][
            "metrics"
        ]
        for row in ("mean", "worst", "ann-domain"):
            cell = domains.get_by_role("row", name=re.compile(f"^{row} ")).get_by_role("cell").nth(column)
            expect(cell).to_contain_text(f"{100 * metrics['accuracy'][row]:.1f} %")
    keys = page.get_by_role("region", name="Keys by run")
    expect(keys.get_by_role("row", name=re.compile(r"^training\.batch_size ")).get_by_role("cell")).to_have_text(
        ["32", "7"]
    )
    expect(keys.get_by_role("row", name=re.compile(r"^run\.method "))).to_contain_text("fedavg")
    expect(keys.get_by_role("row", name=re.compile(r"^method\.lambda1 "))).to_contain_text("no such key")
    expect(keys.get_by_text("training.evaluation_batch_size")).to_have_count(0)
    page.get_by_label("All keys").check()
    expect(keys.get_by_text("training.evaluation_batch_size")).to_be_visible()
    page.get_by_label("All keys").uncheck()
    assert console.barriers() == []
    assert console.overflow_px() <= 0
    console.screenshot(f"compare-{page.viewport_size and page.viewport_size['width']}")


def test_runs_are_found_added_and_removed_and_the_link_keeps_them(console: Console) -> None:
    first, second = two(console.served, "found")
    console.open(f"#/runs/{first}")
    page = console.page
    page.get_by_role("link", name="Compare with").click()
    expect(page.get_by_role("heading", name="Compare runs")).to_be_visible()
    expect(page.get_by_text("Choose one to four more runs below.")).to_be_visible()
    page.get_by_label("Name or id").fill("FOUND-avg")
    expect(page.get_by_text("1 run found.")).to_be_visible()
    page.get_by_role("button", name=f"Add found-avg {second}").click()
    expect(page.get_by_role("heading", name="By domain")).to_be_visible()
    expect(page.get_by_role("button", name=f"Add found-avg {second}")).to_have_count(0)
    expect(page.get_by_role("searchbox", name="Name or id")).to_be_focused()
    assert page.url.endswith(f"#/runs/compare?run={first}&run={second}")
    page.get_by_label("To round").fill("2")
    page.get_by_label("To round").press("Enter")
    link = page.url
    assert link.endswith(f"?run={first}&run={second}&to=2")
    other = console.another(link.removeprefix(console.origin + "/"))
    slider = other.page.get_by_role("slider")
    expect(slider).to_have_attribute("aria-valuemax", "2")
    page.get_by_role("button", name="Remove found-plcc").click()
    assert page.url.endswith(f"#/runs/compare?run={second}&to=2")
    expect(page.get_by_role("heading", name="By domain")).to_be_hidden()
    expect(page.get_by_role("heading", name="Compare runs")).to_be_focused()


@pytest.mark.full
def test_no_more_than_five_runs_are_compared_and_a_missing_one_is_named(console: Console) -> None:
    runs = [console.served.create_and_finish(run={"name": "many", "rounds": 1}) for _ in range(6)]
    query = "&".join(f"run={run_id}" for run_id in [*runs, runs[0]])
    console.open(f"#/runs/compare?{query}")
    page = console.page
    expect(page.get_by_text("These are 5 runs, the most that are compared at a time.")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^Remove"))).to_have_count(5)
    expect(page.get_by_role("button", name=re.compile("^Add many")).first).to_be_disabled()
    expect(page.locator(".legend-item").filter(has_text=f"many ({runs[0][-6:]}), mean")).to_be_visible()
    expect(page.get_by_text("The configurations are the same.")).to_be_visible()
    console.tolerate("404")
    console.open("#/")
    console.open(f"#/runs/compare?run=no-such-run&run={runs[0]}&run={runs[1]}")
    expect(page.locator(".compared-run").first).to_contain_text("no-such-run")
    expect(page.locator(".compared-run").first).not_to_contain_text("Reading")
    expect(page.get_by_role("heading", name="By domain")).to_be_visible()


@pytest.mark.full
def test_a_line_with_missing_rounds_goes_on_over_them(console: Console) -> None:
    def rounds(*numbers: int) -> list[dict[str, Any]]:
        return [{"round": number, "accuracy": {"mean": 0.5, "worst": 0.25}} for number in numbers]

    console.open("#/nowhere")
    compared = [
        {"runId": "a", "label": "a", "run": {}, "rounds": rounds(1, 2, 3, 4)},
        {"runId": "b", "label": "b", "run": {}, "rounds": rounds(2, 4)},
    ]
    found = console.call("compare/content.js", "overlaidSeries", compared, "accuracy")
    assert found["rounds"] == [1, 2, 3, 4]
    by_key = {each["key"]: each for each in found["series"]}
    assert by_key["b mean"]["values"] == [None, 0.5, None, 0.5]
    assert by_key["b mean"]["isJoined"] is True
    console.within(
        "charts/line_chart.js",
        """(module, [rounds, series]) => {
          const chart = new module.LineChart({ name: "Joined", format: String });
          document.getElementById("main").replaceChildren(chart.element);
          chart.update(rounds, series);
        }""",
        [found["rounds"], [by_key["b mean"]]],
    )
    line = console.page.locator(".chart-plot .chart-line")
    expect(line).to_have_attribute("d", re.compile(r"^M[^M]*L[^M]*$"))
