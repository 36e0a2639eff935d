"""Layout of the console on a desk and on a phone: what fits, what sorts, and the page of the API."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from fedplcc.shared.steering import StopRun
from fedplcc.shared.types import ClientActivity
from tests.support.federation.numpy_client import a_document
from tests.support.federation.served_gateway import ServedGateway
from tests.support.screens.browsing import PHONE, Console, Look, in_every_look


@pytest.fixture(scope="module")
def served(served_by_module: ServedGateway) -> ServedGateway:
    """One gateway for all tests; each has a run of its own."""
    return served_by_module


@pytest.mark.full
@in_every_look
def test_the_page_of_the_api_can_be_read_and_used(console: Console) -> None:
    console.open("docs")
    page = console.page
    expect(page.get_by_role("heading", name="API", exact=True)).to_be_visible()
    assert console.overflow_px() == 0
    assert console.barriers() == []
    gaps = page.evaluate(
        """() => {
          const boxes = [...document.querySelectorAll("header p")].map((each) => each.getBoundingClientRect());
          return boxes.slice(1).map((box, index) => box.top - boxes[index].bottom);
        }"""
    )
    assert min(gaps) >= 8, "paragraphs stand apart"
    page.get_by_role("navigation", name="Operations").get_by_role("link").first.click()
    expect(page.locator("article h3:target")).to_be_in_viewport()
    console.screenshot(f"api-{page.viewport_size and page.viewport_size['width']}", whole=False)


@in_every_look
def test_every_page_is_in_the_bar_without_scrolling(console: Console) -> None:
    console.open("#/")
    bar = console.page.get_by_role("navigation", name="Pages")
    expect(bar.get_by_role("link").last).to_be_visible()
    assert bar.evaluate("bar => bar.scrollWidth - bar.clientWidth") <= 0


def test_clients_are_sorted_by_a_heading_with_the_keyboard(console: Console) -> None:
    console.served.federation.join()
    console.open("#/clients")
    names = console.page.locator("tbody th")
    heading = console.page.get_by_role("columnheader", name="Client", exact=True)
    button = heading.get_by_role("button")
    expect(heading).to_have_attribute("aria-sort", "none")
    button.focus()
    for order, first in (("ascending", "ann"), ("descending", "bob"), ("none", "ann")):
        console.page.keyboard.press("Enter")
        expect(heading).to_have_attribute("aria-sort", order)
        expect(names.first).to_contain_text(first)
        expect(button).to_be_focused()
    assert console.barriers() == []


@pytest.mark.full
def test_values_sort_as_people_expect(console: Console) -> None:
    console.open("#/")
    assert sorted_values(console, 1) == [["älter", "Site-9", "site-10", "zebra", None], [9, 10, None]]
    assert sorted_values(console, 2) == [["zebra", "site-10", "Site-9", "älter", None], [10, 9, None]]


def sorted_values(console: Console, num_presses: int) -> Any:
    """Texts and numbers after so many presses of their heading."""
    return console.within(
        "lib/sorting.js",
        """(module, presses) => {
          const made = module.sortedBy([{ name: "Value", by: (row) => row }], () => 0, () => {});
          for (let number = 0; number < presses; number += 1) made.element.querySelector("button").click();
          return [["site-10", null, "Site-9", "älter", "zebra"].sort(made.compare), [10, null, 9].sort(made.compare)];
        }""",
        num_presses,
    )


@pytest.mark.full
@in_every_look
def test_differing_keys_of_two_runs_are_seen_without_scrolling(console: Console) -> None:
    made = [console.served.create_and_finish(run={"name": name, "rounds": 2}) for name in ("first", "second")]
    console.open(f"#/runs/compare?run={made[0]}&run={made[1]}")
    part = console.page.get_by_role("region", name="Keys by run")
    expect(part.locator("thead th")).to_have_count(3)
    assert part.evaluate("part => part.scrollWidth - part.clientWidth") <= 0
    assert console.overflow_px() == 0
    assert console.barriers() == []


on_a_phone = pytest.mark.parametrize("look", [PHONE], ids=str)


@pytest.mark.full
@on_a_phone
def test_clients_are_sorted_on_a_phone_where_no_headings_are_seen(console: Console) -> None:
    console.served.federation.join()
    console.open("#/clients")
    names = console.page.locator("tbody th")
    choice = console.page.get_by_label("Sort by")
    expect(names.first).to_contain_text("ann")
    choice.select_option("Client, falling")
    expect(names.first).to_contain_text("bob")
    choice.select_option("usual order")
    expect(names.first).to_contain_text("ann")
    assert console.barriers() == []


@pytest.mark.full
@in_every_look
def test_earlier_runs_are_in_the_order_that_the_gateway_gives_to_all_of_them(console: Console, look: Look) -> None:
    coordinator = console.served.federation.coordinator
    for number in range(23):
        run = coordinator.create_run(f"sorted {number} {look}", a_document(run={"name": f"{look}-{22 - number:02}"}))
        coordinator.steer(run.run_id, StopRun())
        coordinator.tick()
    page = console.open(f"#/?name={look}-").page
    names = page.locator("main tbody th a")
    expect(names.first).to_have_text(f"{look}-00")
    page.get_by_label("Sort by").select_option("oldest first")
    expect(names.first).to_have_text(f"{look}-22")
    page.get_by_label("Sort by").select_option("name")
    expect(names.first).to_have_text(f"{look}-00")
    page.get_by_role("button", name="Next page").click()
    expect(names).to_have_text([f"{look}-20", f"{look}-21", f"{look}-22"])
    assert page.url.endswith("&order=name")
    page.reload()
    expect(page.get_by_label("Sort by")).to_have_value("name")
    expect(names.first).to_have_text(f"{look}-00")
    assert console.barriers() == []


def test_rows_of_clients_keep_their_height_when_work_begins(console: Console) -> None:
    federation = console.served.federation
    federation.join()
    console.open("#/clients")
    row = console.page.locator("tbody tr").first
    expect(row).to_contain_text("idle")
    before = row.bounding_box()
    federation.heartbeat(
        federation.clients["ann"], activity=ClientActivity.TRAINING, run_id="r-1", round=1, progress=0.4
    )
    working = console.page.locator("tbody tr", has_text="ann")
    expect(working.get_by_role("progressbar")).to_be_visible()
    after = working.bounding_box()
    assert before is not None
    assert after is not None
    assert after["height"] == pytest.approx(before["height"], abs=1)
    assert before["height"] < 80, "nothing takes a line of its own"
    federation.heartbeat(federation.clients["ann"])


@pytest.mark.full
@pytest.mark.parametrize("has_ended", [False, True], ids=["running", "ended"])
def test_a_runs_page_is_a_few_screens_long_and_leads_to_what_it_folds(console: Console, has_ended: bool) -> None:
    served = console.served
    run_id = served.create_and_finish(run={"rounds": 2}) if has_ended else served.create(run={"rounds": 3})
    served.federation.join()
    served.federation.step()
    page = console.open(f"#/runs/{run_id}").page
    expect(page.locator(".facts > div")).not_to_have_count(0)
    assert page.evaluate("document.documentElement.scrollHeight") <= 3000
    end = page.evaluate("document.querySelector('main').getBoundingClientRect().bottom + window.scrollY")
    assert page.evaluate("document.documentElement.scrollHeight") <= end + 100, "nothing hidden makes the page longer"
    for name, is_open in (("Clients", not has_ended), ("Events", not has_ended), ("Files", has_ended)):
        fold = page.locator("details", has=page.get_by_role("heading", name=name, exact=True))
        assert (fold.get_attribute("open") is not None) is is_open, name
    parts = page.get_by_role("navigation", name="Parts of this page")
    parts.get_by_role("button", name="Prototype map", exact=True).click()
    expect(page.get_by_role("heading", name="Prototype map", exact=True)).to_be_focused()
    expect(page.locator("details", has=page.get_by_role("heading", name="Prototype map"))).to_have_attribute("open", "")
