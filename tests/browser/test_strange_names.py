"""Text of people and trainers is shown as it was written: never as markup, never over the edge of the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.shared.steering import QuarantineClient, StopRun
from fedplcc.shared.types import ClientProblem
from tests.support.federation.in_process import PassingClock
from tests.support.federation.numpy_client import NumpyClient
from tests.support.federation.served_gateway import ServedGateway
from tests.support.screens.browsing import LIGHT, PHONE, Console, Look

LONG = "n" * 64
"""The longest name of a run, a client and a domain."""
MARKUP = "<img src=x onerror=\"window.wasRun = 'yes'\"><script>window.wasRun = 'yes'</script>"
DISPLAY = "Klinik Köln <b>3</b> הסורק"
HEBREW = "הסורק \u05d0\u05d5\u05e4\u05e1"
CLASSES = [MARKUP, "W" * 128, "شبكة"]
"""Classes may be named with any printable characters, up to 128."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedGateway]:
    people = (NumpyClient(LONG, domain="d" * 64), NumpyClient("0", domain="-".join("ab" * 16)))
    with ServedGateway(tmp_path, people, Limits(lease_heartbeats=150), PassingClock()) as served:
        yield served


@pytest.mark.parametrize("look", [LIGHT, PHONE], ids=str)
def test_names_and_sentences_are_text_and_fit(console: Console, look: Look) -> None:
    federation = console.served.federation
    first, second = federation.clients.values()
    run_id = console.served.create(
        method="fedplcc",
        clients=tuple(federation.clients),
        run={"name": "R" * 64, "rounds": 4},
        data={"classes": CLASSES},
    )
    for client in (first, second):
        counts = dict(zip(CLASSES, client.counts, strict=True))
        named = replace(client.record, class_counts=counts, display_name=DISPLAY)
        federation.coordinator.join(named, client.token)
    while federation.coordinator.get_run(run_id).round_number < 2:
        assert federation.step()
    federation.heartbeat(first, problem=ClientProblem(reason="ODD", detail=MARKUP, hint=HEBREW))
    federation.coordinator.steer(run_id, QuarantineClient(second.client_id, reason=f"{HEBREW} {MARKUP}"))

    for view in (f"#/runs/{run_id}", "#/clients", "#/", "#/start"):
        console.open(view)
        expect(console.page.get_by_text(LONG).first).to_be_visible()
        if view != "#/":
            expect(console.page.get_by_text(DISPLAY).first).to_be_visible()
        assert console.overflow_px() == 0, f"{view} is wider than the window"
    console.open(f"#/runs/{run_id}")
    expect(console.page.get_by_text(MARKUP).first).to_be_visible()
    expect(console.page.get_by_text(HEBREW).first).to_be_visible()
    console.page.get_by_role("button", name="Release …").click()
    expect(console.page.get_by_role("dialog")).to_contain_text(MARKUP)
    console.page.keyboard.press("Escape")

    federation.coordinator.steer(run_id, StopRun(reason=MARKUP))
    federation.run_to_end(run_id)
    expect(console.page.locator(".run-head")).to_contain_text(MARKUP[1:])
    assert console.page.evaluate("window.wasRun") is None
    expect(console.page.locator("main img, main script")).to_have_count(0)
    console.screenshot(f"strange-names-{look}")
