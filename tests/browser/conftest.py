"""A browser for the folder, and `console`: a tab on a gateway in front of a federation, each new for every test."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from fedplcc.aggregator.ledger.limits import Limits
from tests.support.federation.in_process import PassingClock
from tests.support.federation.served_gateway import ServedGateway
from tests.support.screens.browsing import LIGHT, Console, Look, Tab, a_browser, kept_if_failed

FAILED = pytest.StashKey[bool]()
RUNNING = pytest.StashKey[tuple[Browser, ExitStack]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Close the browser where a test of another folder comes next, which may run an event loop."""
    try:
        yield
    finally:
        if RUNNING in item.config.stash and (nextitem is None or Path(__file__).parent not in nextitem.path.parents):
            item.config.stash[RUNNING][1].close()
            del item.config.stash[RUNNING]


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Browser:
    """Chromium, as long as tests of this folder run."""
    if RUNNING not in request.config.stash:
        closing = ExitStack()
        request.config.stash[RUNNING] = closing.enter_context(a_browser()), closing
    return request.config.stash[RUNNING][0]


@pytest.fixture(scope="module")
def modules(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A tab in which the console's modules can be called; what they are given is all that they know."""
    with ServedGateway(tmp_path_factory.mktemp("modules"), clock=PassingClock()) as served:
        console = Console(browser.new_page(), served)
        console.blank()
        console.tolerate("favicon")
        yield console
        assert not console.unforeseen()
        console.page.close()


@pytest.fixture
def look() -> Look:
    """How the test looks at the console; parametrise it for others."""
    return LIGHT


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedGateway]:
    """A gateway in front of a federation of the numpy clients ann and bob, which nobody has seen yet.

    Who has joined stays: these clients say nothing while a test looks at a page.
    """
    with ServedGateway(tmp_path, limits=Limits(lease_heartbeats=150), clock=PassingClock()) as served:
        yield served


@pytest.fixture(scope="module")
def served_by_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    """The same, once for a module whose tests keep to runs of their own: it says so with a `served` that returns this."""
    folder = tmp_path_factory.mktemp("federation")
    with ServedGateway(folder, limits=Limits(lease_heartbeats=150), clock=PassingClock()) as served:
        yield served


@pytest.fixture
def console(browser: Browser, served: ServedGateway, look: Look, request: pytest.FixtureRequest) -> Iterator[Console]:
    """A tab that has not opened anything yet. Whatever goes wrong in it fails the test, and a failure leaves a trace."""
    context = browser.new_context(**look.context)
    try:
        console = Console(context.new_page(), served)
        with kept_if_failed(context, console, _name(request), lambda: request.node.stash.get(FAILED, False)):
            yield console
            console.page.unroute_all(behavior="ignoreErrors")  # an answer that a test changes may be on its way
    finally:
        context.close()


@pytest.fixture
def open_tab(browser: Browser, look: Look, request: pytest.FixtureRequest) -> Iterator[Callable[..., Tab]]:
    """Opens a tab on a gateway of the test, by its URL and, if it asks for one, a code; as strict as `console`."""
    with ExitStack() as closing:

        def opened(origin: str, code: str | None = None) -> Tab:
            context = browser.new_context(**look.context)
            closing.callback(context.close)
            tab = Tab(context.new_page(), origin)
            kept = kept_if_failed(context, tab, _name(request), lambda: request.node.stash.get(FAILED, False))
            closing.enter_context(kept)
            return tab.sign_in(code) if code else tab.open()

        yield opened


def _name(request: pytest.FixtureRequest) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", request.node.name.lower()).strip("-")
