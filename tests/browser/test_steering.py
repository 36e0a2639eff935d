"""Pausing, resuming and stopping a run in the console: each asks first, does it once, and says so when it is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from fedplcc.shared.steering import StopRun
from tests.support.federation.served_gateway import ServedGateway
from tests.support.screens.browsing import Console


@pytest.fixture(scope="module")
def served(served_by_module: ServedGateway) -> ServedGateway:
    """One gateway for all tests; each steers a run of its own, which ends with it."""
    return served_by_module


@pytest.fixture
def run_id(console: Console) -> Iterator[str]:
    """A run whose round 1 is training, in the tab."""
    federation = console.served.federation
    run_id = console.served.create(run={"rounds": 3})
    federation.join()
    step_to_round(console, run_id, 1)
    console.open(f"#/runs/{run_id}")
    expect(status(console, "running")).to_be_visible()
    yield run_id
    federation.coordinator.steer(run_id, StopRun())
    assert federation.run_to_end(run_id).status.is_final


def step_to_round(console: Console, run_id: str, number: int) -> None:
    federation = console.served.federation
    while federation.coordinator.get_run(run_id).round_number < number:
        assert federation.step()


def run_of(console: Console, run_id: str) -> dict[str, Any]:
    """The run as REST says it is."""
    document: dict[str, Any] = console.served.http.get(f"/v1/runs/{run_id}").json()
    return document


def events_of(console: Console, run_id: str) -> list[str]:
    return [event.type for event in console.served.federation.events(run_id)]


def status(console: Console, name: str) -> Locator:
    """The run's status in the head of its page."""
    return console.page.locator(".run-head .badge").get_by_text(name, exact=True)


def button(console: Console, name: str) -> Locator:
    """A button of the page, not of a dialog."""
    return console.page.get_by_role("group", name="Steer the run").get_by_role("button", name=name, exact=True)


def steer(console: Console, name: str) -> Locator:
    """The button in a client's row."""
    return console.page.get_by_role("button", name=name, exact=True)


def dialog(console: Console) -> Locator:
    return console.page.get_by_role("dialog")


def confirm(console: Console, name: str) -> None:
    dialog(console).get_by_role("button", name=name, exact=True).click()


def test_a_run_pauses_behind_its_open_round_and_goes_on(console: Console, run_id: str) -> None:
    button(console, "Pause …").click()
    expect(dialog(console)).to_contain_text("Pause the run?")
    confirm(console, "Pause")
    expect(dialog(console)).to_have_count(0)
    expect(console.page.get_by_text("The run pauses when the open round has committed.")).to_be_visible()
    expect(status(console, "running")).to_be_visible()
    assert run_of(console, run_id)["is_pause_requested"]

    console.served.federation.run_to_end(run_id)
    expect(status(console, "paused")).to_be_visible()
    assert (run_of(console, run_id)["round"], run_of(console, run_id)["phase"]) == (1, "committed")
    expect(button(console, "Pause …")).to_be_hidden()

    button(console, "Resume …").click()
    confirm(console, "Resume")
    expect(status(console, "running")).to_be_visible()
    console.served.federation.run_to_end(run_id)
    expect(status(console, "completed")).to_be_visible()
    for name in ("Pause …", "Resume …", "Stop …"):
        expect(button(console, name)).to_be_hidden()


@pytest.mark.full
def test_stopping_can_be_thought_over(console: Console, run_id: str) -> None:
    ways: tuple[Callable[[], None], ...] = (
        lambda: confirm(console, "Cancel"),
        lambda: console.page.keyboard.press("Escape"),
    )
    for leave in ways:
        button(console, "Stop …").click()
        expect(dialog(console)).to_contain_text("This cannot be undone.")
        leave()
        expect(dialog(console)).to_have_count(0)
        expect(button(console, "Stop …")).to_be_focused()
    assert not [asked for asked in console.requests if asked.startswith("POST")]
    assert run_of(console, run_id)["status"] == "running"


def test_a_run_stops_with_a_reason(console: Console, run_id: str) -> None:
    button(console, "Stop …").click()
    dialog(console).get_by_label("Reason").fill("the <b>scanner</b> was off")
    confirm(console, "Stop the run")
    expect(dialog(console)).to_have_count(0)
    console.served.federation.run_to_end(run_id)
    expect(status(console, "stopped")).to_be_visible()
    expect(console.page.locator(".run-head")).to_contain_text("<b>scanner</b> was off")
    assert run_of(console, run_id)["reason"] == "the <b>scanner</b> was off"
    assert events_of(console, run_id)[-1] == "run_stopped"


