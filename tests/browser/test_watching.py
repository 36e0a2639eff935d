"""Watching a run in the console: what happens is shown as it happens, each event once, whatever the connection does."""

from __future__ import annotations

import re
from functools import partial

import pytest
from playwright.sync_api import Locator, expect

from tests.chaos.fault_proxy import FaultProxy
from tests.support.screens.browsing import Console

AWAY = (
    "ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED_ENCODING"
    "|ERR_CONTENT_LENGTH_MISMATCH|status of 50[034]"
)
"""What the browser says of a gateway or an aggregator that is not there."""

BREAK_OFF = """
const whole = window.fetch;
window.fetch = async (url, init) => {
  const answer = await whole(url, init);
  if (!url.includes("/events?")) return answer;
  window.fetch = whole;
  const begun = new TextEncoder().encode("{");
  const start = (body) => { body.enqueue(begun); END; window.hasBegun = true; };
  return new Response(new ReadableStream({ start }), { headers: answer.headers });
};
"""
"""Has the first answer to what a run's page asks not come whole."""
BROKEN = 'body.error(new TypeError("network error"))'
"""As where the gateway is stopped."""
SILENT = 'init.signal.addEventListener("abort", () => body.error(init.signal.reason))'
"""As where a link dies: nothing more comes until somebody gives it up."""


@pytest.fixture
def run_id(console: Console) -> str:
    """A run of four rounds, whose history fits on one page of the list; its clients have not come yet."""
    return console.served.create(method="fedplcc", run={"rounds": 4})


def go_on(console: Console, run_id: str, number: int) -> None:
    """Let the clients take the run into a round."""
    federation = console.served.federation
    while federation.coordinator.get_run(run_id).round_number < number:
        assert federation.step()


def start(console: Console, run_id: str, number: int) -> None:
    console.served.federation.join()
    go_on(console, run_id, number)


def status(console: Console, name: str) -> Locator:
    """The run's status in the head of its page."""
    return console.page.locator(".run-head .badge").get_by_text(name, exact=True)


def figure(console: Console, name: str) -> Locator:
    """One of the figures at the top of a run's page, with its name and note."""
    return console.page.locator(".stat", has_text=name)


def shown_events(console: Console) -> list[int]:
    """Sequences of the events in the list, oldest first."""
    keys = console.page.locator(".events > li").evaluate_all("rows => rows.map(row => Number(row.key))")
    return list(reversed(keys))


def expect_every_event(console: Console, run_id: str) -> None:
    """Wait until the page shows the run's history: every event, each once, in order."""
    wanted = [event.sequence for event in console.served.federation.events(run_id)]
    console.eventually(lambda: shown_events(console)[-1:] == wanted[-1:], "the last event is shown")
    assert shown_events(console) == wanted


def test_a_run_is_shown_from_its_wait_for_clients_to_its_end_without_a_reload(console: Console, run_id: str) -> None:
    console.open(f"#/runs/{run_id}")
    expect(status(console, "pending")).to_be_visible()
    expect(console.page.get_by_text("Waiting for ann and bob to connect.")).to_be_visible()
    federation = console.served.federation
    ann = federation.clients["ann"]
    federation.coordinator.join(ann.record, ann.token)
    expect(console.page.get_by_text("Waiting for bob to connect.")).to_be_visible()

    federation.join()
    expect(status(console, "running")).to_be_visible()
    go_on(console, run_id, 2)
    expect(figure(console, "Round")).to_contain_text("2 of 4")
    expect(figure(console, "Round")).to_contain_text("1 committed")
    steps = console.page.get_by_role("list", name="Phases of the open round")
    expect(steps.locator("[aria-current=step]")).to_contain_text("training")
    expect(steps.locator("[aria-current=step]")).to_contain_text("0 of 2 clients done")

    federation.perform(ann, federation.task(ann))
    expect(steps.locator("[aria-current=step]")).to_contain_text("1 of 2 clients done")
    expect(console.page.get_by_role("row", name="ann")).to_contain_text("done")

    run = federation.run_to_end(run_id)
    expect(status(console, "completed")).to_be_visible()
    expect(figure(console, "Round")).to_contain_text("4 of 4")
    rounds = console.served.http.get(f"/v1/runs/{run_id}/rounds").json()["rounds"]
    accuracy = rounds[-1]["metrics"]["accuracy"]
    expect(figure(console, "Mean accuracy")).to_contain_text(f"{100 * accuracy['mean']:.1f} %")
    expect(figure(console, "Worst domain")).to_contain_text(f"{100 * accuracy['worst']:.1f} %")
    worst = min((name for name in accuracy if name not in ("mean", "worst")), key=lambda name: accuracy[name])
    expect(figure(console, "Worst domain")).to_contain_text(worst)
    expect_every_event(console, run_id)
    assert run.status.value == "completed"
    assert len([asked for asked in console.requests if asked == "GET /"]) == 1


