"""The overview and the page of clients: what to do first, who needs help, and what ran before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import Route, expect

from fedplcc.shared.steering import StopRun
from fedplcc.shared.types import ClientActivity, ClientProblem, LogLevel, LogLine
from tests.support.federation.numpy_client import a_document
from tests.support.screens.browsing import Console

NUM_RUNS = 23
MARKUP = "<img src=x onerror=alert(1)>"
PROBLEM = ClientProblem(reason="NO_DATA", detail="the folder has no images", hint="mount the data set", is_fatal=True)


def test_an_empty_federation_says_how_to_begin(console: Console) -> None:
    main = console.open("#/").page.locator("main")
    expect(main.get_by_role("heading", name="Nothing is here yet")).to_be_visible()
    expect(main).to_contain_text("fedplcc trainer --insecure --aggregator HOST:PORT --client NAME --data folder:PATH")
    origin = console.served.url
    expect(main).to_contain_text(f"fedplcc run start --config run.toml --gateway {origin}")
    expect(main.get_by_role("link", name="Start a run")).to_have_attribute("href", "#/start")
    console.served.federation.join()
    expect(main.get_by_role("heading", name="Nothing is here yet")).to_be_hidden()
    expect(main).to_contain_text("2 of 2 clients connected")


def test_a_client_whose_certificate_was_revoked_is_no_client_that_might_come_back(console: Console) -> None:
    page = console.open("#/nowhere")
    client = {"client_id": "ann", "is_connected": False, "activity": "idle", "problem": None, "is_revoked": True}
    assert page.call("clients/state.js", "stateOf", client) == {"state": "revoked", "tone": "neutral"}


@pytest.mark.full
def test_clients_with_problems_come_first_and_can_be_found(console: Console) -> None:
    federation = console.served.federation
    federation.join()
    federation.heartbeat(federation.clients["bob"], activity=ClientActivity.IDLE, problem=PROBLEM)
    page = console.open("#/clients").page
    rows = page.locator("main tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("bob")
    expect(rows.first).to_contain_text("the folder has no images")
    expect(rows.first).to_contain_text("mount the data set")

    page.get_by_role("searchbox", name="Find").fill("ANN-dom")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("ann")
    page.get_by_role("combobox", name="Show").select_option("with a problem")
    expect(page.get_by_text("No client is like this.")).to_be_visible()
    page.get_by_role("searchbox", name="Find").fill("")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("bob")

    console.open("#/")
    troubled = page.get_by_role("list", name="Clients with problems").get_by_role("listitem")
    expect(troubled).to_have_count(1)
    expect(troubled).to_contain_text("mount the data set")


def test_lines_that_a_site_lets_out_are_shown_as_they_come_and_the_others_are_not_missed(console: Console) -> None:
    federation = console.served.federation
    federation.join()
    run_id = console.served.create()
    ann, bob = federation.clients["ann"], federation.clients["bob"]
    begun = LogLine(
        time=1.0, level=LogLevel.INFO, event="task_begun", run_id=run_id, round=3, facts=(("task", "train"),)
    )
    failed = replace(begun, time=2.0, level=LogLevel.ERROR, event="task_failed", facts=(("reason", "INVALID_DATA"),))
    federation.heartbeat(ann, log_level=LogLevel.INFO, log_lines=(begun,))
    federation.heartbeat(bob, log_level=LogLevel.NONE)
    page = console.open("#/clients").page
    logs = page.get_by_role("region", name="Logs of sites")
    logs.get_by_text("What their owners let out.").click()
    lines = logs.get_by_role("list").get_by_role("listitem")
    expect(lines).to_have_count(1)
    expect(lines).to_contain_text(f"task_begun: task train · {run_id}, round 3")
    expect(logs.get_by_role("status")).to_have_text("ann's owner lets lines of every level but debug out.")
    federation.heartbeat(ann, log_level=LogLevel.INFO, log_lines=(failed,), log_lines_left_out=2)
    expect(lines).to_have_count(2)
    expect(lines.first).to_contain_text("Error: task_failed: reason INVALID_DATA")
    expect(logs.get_by_role("status")).to_contain_text("2 lines had to be left out.")
    assert console.barriers(within="section[aria-labelledby=site-logs]") == []
    console.screenshot("site-logs")
    # No member gets such a line in: it is one of an aggregator that somebody has taken over.
    kept = federation.coordinator._sessions.logs._kept["ann"].lines
    kept[3.0] = (2**53 - 1, replace(failed, time=3.0, event=MARKUP, facts=((MARKUP, MARKUP),)))
    expect(lines.first).to_contain_text(f"{MARKUP}: {MARKUP} {MARKUP}")
    expect(logs.locator("img")).to_have_count(0)
    assert console.overflow_px() == 0
    del kept[3.0]
    federation.heartbeat(ann, log_level=LogLevel.ERROR)
    expect(logs.get_by_role("status")).to_contain_text("ann's owner lets errors out.")
    expect(lines.filter(has_text="task_begun")).to_have_count(0)
    logs.get_by_role("combobox", name="Level").select_option("errors")
    expect(lines).to_have_count(1)
    logs.get_by_role("combobox", name="Client").select_option("bob")
    expect(logs.get_by_role("status")).to_have_text("bob's owner lets no log lines out.")
    expect(lines).to_have_count(0)


def test_lines_come_to_whoever_opened_the_section_before_the_clients_were_known(console: Console) -> None:
    federation = console.served.federation
    federation.join()
    held: list[Route] = []
    page = console.page
    are_known = False
    page.route("**/v1/clients?*", lambda route: route.continue_() if are_known else held.append(route))
    console.open("#/clients")
    logs = page.get_by_role("region", name="Logs of sites")
    logs.get_by_text("What their owners let out.").click()
    expect(logs.get_by_role("status")).to_have_text("No client has ever joined.")
    federation.heartbeat(federation.clients["ann"], log_level=LogLevel.NONE)
    are_known = True
    for route in held:
        route.continue_()
    expect(logs.get_by_role("status")).to_have_text("ann's owner lets no log lines out.")


@pytest.mark.full
def test_runs_of_one_kind_are_found_among_all(console: Console) -> None:
    coordinator = console.served.federation.coordinator

    def made(name: str) -> str:
        return str(coordinator.create_run(f"search {name}", a_document(run={"name": name})).run_id)

    forgotten = [made(f"forgotten-{number:02}") for number in range(NUM_RUNS)]
    for number in range(NUM_RUNS):
        coordinator.steer(made(f"later-{number:02}"), StopRun())
        coordinator.tick()
    page = console.open("#/").page
    names, show = page.locator("main tbody th a"), page.get_by_role("combobox", name="Show")
    expect(names.first).to_have_text("later-22")
    show.focus()
    page.keyboard.press("ArrowDown")
    expect(show).to_have_value("open")
    newest = [f"forgotten-{number:02}" for number in range(NUM_RUNS - 1, NUM_RUNS - 21, -1)]
    expect(names).to_have_text(newest)
    expect(page.get_by_role("status").filter(has_text="1 to 20 of 23")).to_be_visible()
    page.get_by_role("button", name="Next page").click()
    expect(names).to_have_text(["forgotten-02", "forgotten-01", "forgotten-00"])
    expect(page.get_by_role("heading", name="Earlier runs")).to_be_focused()

    coordinator.steer(forgotten[1], StopRun())
    coordinator.tick()
    page.get_by_role("button", name="First page").click()  # asks at once; a busy page asks seldom by itself
    expect(names).to_have_text(newest)
    page.get_by_role("button", name="Next page").click()
    expect(names).to_have_text(["forgotten-02", "forgotten-00"])
    names.first.click()
    expect(page.get_by_role("heading", name="forgotten-02")).to_be_visible()
    page.go_back()
    expect(show).to_have_value("open")
    expect(names.first).to_have_text("forgotten-22")
    expect(page.get_by_role("navigation").get_by_role("link", name="Overview")).to_have_attribute(
        "aria-current", "page"
    )

    show.select_option("failed")
    expect(page.get_by_role("status").filter(has_text="No run is like this.")).to_be_visible()
    show.select_option("stopped")
    expect(names.first).to_have_text("later-22")
    page.get_by_role("button", name="Next page").click()
    expect(names).to_have_text(["later-02", "later-01", "later-00", "forgotten-01"])
    assert console.overflow_px() == 0


@pytest.mark.full
def test_runs_that_came_to_nothing_are_not_asked_again_and_again_what_they_came_to(console: Console) -> None:
    federation = console.served.federation
    federation.join()
    run = federation.create(run={"rounds": 3})
    while federation.coordinator.get_run(run.run_id).round_number < 1:
        federation.step()
    federation.coordinator.steer(run.run_id, StopRun())
    assert federation.run_to_end(run.run_id).round_number == 1
    page = console.open("#/").page
    expect(page.locator("main tbody")).to_contain_text("0 of 3")
    console.eventually(lambda: sum("/v1/runs?" in asked for asked in console.requests) > 1, "runs are asked for again")
    assert not [asked for asked in console.requests if "/rounds?" in asked]
