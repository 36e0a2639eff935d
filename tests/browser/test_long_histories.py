"""A run with more than 10,000 events is as quick to look at as one with ten: the page keeps a bounded part of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import expect

from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.shared.types import Event, EventQuery
from tests.support.federation.in_process import LocalFederation, PassingClock
from tests.support.federation.served_gateway import ServedGateway
from tests.support.records.long_history import clients, with_long_history
from tests.support.screens.browsing import Console

pytestmark = [pytest.mark.slow, pytest.mark.full]

CLIENTS, ROUNDS = 100, 50
MAX_ELEMENTS = 4000
"""Most elements of a run's page, whatever its history."""
FIRST_VIEW_S = 10.0
"""Generous: a busy machine is slow. benchmarks/by_hand/console.py measures it."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedGateway]:
    """A run of 100 clients whose round 51 is open."""
    with_long_history(tmp_path, num_clients=CLIENTS, num_rounds=ROUNDS, now=time.time())
    with ServedGateway(tmp_path, clients(CLIENTS), Limits(lease_heartbeats=150), PassingClock()) as served:
        served.federation.join()
        yield served


def num_elements(console: Console) -> int:
    return int(console.page.evaluate("document.querySelectorAll('*').length"))


def test_a_run_of_ten_thousand_events_is_shown_paged_and_followed(console: Console) -> None:
    page, federation = console.page, console.served.federation
    (run,) = federation.coordinator.list_runs(limit=2)
    newest_first = [event.sequence for event in reversed(every_event(federation, run.run_id))]
    assert len(newest_first) > 10_000

    begin = time.perf_counter()
    console.open(f"#/runs/{run.run_id}")
    expect(page.locator("section[aria-labelledby=accuracy-heading] .chart-line").first).to_be_visible()
    first_view_s = time.perf_counter() - begin
    rows = page.get_by_role("list", name="Events, newest first").get_by_role("listitem")
    expect(rows.first).to_contain_text("The run goes on after an interruption")
    expect(rows.nth(1)).to_contain_text("Round 51 opened with 100 clients")
    at_first = num_elements(console)
    assert first_view_s < FIRST_VIEW_S
    assert at_first < MAX_ELEMENTS
    most = console.within("lib/run_state.js", "(module) => module.MAX_EVENTS")
    expect(rows).to_have_count(most)

    seen = keys(console)
    for _ in range(3):
        page.get_by_role("button", name="Older").click()
        console.eventually(partial(shows_older_than, console, seen[-1]), "an older page is shown")
        seen += keys(console)
    expect(rows).to_have_count(most)
    assert seen == newest_first[: 4 * most], "pages leave no event out and show none twice"

    kind, client = (page.locator(".filters").get_by_role("combobox", name=name) for name in ("Show", "Client"))
    kind.select_option("rounds")
    expect(rows.first).to_contain_text("Round 51 opened")
    expect(rows.nth(1)).to_contain_text("Round 50 committed")
    client.select_option("site-042")
    kind.select_option("clients")
    expect(rows.first).to_contain_text("Client site-042 reported its evaluation")

    client.select_option("")
    kind.select_option("")
    federation.step()
    federation.step()
    expect(rows.first).to_contain_text("Round 52 opened with 100 clients")
    expect(page.locator(".stat", has_text="Round").first).to_contain_text("52 of 60")
    expect(rows).to_have_count(most)
    assert num_elements(console) < MAX_ELEMENTS
    print(f"{len(newest_first)} events: first view {first_view_s:.2f} s, {at_first} elements")


def shows_older_than(console: Console, sequence: int) -> bool:
    return keys(console)[0] < sequence


def every_event(federation: LocalFederation, run_id: str) -> list[Event]:
    found = federation.coordinator.list_events(EventQuery(run_id=run_id))
    while page := federation.coordinator.list_events(EventQuery(run_id=run_id, after=found[-1].sequence)):
        found += page
    return found


def keys(console: Console) -> list[int]:
    """Sequences of the events in the list, newest first."""
    return [int(key) for key in console.page.locator(".events > li").evaluate_all("rows => rows.map(row => row.key)")]
