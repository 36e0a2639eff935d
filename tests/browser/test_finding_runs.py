"""Runs found on the overview: open ones however old they are, searched ones, and those that are put away or deleted."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from fedplcc.aggregator.coordinator.service import Coordinator
from fedplcc.shared.run_lists import LabelChange
from fedplcc.shared.steering import StopRun
from tests.support.federation.numpy_client import a_document
from tests.support.screens.browsing import Console

NUM_LATER = 23


def made(coordinator: Coordinator, name: str, *, is_open: bool = False) -> str:
    """A run of this name, which has ended unless it is to be open; returns its id."""
    run_id = str(coordinator.create_run(f"request {name}", a_document(run={"name": name})).run_id)
    if not is_open:
        coordinator.steer(run_id, StopRun())
        coordinator.tick()
    return run_id


def test_an_open_run_is_shown_however_many_came_after_it(console: Console) -> None:
    coordinator = console.served.federation.coordinator
    made(coordinator, "the-long-one", is_open=True)
    for number in range(NUM_LATER):
        made(coordinator, f"later-{number:02}")
    page = console.open("#/").page
    expect(page.get_by_role("heading", name="Open runs (1)")).to_be_visible()
    expect(page.get_by_role("article").get_by_role("link", name="the-long-one")).to_be_visible()
    expect(page.get_by_text("No run is open.")).to_be_hidden()


@pytest.mark.full
def test_many_open_runs_are_counted_and_the_newest_shown(console: Console) -> None:
    coordinator = console.served.federation.coordinator
    for number in range(NUM_LATER):
        made(coordinator, f"open-{number:02}", is_open=True)
    page = console.open("#/").page
    expect(page.get_by_role("heading", name=f"Open runs ({NUM_LATER})")).to_be_visible()
    expect(page.get_by_role("article")).to_have_count(12)
    page.get_by_role("link", name=f"All {NUM_LATER} open runs").click()
    expect(page.get_by_role("combobox", name="Show")).to_have_value("open")
    expect(page.locator("main tbody th a")).to_have_count(20)
    assert console.overflow_px() == 0


@pytest.mark.full
def test_runs_are_ticked_to_be_compared_and_sorted_by_a_heading(console: Console) -> None:
    coordinator = console.served.federation.coordinator
    ids = {name: made(coordinator, name) for name in ("melanoma", "digits", "scans")}
    page = console.open("#/").page
    names = page.locator("main tbody th a")
    expect(names).to_have_text(["scans", "digits", "melanoma"])
    page.get_by_role("columnheader", name="Run").get_by_role("button").click()
    expect(names).to_have_text(["digits", "melanoma", "scans"])
    page.get_by_role("checkbox", name="Compare melanoma").check()
    page.get_by_role("checkbox", name="Compare scans").check()
    assert console.barriers() == []
    page.get_by_role("link", name="Compare 2 runs").click()
    for name in ("melanoma", "scans"):
        expect(page.locator("main")).to_contain_text(ids[name])
    assert page.url.endswith(f"#/runs/compare?run={ids['melanoma']}&run={ids['scans']}")


@pytest.mark.full
def test_a_heading_sorts_the_runs_of_all_pages(console: Console) -> None:
    coordinator = console.served.federation.coordinator
    for number in range(NUM_LATER):
        document = a_document(run={"name": f"run-{number:02}", "rounds": 1 + number * 7 % NUM_LATER})
        coordinator.steer(coordinator.create_run(f"request {number}", document).run_id, StopRun())
        coordinator.tick()
    by_rounds = sorted(range(NUM_LATER), key=lambda number: number * 7 % NUM_LATER)
    page = console.open("#/").page
    names = page.locator("main tbody th a")
    expect(names.first).to_have_text(f"run-{NUM_LATER - 1}")
    heading = page.get_by_role("columnheader", name="Rounds")
    expect(heading).to_have_attribute("aria-sort", "none")
    heading.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(heading).to_have_attribute("aria-sort", "ascending")
    expect(names).to_have_text([f"run-{number:02}" for number in by_rounds[:20]])
    page.get_by_role("button", name="Next page").click()
    expect(names).to_have_text([f"run-{number:02}" for number in by_rounds[20:]])
    assert page.url.endswith("#/?order=-rounds")
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    expect(names).to_have_text([f"run-{number:02}" for number in by_rounds[::-1][:20]])
    page.reload()
    expect(names.first).to_have_text(f"run-{by_rounds[-1]:02}")
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "none")
    expect(names.first).to_have_text(f"run-{NUM_LATER - 1}")
    for column in ("Run", "Status", "Method", "Mean", "Worst", "Took", "Ended"):
        page.get_by_role("columnheader", name=column).get_by_role("button").click()
        expect(page.get_by_role("columnheader", name=column)).to_have_attribute("aria-sort", "ascending")
        expect(names).to_have_count(20)
    assert console.barriers() == []


def test_a_search_is_in_the_address_and_comes_back_with_it(console: Console) -> None:
    coordinator = console.served.federation.coordinator
    tagged = made(coordinator, "melanoma-1")
    made(coordinator, "melanoma-2")
    made(coordinator, "digits")
    coordinator.labels.change(tagged, LabelChange(tags=("paper",)))
    page = console.open("#/").page
    names = page.locator("main tbody th a")
    expect(names).to_have_count(3)
    page.get_by_role("searchbox", name="Name or id").fill("MELANOMA")
    expect(names).to_have_text(["melanoma-2", "melanoma-1"])
    page.get_by_role("searchbox", name="Tag").fill("paper")
    expect(names).to_have_text(["melanoma-1"])
    expect(page.get_by_role("status").filter(has_text="1 run")).to_be_visible()
    assert page.url.endswith("#/?name=MELANOMA&tag=paper")
    names.first.click()
    expect(page.get_by_role("heading", name="melanoma-1")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("searchbox", name="Tag")).to_have_value("paper")
    expect(names).to_have_text(["melanoma-1"])
    page.get_by_role("button", name="Clear").click()
    expect(names).to_have_count(3)
    assert page.url.endswith("#/")
    assert console.barriers() == []


def test_a_run_is_put_away_brought_back_and_deleted_after_a_question(console: Console) -> None:
    coordinator = console.served.federation.coordinator
    run_id = made(coordinator, "old")
    made(coordinator, "new")
    page = console.open(f"#/runs/{run_id}").page
    page.get_by_role("button", name="Archive …").click()
    page.get_by_role("dialog").get_by_role("button", name="Archive").click()
    expect(page.get_by_role("button", name="Bring back …")).to_be_visible()

    console.open("#/")
    names = page.locator("main tbody th a")
    expect(names).to_have_text(["new"])
    page.get_by_role("combobox", name="Show").select_option("archived")
    expect(names).to_have_text(["old"])

    console.open(f"#/runs/{run_id}")
    page.get_by_role("button", name="Delete …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("cannot be undone")
    assert console.barriers(within="dialog") == []
    dialog.get_by_role("button", name="Cancel").click()
    assert coordinator.get_run(run_id)
    page.get_by_role("button", name="Delete …").click()
    dialog.get_by_role("button", name="Delete the run").click()
    expect(page.get_by_role("heading", name="Federation")).to_be_visible()
    page.get_by_role("combobox", name="Show").select_option("deleted")
    expect(page.locator("main tbody th")).to_contain_text(["old"])


@pytest.mark.full
def test_a_client_is_forgotten_after_a_question(console: Console) -> None:
    federation = console.served.federation
    federation.join()
    page = console.open("#/clients").page
    rows = page.locator("main tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Forget ann").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("If it joins again, it is new.")
    dialog.get_by_role("button", name="Forget").click()
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("bob")
