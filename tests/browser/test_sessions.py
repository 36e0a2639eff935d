"""The console and its session: it ends in an open page, it is opened again, and a person signs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.federation.served_gateway import ServedGateway
from tests.support.identity.keyed_federation import Keyed
from tests.support.screens.browsing import PHONE, Tab


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with Keyed(tmp_path_factory.mktemp("keyed")) as federation:
        federation.begin()
        yield federation


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    yield context
    context.close()


def signed_in(context: BrowserContext, keyed: Keyed) -> Page:
    page = context.new_page()
    page.goto(f"{keyed.gateway_url}/#code={keyed.code()}")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    return page


def test_a_link_with_a_code_replaces_no_session_without_asking(context: BrowserContext, keyed: Keyed) -> None:
    signed_in(context, keyed)
    before = context.cookies()
    page = context.new_page()
    page.goto(f"{keyed.gateway_url}/#code={keyed.code()}")
    expect(page.get_by_role("dialog")).to_contain_text("You are signed in by owner")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    assert context.cookies() == before
    page.goto("about:blank")
    page.goto(f"{keyed.gateway_url}/#code={keyed.code()}")
    page.get_by_role("button", name="Sign in anew").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    assert context.cookies() != before


@pytest.mark.full
def test_the_way_out_takes_no_line_of_its_own_on_a_phone(browser: Browser, keyed: Keyed) -> None:
    context = browser.new_context(**PHONE.context)
    page = signed_in(context, keyed)
    expect(page.locator("#health")).to_contain_text("Aggregator ready")
    boxes = [part.bounding_box() for part in (page.locator(".brand img"), page.get_by_role("button", name="Sign out"))]
    context.close()
    mark, way_out = (box for box in boxes if box is not None)
    middle = mark["y"] + mark["height"] / 2
    assert way_out["y"] < middle < way_out["y"] + way_out["height"]
    assert way_out["x"] + way_out["width"] <= PHONE.width


def revoke_sessions(keyed: Keyed) -> None:
    for line in keyed.owner("key", "list").splitlines():
        key_id, kind, *_ = line.split()
        if kind == "session":
            keyed.owner("key", "revoke", key_id)


def test_a_session_that_ends_in_an_open_form_is_opened_again_and_nothing_typed_is_lost(
    context: BrowserContext, keyed: Keyed
) -> None:
    page = signed_in(context, keyed)
    page.goto(f"{keyed.gateway_url}/#/start")
    rounds = page.get_by_label("Rounds", exact=True).first
    rounds.fill("37")
    revoke_sessions(keyed)
    expect(page.locator("#bars")).to_contain_text("Your session has ended", timeout=30_000)
    expect(page.get_by_role("button", name="Sign out")).to_be_hidden()
    expect(rounds).to_have_value("37")
    page.get_by_label("Address or code").fill("nonsense")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#bars")).to_contain_text("This is no code")
    page.get_by_label("Address or code").fill("x" * 43)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#bars")).to_contain_text("has been used or has ended")
    page.get_by_label("Address or code").fill(f"{keyed.gateway_url}/#code={keyed.code()}")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#bars")).to_be_empty()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    expect(rounds).to_have_value("37")


@pytest.mark.full
def test_a_session_that_begins_in_another_tab_serves_this_one_too(context: BrowserContext, keyed: Keyed) -> None:
    first = signed_in(context, keyed)
    revoke_sessions(keyed)
    expect(first.locator("#bars")).to_contain_text("Your session has ended", timeout=30_000)
    signed_in(context, keyed)
    expect(first.locator("#bars")).to_be_empty(timeout=30_000)


def test_who_signs_out_is_out_in_every_tab_and_leaves_nothing_typed(context: BrowserContext, keyed: Keyed) -> None:
    page, other = signed_in(context, keyed), context.new_page()
    other.goto(f"{keyed.gateway_url}/#/")
    expect(other.get_by_role("button", name="Sign out")).to_be_visible()
    page.goto(f"{keyed.gateway_url}/#/start")
    page.get_by_label("Rounds", exact=True).first.fill("37")
    with page.expect_response("**/v1/session/end") as ended:
        page.get_by_role("button", name="Sign out").click()
    assert ended.value.status == 204
    expect(page.locator("#bars")).to_contain_text("Sign in to use the console")
    assert context.cookies() == []
    assert page.evaluate("sessionStorage.length") == 0
    expect(other.locator("#bars")).to_contain_text("Your session has ended", timeout=30_000)


def test_an_address_that_is_pasted_into_an_open_tab_signs_in_and_the_page_stays(
    context: BrowserContext, keyed: Keyed
) -> None:
    page = context.new_page()
    page.goto(f"{keyed.gateway_url}/#/clients")
    expect(page.locator("#bars")).to_contain_text("Sign in to use the console")
    code = keyed.code()
    page.goto(f"{keyed.gateway_url}/#code={code}")  # as a person types it: only what follows # changes
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    expect(page.locator("#bars")).to_be_empty()
    assert page.url == f"{keyed.gateway_url}/#/clients"
    expect(page.get_by_role("heading", name="Clients")).to_be_visible()
    main = page.locator("main")
    for line in ("fedplcc invite NAME", "fedplcc join", "fedplcc trainer --data folder:PATH"):
        expect(main).to_contain_text(line)
    expect(main).not_to_contain_text("--insecure")


@pytest.mark.parametrize("view", ["#/", "#/clients", "#/runs/digits-1"])
def test_a_tab_that_nobody_signed_in_to_asks_once_and_not_again_and_again(
    context: BrowserContext, keyed: Keyed, view: str
) -> None:
    page = context.new_page()
    page.clock.install()
    refused: list[str] = []
    page.on("response", lambda answer: refused.append(answer.url) if answer.status == 401 else None)
    page.goto(f"{keyed.gateway_url}/{view}")
    expect(page.locator("#bars")).to_contain_text("Sign in to use the console")
    page.clock.run_for(1000)
    page.wait_for_load_state("networkidle")
    before = len(refused)
    assert before > 0
    for _ in range(60):
        page.clock.run_for(1000)
    assert refused[before:] == []
    page.get_by_label("Address or code").fill(keyed.code())
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#bars")).to_be_empty()


@pytest.mark.full
def test_a_federation_that_is_open_to_a_network_says_so_on_every_page(
    served: ServedGateway, open_tab: Callable[[str], Tab]
) -> None:
    for host, is_exposed in (("127.0.0.1", False), ("0.0.0.0", True)):
        served.stop()
        served.settings = served.settings.model_copy(update={"host": host})
        served.start()
        tab = open_tab(served.url.replace("0.0.0.0", "127.0.0.1"))
        expect(tab.page.locator("#health")).to_contain_text("Aggregator ready")
        bar = tab.page.locator("#bars")
        if is_exposed:
            expect(bar).to_contain_text("Anyone may steer this federation")
            tab.page.goto(f"{tab.page.url.partition('#')[0]}#/clients")
            expect(bar).to_contain_text("--insecure")
        else:
            expect(bar).to_be_empty()
        expect(tab.page.get_by_role("button", name="Sign out")).to_be_hidden()
        # The page reads on: modules of other views, and the list of runs every few seconds.
        tab.page.goto("about:blank")
