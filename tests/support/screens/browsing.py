"""The console in a real browser: Debian's Chromium, driven by Playwright, on a gateway that is really served.

    def test_a_run_is_shown(console: Console) -> None:
        run_id = console.served.create()
        console.open(f"#/runs/{run_id}")
        expect(console.page.get_by_role("heading", name="test")).to_be_visible()
        console.served.federation.join()
        console.served.federation.step()                       # the numpy clients work when they are told

        assert console.call("lib/format.js", "percent", 0.5) == "50.0 %"     # a pure module, without a page of its own

A page is never trusted to be quiet: a message of the browser's console, an error that nobody caught, a request that failed
and a request to another origin are collected, and fail the test at its end unless it said with `tolerate` that this
belongs to it. Playwright's event loop runs in the thread that started it, where `asyncio.run` fails then: a browser is
closed before a test of another folder begins.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Download,
    Locator,
    Page,
    Request,
    expect,
    sync_playwright,
)

from tests.support import ROOT
from tests.support.federation.served_gateway import ServedGateway

OUTPUT = ROOT / "tests-output" / "browser"
"""Screenshots of every run of the tests, and traces of those that failed; ignored by git."""
NAMES = ("chromium", "chromium-browser", "google-chrome")
WAIT_MS = 60_000
"""Longest that anything on a page may take; a busy machine is slow, and nothing waits longer than it has to."""
PAUSE_MS = 20
ONLY_LOOPBACK = "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A person's view of the console."""

    name: str
    width: int = 1280
    height: int = 800
    is_dark: bool = False
    is_phone: bool = False
    """Touch and a dense screen; the width alone makes no phone."""

    def __str__(self) -> str:
        return self.name

    @property
    def context(self) -> dict[str, Any]:
        """What a browser context gets; the language and the time zone are everybody's, and nothing moves for long."""
        return {
            "locale": "en-GB",
            "timezone_id": "UTC",
            "reduced_motion": "reduce",
            "viewport": {"width": self.width, "height": self.height},
            "color_scheme": "dark" if self.is_dark else "light",
            "has_touch": self.is_phone,
            "is_mobile": self.is_phone,
            "device_scale_factor": 2 if self.is_phone else 1,
        }


LIGHT = Look(name="light")
DARK = Look(name="dark", is_dark=True)
PHONE = Look(name="phone", width=360, height=740, is_phone=True)
DARK_PHONE = Look(name="dark-phone", width=360, height=740, is_phone=True, is_dark=True)
LOOKS = (LIGHT, DARK_PHONE)
"""Every size and every colour once: sizes know no colours, and colours no sizes."""
expect.set_options(timeout=WAIT_MS)
in_every_look = pytest.mark.parametrize(
    "look", [LIGHT, pytest.param(DARK_PHONE, marks=pytest.mark.full)], ids=[str(look) for look in LOOKS]
)
"""Runs a test with `console` once for each of these looks; a test of others parametrises `look` itself."""