def test_a_reload_in_the_middle_shows_the_same_and_goes_on(console: Console, run_id: str) -> None:
    start(console, run_id, 2)
    console.open(f"#/runs/{run_id}")
    expect_every_event(console, run_id)
    before = console.page.locator(".events > li").all_inner_texts()
    console.page.reload()
    expect_every_event(console, run_id)
    expect(console.page.locator(".events > li")).to_have_text(before, use_inner_text=True)
    console.served.federation.run_to_end(run_id)
    expect(status(console, "completed")).to_be_visible()
    expect_every_event(console, run_id)


def test_a_gateway_that_was_away_is_found_again_and_no_event_is_missing_or_doubled(
    console: Console, run_id: str
) -> None:
    console.tolerate(AWAY)
    start(console, run_id, 1)
    console.open(f"#/runs/{run_id}")
    expect_every_event(console, run_id)
    console.served.stop()
    expect(console.page.get_by_text(re.compile("connection lost", re.IGNORECASE)).first).to_be_visible()
    go_on(console, run_id, 3)
    console.served.start()
    expect(figure(console, "Round")).to_contain_text("3 of 4")
    expect_every_event(console, run_id)
    expect(
        console.page.get_by_text(re.compile("connection lost", re.IGNORECASE)).locator("visible=true")
    ).to_have_count(0)
    console.served.federation.run_to_end(run_id)
    expect(status(console, "completed")).to_be_visible()
    expect_every_event(console, run_id)


def test_a_link_that_is_cut_again_and_again_loses_and_doubles_no_event(console: Console, run_id: str) -> None:
    console.tolerate(AWAY)
    start(console, run_id, 1)
    address = console.served.url.removeprefix("http://")
    with FaultProxy(address, hold_s=0) as link:
        console.origin = f"http://{link.address}"
        console.open(f"#/runs/{run_id}")
        expect_every_event(console, run_id)
        for number in (2, 3):
            go_on(console, run_id, number)
            link.cut()
            expect(figure(console, "Round")).to_contain_text(f"{number} of 4")
        console.served.federation.run_to_end(run_id)
        expect(status(console, "completed")).to_be_visible()
        expect_every_event(console, run_id)
        assert link.num_cut
        console.page.goto("about:blank")


@pytest.mark.full
def test_a_run_that_is_not_there_is_said(console: Console) -> None:
    console.tolerate("status of 404")
    console.open("#/runs/nobody-knows")
    expect(console.page.get_by_role("heading", level=1)).to_have_text("There is no such run")
    expect(console.page.get_by_role("alert").locator("visible=true")).to_contain_text(
        "there is no run 'nobody-knows'", ignore_case=True
    )
    console.page.get_by_role("link", name="Go to the overview").click()
    expect(console.page.get_by_role("heading", level=1)).to_have_text("Federation")


@pytest.mark.parametrize(("end", "silent_s"), [(BROKEN, 0), (SILENT, 41)], ids=["broken", "silent"])
def test_an_answer_that_breaks_off_is_asked_for_again(console: Console, run_id: str, end: str, silent_s: int) -> None:
    console.page.clock.install()
    console.page.add_init_script(BREAK_OFF.replace("END", end))
    console.open(f"#/runs/{run_id}")
    said = console.page.get_by_text("The gateway's answer broke off. Trying again")
    if silent_s:
        console.eventually(lambda: console.page.evaluate("window.hasBegun"), "half of the answer is there")
        # The page's time goes on in frames only: on a busy machine too the sentence stays long enough to be seen.
        console.page.clock.pause_at(console.page.evaluate("Date.now() / 1000") + silent_s)
        console.eventually(partial(seen_in_a_frame, console, said), "the page says so")
        console.page.clock.resume()
    else:
        expect(said).to_be_visible()
    expect(status(console, "pending")).to_be_visible()


def seen_in_a_frame(console: Console, text: Locator) -> bool:
    """Whether a text is seen after one more frame of a page whose time stands still."""
    console.page.clock.run_for(16)
    return text.is_visible()


@pytest.mark.full
def test_an_overview_follows_a_run(console: Console, run_id: str) -> None:
    console.open()
    card = console.page.get_by_role("article").filter(has=console.page.get_by_role("link", name="test"))
    expect(card).to_contain_text("pending")
    start(console, run_id, 2)
    expect(card).to_contain_text("running")
    expect(card).to_contain_text("2 of 4")
    console.served.federation.run_to_end(run_id)
    row = console.page.get_by_role("row").filter(has=console.page.get_by_role("link", name="test"))
    expect(row).to_contain_text("completed")
    expect(card).to_have_count(0)
    row.get_by_role("link", name="test").click()
    expect(console.page).to_have_url(re.compile(f"#/runs/{run_id}$"))
    expect(status(console, "completed")).to_be_visible()