@pytest.mark.full
def test_what_is_refused_says_why_and_can_be_left(console: Console, run_id: str) -> None:
    button(console, "Pause …").click()
    console.served.federation.run_to_end(run_id)
    expect(status(console, "completed")).to_be_visible()
    confirm(console, "Pause")
    console.tolerate("status of 409")
    expect(dialog(console).get_by_role("alert")).to_have_text(
        re.compile("^This was not done. a run that is completed does not take pause.$", re.IGNORECASE)
    )
    confirm(console, "Cancel")
    expect(dialog(console)).to_have_count(0)
    assert run_of(console, run_id)["status"] == "completed"


def test_what_does_not_arrive_is_done_once_when_it_is_sent_again(console: Console, run_id: str) -> None:
    console.tolerate("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED_ENCODING")
    button(console, "Pause …").click()
    dialog(console).get_by_role("radio", name="Now").check()
    console.served.stop()
    confirm(console, "Pause")
    expect(dialog(console).get_by_role("alert")).to_contain_text("he gateway does not answer.")
    console.served.start()
    confirm(console, "Pause")
    expect(dialog(console)).to_have_count(0)
    expect(status(console, "paused")).to_be_visible()
    assert events_of(console, run_id).count("run_paused") == 1


def test_a_client_is_left_out_with_a_reason_and_taken_back(console: Console, run_id: str) -> None:
    rows = console.page.get_by_role("table").filter(has_text="Last error").locator("tbody tr")
    said = console.page.locator("#announcer")
    expect(rows).to_have_count(2)
    expect(rows.last).to_contain_text("bob")
    steer(console, "Quarantine … bob").focus()
    console.page.keyboard.press("Enter")
    expect(dialog(console)).to_contain_text("Quarantine client bob?")
    dialog(console).get_by_label("Reason").fill(" its <b>scanner</b> is off. ")
    confirm(console, "Quarantine")
    expect(dialog(console)).to_have_count(0)
    expect(rows.first).to_contain_text("bob")
    expect(rows.first).to_contain_text("quarantined")
    expect(rows.first).to_contain_text("its <b>scanner</b> is off")
    expect(said).to_have_text("Client bob is quarantined")
    assert run_of(console, run_id)["quarantined"] == [{"client_id": "bob", "reason": "its <b>scanner</b> is off."}]

    # The row has moved, and the keyboard with it.
    expect(steer(console, "Release … bob")).to_be_focused()
    console.page.keyboard.press("Enter")
    expect(dialog(console)).to_contain_text("It was quarantined: its <b>scanner</b> is off. Released")
    confirm(console, "Release")
    expect(said).to_have_text("Client bob takes part again")
    expect(steer(console, "Quarantine … bob")).to_be_focused()
    expect(rows.last).to_contain_text("bob")
    assert run_of(console, run_id)["quarantined"] == []

    console.served.federation.run_to_end(run_id)
    expect(status(console, "completed")).to_be_visible()
    expect(console.page.get_by_role("button", name="Quarantine …")).to_have_count(0)
    assert events_of(console, run_id).count("client_quarantined") == 1


def test_everything_is_done_with_the_keyboard(console: Console, run_id: str) -> None:
    press = console.page.keyboard.press

    def tab_to(name: str) -> None:
        for _ in range(40):
            focused = console.page.evaluate("document.activeElement.textContent")
            if focused == name:
                return
            press("Tab")
        raise AssertionError(f"Tab does not lead to {name!r}")

    tab_to("Pause …")
    press("Enter")
    expect(dialog(console)).to_be_visible()
    tab_to("Pause")
    press("Enter")
    expect(dialog(console)).to_have_count(0)
    expect(button(console, "Do not pause …")).to_be_visible()
    console.served.federation.run_to_end(run_id)
    expect(status(console, "paused")).to_be_visible()

    tab_to("Resume …")
    press("Space")
    tab_to("Resume")
    press("Space")
    expect(status(console, "running")).to_be_visible()

    tab_to("Stop …")
    press("Enter")
    expect(dialog(console)).to_be_visible()
    tab_to("Stop the run")
    press("Enter")
    expect(dialog(console)).to_have_count(0)
    console.served.federation.run_to_end(run_id)
    expect(status(console, "stopped")).to_be_visible()
