"""The pictures of the README: real digits of four domains, and a run of FedPLCC that is watched while it trains.

FEDPLCC_SCREENSHOTS=FOLDER pytest tests/browser/test_pictures.py       minutes: it trains what `make demo` trains
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Locator, expect

from fedplcc.runs.configuration import demo_file, local_clients, read_federation, stream_demo_file
from fedplcc.shared.config.run import RunConfig, parse_run_config
from tests.support.federation.processes import Federation
from tests.support.screens.browsing import DARK, PHONE, Tab

FOLDER = os.environ.get("FEDPLCC_SCREENSHOTS", "")
ROUNDS = int(os.environ.get("FEDPLCC_SCREENSHOT_ROUNDS", "20"))
"""The pictures are taken behind this round of the run of thirty."""
ROUND_MS = 120_000
"""Longest round, and longest start of the trainers, on a busy machine."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not FOLDER, reason="takes minutes; set FEDPLCC_SCREENSHOTS to the folder that gets the pictures"
    ),
]


def test_the_pictures_of_the_readme(federation: Federation, browser: Browser, open_tab: Callable[..., Tab]) -> None:
    demo = read_federation(demo_file())
    federation.start_aggregator()
    federation.start_gateway()
    clients = local_clients(demo)
    for name, client in clients.items():
        federation.start_trainer(name, client.data, "--samples-per-class", str(client.samples_per_class))
    tab = open_tab(federation.gateway_url, federation.console_code())
    page = tab.page
    tab.open("#/start")
    form = page.get_by_role("form", name="Start a run")
    for name in clients:
        form.get_by_role("checkbox", name=name, exact=False).first.check(timeout=ROUND_MS)
    form.get_by_label("Name", exact=True).fill(demo.config.run.name)
    expect(form.get_by_role("status").filter(has_text="Nothing is wrong")).to_be_visible()
    picture(tab, "start", 1300)
    run_id = started(federation, demo.config)

    tab.open(f"#/runs/{run_id}")
    expect_rounds(tab)
    expect_everything(tab)
    picture(tab, "run", bottom_of(map_of(tab)))
    tab.open("#/")
    expect(page.get_by_role("article")).to_contain_text("running")
    picture(tab, "overview", 800)
    for name, look, height in (("run-dark", DARK, 1300), ("phone", PHONE, 1500)):
        other = Tab(browser.new_context(**look.context).new_page(), tab.origin)
        other.sign_in(federation.console_code())
        expect(other.page.get_by_role("article")).to_contain_text("running")
        other.open(f"#/runs/{run_id}")
        expect_everything(other)
        picture(other, name, height)
        assert not other.unforeseen()
        other.page.context.close()
    # The same clients with FedAvg, to compare.
    federation.ask(f"/v1/runs/{run_id}/stop", {}, method="POST")
    document = json.loads(demo.config.canonical_json)
    plain = {**document, "run": {**document["run"], "name": "digits-fedavg", "method": "fedavg"}, "method": {}}
    other_id = started(federation, parse_run_config(plain))
    tab.open(f"#/runs/{other_id}")
    expect_rounds(tab)
    tab.open(f"#/runs/compare?run={run_id}&run={other_id}")
    expect(page.get_by_role("figure").first).to_contain_text("digits-fedavg, worst")
    picture(tab, "compare", bottom_of(page.get_by_role("region", name="By domain", exact=True)))


def test_the_picture_of_stages(federation: Federation, open_tab: Callable[..., Tab]) -> None:
    demo = read_federation(stream_demo_file())
    federation.start_aggregator()
    federation.start_gateway()
    for name, client in local_clients(demo).items():
        federation.start_trainer(name, client.data, "--samples-per-class", str(client.samples_per_class))
    tab = open_tab(federation.gateway_url, federation.console_code())
    run_id = started(federation, demo.config)
    tab.open(f"#/runs/{run_id}")
    expect(tab.page.locator(".run-head .badge")).to_have_text("completed", timeout=demo.config.run.rounds * ROUND_MS)
    stages = tab.page.get_by_role("region", name="Stages", exact=True)
    expect(stages).to_contain_text("stage 2 of 2")
    picture(tab, "stages", bottom_of(stages) + 20)


def expect_rounds(tab: Tab) -> None:
    """Wait until the run on the page has committed the rounds of the pictures."""
    for number in range(1, ROUNDS + 1):
        committed = tab.page.locator(".stat", has_text="Round").get_by_text(f"{number} committed", exact=True)
        later = tab.page.locator(".stat", has_text="Round").get_by_text(f"{number + 1} committed", exact=True)
        expect(committed.or_(later)).to_be_visible(timeout=ROUND_MS)


def started(federation: Federation, config: RunConfig) -> str:
    """Start the demo's run, to the letter, and return its id."""
    document = json.loads(config.canonical_json)
    document["run"]["clients"] = sorted(
        name.removeprefix("trainer-") for name in federation.processes if "trainer" in name
    )
    answer = httpx.post(f"{federation.gateway_url}/v1/runs", json=document, headers=federation.headers)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["run_id"])


def expect_everything(tab: Tab) -> None:
    """Wait until each part of a run's page has read what it shows."""
    expect(tab.page.locator("section[aria-labelledby=accuracy-heading] .chart-line").first).to_be_visible()
    expect(tab.page.get_by_text("4 of 4 clients connected")).to_be_visible()
    tab.unfold("Prototype map")
    expect(map_of(tab).get_by_text(re.compile(r"^Round \d+$"))).to_be_visible()


def map_of(tab: Tab) -> Locator:
    return tab.page.locator("section").filter(has=tab.page.get_by_role("heading", name="Prototype map"))


def bottom_of(part: Locator) -> int:
    """Where a part of the page ends, in pixels from the page's top."""
    return int(part.evaluate("element => element.getBoundingClientRect().bottom + window.scrollY"))


def picture(tab: Tab, name: str, height: int) -> None:
    """Leave a picture of the page's upper part in the folder, as a window of this height shows it."""
    folder = Path(FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    before = tab.page.viewport_size
    assert before is not None
    tab.page.set_viewport_size({"width": before["width"], "height": height})
    tab.page.evaluate("window.scrollTo(0, 0)")
    tab.page.screenshot(path=folder / f"console-{name}.png", animations="disabled")
    tab.page.set_viewport_size(before)
