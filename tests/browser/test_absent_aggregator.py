"""What the console says while the aggregator is away: one banner everywhere, and nothing old that looks alive."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.screens.browsing import Console

AWAY = "The aggregator does not answer"


@pytest.mark.parametrize("view", ["#/", "#/clients", "#/start"])
def test_one_banner_is_there_while_the_aggregator_is_away(console: Console, view: str) -> None:
    console.tolerate("503|504")
    console.served.federation.join()
    page = console.open(view).page
    expect(page.locator("#health")).to_contain_text("Aggregator ready")
    console.served.stop_aggregator()
    alerts = page.get_by_role("alert").filter(has_text=AWAY)
    expect(alerts).to_have_count(1)
    expect(alerts).to_contain_text("from")
    assert page.evaluate("document.documentElement.dataset.away") == "true"
    console.served.start_aggregator()
    page.get_by_role("button", name="Try now").click()
    expect(alerts).to_have_count(0)
    assert page.evaluate("document.documentElement.dataset.away") is None


def test_the_start_form_does_not_say_that_nobody_has_joined_while_nobody_answers(console: Console) -> None:
    console.tolerate("503|504")
    page = console.open("#/start").page
    expect(page.get_by_text("No client has joined this federation yet.")).to_be_visible()
    console.served.stop_aggregator()
    expect(page.get_by_text("The aggregator does not answer: which clients have joined is not known.")).to_be_visible()
    expect(page.get_by_text("No client has joined this federation yet.")).to_be_hidden()