def chromium() -> str | None:
    """The browser's program, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def launched(program: str) -> Iterator[Browser]:
    """A browser without a window, which asks nobody but this machine."""
    # Chromium's sandbox refuses root, which is who runs tests in a container.
    arguments = [f"--host-resolver-rules={ONLY_LOOPBACK}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def a_browser() -> Iterator[Browser]:
    """A browser; the test that asks for it is skipped where there is none."""
    program = chromium()
    if program is None:
        pytest.skip(
            f"the tests of the console need a browser: install Debian's package chromium (none of {NAMES} is here)"
        )
    with launched(program) as browser:
        yield browser


class Tab:
    """One tab of a browser on the console, and everything that went wrong in it."""

    def __init__(self, page: Page, origin: str) -> None:
        """Listen to a page that has not opened anything yet.

        Args:
            page: The page.
            origin: Where the browser finds the gateway: http://HOST:PORT, of itself or of a proxy before it.
        """
        self.page, self.origin = page, origin
        self.problems: list[str] = []
        self.requests: list[str] = []
        """Method and path of every request, in order."""
        self.others: list[Tab] = []
        """Tabs opened beside this one."""
        self._tolerated: list[re.Pattern[str]] = []
        page.set_default_timeout(WAIT_MS)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        page.on("request", self._asked)
        page.on("requestfailed", self._failed)

    def open(self, view: str = "#/") -> Self:
        """Load the console with one of its views; `#/runs/ID` and the like, or another path. Returns itself."""
        self.page.goto(f"{self.origin}/{view}", wait_until="load")
        return self

    def blank(self, origin: str = "") -> Self:
        """Show an empty page without a policy, of the gateway's origin or of another one. Returns itself."""
        page = f"{origin or self.origin}/blank"
        self.page.route(page, lambda route: route.fulfill(content_type="text/html", body="<title>blank</title>"))
        self.page.goto(page)
        return self

    def unfold(self, title: str) -> Locator:
        """Open a section of a run's page that folds, once the whole page is drawn; returns the section."""
        expect(self.page.locator(".facts > div")).not_to_have_count(0)  # the last section has what it shows
        heading = self.page.get_by_role("heading", name=title, exact=True)
        fold = self.page.locator("details", has=heading)
        if fold.get_attribute("open") is None:
            heading.click()
        expect(fold).to_have_attribute("open", "")
        return self.page.locator("section", has=heading)

    def sign_in(self, code: str) -> Self:
        """Open the console with a code and wait for the session; before that every call is refused. Returns itself."""
        self.open(f"#code={code}")
        expect(self.page.get_by_role("button", name="Sign out")).to_be_visible()
        return self

    def call(self, module: str, name: str, *arguments: Any) -> Any:
        """What a function that a module of the console exports returns, awaited if it is a promise."""
        return self.within(module, "(module, [name, values]) => module[name](...values)", [name, list(arguments)])

    def within(self, module: str, function: str, argument: Any = None) -> Any:
        """What a JavaScript function of (module, argument) returns; for what does not travel as JSON."""
        if not self.page.url.startswith(self.origin):
            self.page.goto(f"{self.origin}/")
        step = f"async ([path, argument]) => ({function})(await import(path), argument)"
        return self.page.evaluate(step, [f"/console/{module}", argument])

    def tolerate(self, pattern: str) -> None:
        """Say what goes wrong on purpose, as a pattern of a problem's text: `409`, `ERR_CONNECTION_REFUSED`."""
        self._tolerated.append(re.compile(pattern))

    def eventually(self, probe: Callable[[], object], what: str) -> None:
        """Wait until `probe` is true, letting the page's events come meanwhile."""
        for _ in range(WAIT_MS // PAUSE_MS):
            if probe():
                return
            self.page.wait_for_timeout(PAUSE_MS)
        raise AssertionError(f"{what}: not within {WAIT_MS / 1000:.0f} s")

    def download(self, name: str) -> Download:
        """What clicking a link or a button of this name downloads."""
        with self.page.expect_download() as found:
            self.page.get_by_role("link", name=name).or_(self.page.get_by_role("button", name=name)).first.click()
        return found.value

    def screenshot(self, name: str, *, whole: bool = True) -> Path:
        """Keep a picture of the page, or of the part that the window shows, as NAME.png; returns where."""
        path = OUTPUT / f"{name}.png"
        self.page.screenshot(path=path, full_page=whole, animations="disabled", scale="css")
        return path

    def overflow_px(self) -> int:
        """By how many pixels the page is wider than its window; a phone scrolls sideways then."""
        measured = "(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)(document.documentElement)"
        return max(int(self.page.evaluate(measured)), 0)

    def barriers(self, *, within: str | None = None, but_for: tuple[str, ...] = ()) -> list[str]:
        """What keeps people from using the page as it is now, by axe: rule, weight, what is wrong and where.

        All of axe's rules count, the best practices too, but for the ids given. `within` is the selector of a part of the
        page that is looked at alone, such as a dialog on a page that was looked at before.
        """
        rules = {rule: {"enabled": False} for rule in but_for}
        options = {"resultTypes": ["violations"], "rules": rules}
        found = Axe().run(self.page, context=within, options=options).response["violations"]
        return [
            f"{rule['id']} ({rule['impact']}): {rule['help']}: {where['target']}\n    {where['html'][:200]}"
            for rule in found
            for where in rule["nodes"]
        ]

    def unforeseen(self) -> list[str]:
        """What went wrong in this tab and in those opened from it, and was not tolerated."""
        own = [found for found in self.problems if not any(pattern.search(found) for pattern in self._tolerated)]
        return own + [found for tab in self.others for found in tab.unforeseen()]

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self.problems.append(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

    def _asked(self, request: Request) -> None:
        if request.url.startswith(self.origin):
            self.requests.append(f"{request.method} {request.url.removeprefix(self.origin)}")
        elif not request.url.startswith(("data:", "blob:")):
            self.problems.append(f"asked another origin: {request.method} {request.url}")

    def _failed(self, request: Request) -> None:
        # The page itself gives requests up: a stream that it closes, a view that it leaves.
        if request.failure != "net::ERR_ABORTED":
            self.problems.append(f"request failed: {request.method} {request.url}: {request.failure}")


class Console(Tab):
    """A tab on a gateway of this process, whose federation the test drives."""

    def __init__(self, page: Page, served: ServedGateway) -> None:
        super().__init__(page, served.url)
        self.served = served

    def another(self, view: str = "#/") -> Console:
        """A second tab of the same browser."""
        tab = Console(self.page.context.new_page(), self.served)
        tab.origin, tab._tolerated = self.origin, self._tolerated
        self.others.append(tab)
        return tab.open(view)


@contextmanager
def kept_if_failed(context: BrowserContext, tab: Tab, name: str, has_failed: Callable[[], bool]) -> Iterator[None]:
    """Leave a picture and a trace of a failed test, and fail it if its pages did something that nobody foresaw."""
    context.tracing.start(snapshots=True, screenshots=False)
    yield
    unforeseen = tab.unforeseen()
    is_failed = has_failed() or bool(unforeseen)
    if is_failed:
        tab.screenshot(f"failed-{name}")
        print("what went wrong in the page:", *unforeseen or ["nothing"], sep="\n  ")
        print(f"see {OUTPUT}/failed-{name}.png, and with `playwright show-trace` failed-{name}.zip beside it")
    context.tracing.stop(path=OUTPUT / f"failed-{name}.zip" if is_failed else None)
    assert not unforeseen, "\n".join(unforeseen)
