"""Time until the console shows something, and the cost of a long history.

A real aggregator and a real gateway on loopback, and Chromium without a window. A page's clock starts when the browser is
told to go there, and stops at the first frame with the thing that the page is for: a run among the open ones, or a curve of
a run's accuracy. Cold is a browser that has never seen the console, warm one that comes back to it. Beside them: the main
thread's work until the page has been quiet for a while, and how many elements it has.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, CDPSession, Page

from benchmarks.by_hand.past_runs import with_past_runs
from benchmarks.support.processes import aggregator, gateway
from benchmarks.support.report import Row, finish, options
from tests.support.records.long_history import with_long_history
from tests.support.screens.browsing import LIGHT, chromium, launched

CASES = ((4, 50), (100, 50), (4, 1000))
"""Clients and rounds of the run that is shown; each round of n clients has 2 n + 4 events."""
REPEATS = 5
GOAL_S = 1.0
QUIET_S = 0.5
"""How long nothing is drawn anew before a page counts as drawn."""
OVERVIEW = "main a[href^='#/runs/']"
COMPARED = "section[aria-labelledby=compare-curves] .chart-line"
PAST_CLIENTS = 200
PAST = "section[aria-labelledby=past-runs] th a"
CURVE = "section[aria-labelledby=accuracy-heading] .chart-line"
WATCH = """
(selector) => {
  window.seen = new Promise((resolve) => {
    const look = () => {
      if (document.querySelector(selector)?.getClientRects().length) resolve(performance.now());
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
}
"""
"""Promises the first frame with an element of the selector, in milliseconds since the browser was told to go there."""


@dataclass(frozen=True, slots=True)
class View:
    """One load of a page."""

    seen_s: float
    work_s: float
    num_elements: int


def main() -> None:
    """Measure every case."""
    arguments = options(__doc__, _flags)
    program = chromium()
    if program is None:
        sys.exit("the console is measured in a browser; install Debian's package chromium")
    cases = ((2, 5),) if arguments.quick else CASES
    repeats = 1 if arguments.quick else REPEATS
    with launched(program) as browser:
        if arguments.past:
            rows = _of_past_runs(browser, arguments.past, repeats=repeats)
        else:
            rows = [row for case in cases for row in _measured(browser, *case, repeats=repeats)]
        finish("console_past" if arguments.past else "console", rows, arguments, browser=browser.version)


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--past", type=int, help=f"past runs of {PAST_CLIENTS} clients, five of which are compared")


def _of_past_runs(browser: Browser, number: int, *, repeats: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="fedplcc-benchmark-") as name:
        (Path(name) / "state").mkdir()
        with_past_runs(Path(name) / "state", number, PAST_CLIENTS)
        names = "&".join(f"run=run-{number - 1 - index}" for index in range(5))
        pages = {"overview": ("", PAST), "comparison": (f"#/runs/compare?{names}", COMPARED)}
        rows = _rows(browser, Path(name), pages, repeats=repeats)
    return [{"page": page, "past runs": number, "clients": PAST_CLIENTS, **row} for page, row in rows.items()]


def _measured(browser: Browser, num_clients: int, num_rounds: int, *, repeats: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="fedplcc-benchmark-") as name:
        folder = Path(name)
        state = folder / "state"
        state.mkdir()
        run_id = with_long_history(state, num_clients=num_clients, num_rounds=num_rounds, now=time.time())
        size = {"clients": num_clients, "rounds": num_rounds, "events": (2 * num_clients + 4) * num_rounds}
        return [
            {"page": page, **size, **row} for page, row in page_rows(browser, folder, run_id, repeats=repeats).items()
        ]


def page_rows(browser: Browser, folder: Path, run_id: str, *, repeats: int) -> dict[str, Row]:
    """Measure the overview and a run's page, of an aggregator on FOLDER/state that has not started; by page."""
    pages = {"overview": ("", OVERVIEW), "run": (f"#/runs/{run_id}", CURVE)}
    return _rows(browser, folder, pages, repeats=repeats)


def _rows(browser: Browser, folder: Path, pages: dict[str, tuple[str, str]], *, repeats: int) -> dict[str, Row]:
    with aggregator(folder, plain=True) as (served, _pid), gateway(folder, served) as url:
        views: dict[str, list[tuple[View, View]]] = {page: [] for page in pages}
        for _ in range(repeats):  # pages in turn: what else the machine does, it does to all
            for page, (place, selector) in pages.items():
                views[page].append(_pair(browser, f"{url}/{place}", selector))
        return {page: _row(*zip(*pairs, strict=True)) for page, pairs in views.items()}


def _pair(browser: Browser, url: str, selector: str) -> tuple[View, View]:
    """A cold and a warm load, in a browser context of their own."""
    context = browser.new_context(**LIGHT.context)
    try:
        return _view(context, url, selector), _view(context, url, selector)
    finally:
        context.close()


def _view(context: BrowserContext, url: str, selector: str) -> View:
    page = context.new_page()
    page.add_init_script(f"({WATCH})({selector!r})")
    devtools = context.new_cdp_session(page)
    devtools.send("Performance.enable")
    page.goto(url)
    page.locator(selector).first.wait_for()  # ends in time if it never comes, unlike the promise
    seen_ms = page.evaluate("window.seen")
    work_s = _settled_work_s(page, devtools)
    num_elements = page.evaluate("document.querySelectorAll('*').length")
    page.close()
    return View(seen_ms / 1000, work_s, num_elements)


def _settled_work_s(page: Page, devtools: CDPSession) -> float:
    """Seconds that the main thread has worked, once it has done nothing of note for a while."""
    before = -1.0
    while (now := _work_s(devtools)) - before > 0.01:
        before = now
        page.wait_for_timeout(QUIET_S * 1000)
    return now


def _work_s(devtools: CDPSession) -> float:
    metrics = {entry["name"]: entry["value"] for entry in devtools.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


def _row(cold: Sequence[View], warm: Sequence[View]) -> Row:
    first = statistics.median(view.seen_s for view in cold)
    return {
        "first view, cold (s)": first,
        "slowest, cold (s)": max(view.seen_s for view in cold),
        "first view, warm (s)": statistics.median(view.seen_s for view in warm),
        "main thread, cold (s)": statistics.median(view.work_s for view in cold),
        "elements": max(view.num_elements for view in cold),
        "goal": f"<= {GOAL_S:g} s",
        "reached": first <= GOAL_S,
    }


if __name__ == "__main__":
    main()
