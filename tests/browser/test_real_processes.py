"""The console in front of processes as they are deployed: an aggregator, a gateway and two trainers that really train."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.federation import tiny_federation
from tests.support.federation.processes import Federation
from tests.support.screens.browsing import WAIT_MS, Tab

pytestmark = [pytest.mark.slow, pytest.mark.full]
TRAIN_MS = 2 * WAIT_MS
"""Importing torch and training on a busy machine take their time."""


def test_a_run_is_started_paused_resumed_and_watched_to_its_end(
    federation: Federation, open_tab: Callable[..., Tab], tmp_path: Path
) -> None:
    tiny_federation.write_data(tmp_path)
    federation.start_aggregator()
    federation.start_gateway()
    for name in tiny_federation.CLIENTS:
        federation.start_trainer(name, f"npz:{tmp_path / name}.npz")
    tab = open_tab(federation.gateway_url, federation.console_code())
    page = tab.page
    tab.open("#/start")
    form = page.get_by_role("form", name="Start a run")
    for name in tiny_federation.CLIENTS:
        form.get_by_role("checkbox", name=name).check(timeout=TRAIN_MS)
    form.get_by_label("Name", exact=True).fill("from-the-console")
    form.get_by_label("Rounds", exact=True).fill("6")
    form.get_by_role("button", name="Start the run").click()

    status = page.locator(".run-head .badge")
    expect(page.get_by_role("heading", level=1)).to_have_text("from-the-console")
    expect(page.locator(".stat", has_text="Round")).to_contain_text("1 committed", timeout=TRAIN_MS)
    page.get_by_role("button", name="Pause …").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(status).to_have_text("paused", timeout=TRAIN_MS)
    page.get_by_role("button", name="Resume …").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(status).to_have_text("completed", timeout=TRAIN_MS)
    expect(page.locator(".stat", has_text="Round")).to_contain_text("6 of 6")
    expect(
        page.locator("section[aria-labelledby=accuracy-heading] .chart-line").first
    ).to_be_attached()  # 100 % in each round
    tab.screenshot("real-processes")
    model = Path(tab.download("model.safetensors").path())
    assert model.stat().st_size > 100_000
