"""Nobody is kept out of the console: axe finds nothing in any state of any page, in light, and on a phone in the dark, and
no page is wider than its window.

One test goes through every scene in one look, so that a federation is set up once for each look. Pictures of all scenes are
left in tests-output/browser for a person to look at.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from playwright.sync_api import Locator, expect

from fedplcc.shared.steering import PauseRun, QuarantineClient, ReleaseClient, ResumeRun, StopRun
from fedplcc.shared.types import ClientActivity, ClientProblem
from tests.support.screens.browsing import Console, Look, in_every_look

PROBLEM = ClientProblem(
    reason="DATA_UNREADABLE",
    detail="3 of 500 images cannot be read, the first of them /data/ward-3/scan-0017.png",
    hint="see that the trainer may read the folder, and start it again",
)


@dataclass
class Tour:
    """A federation in which everything is to be seen, and a tab that walks through it."""

    console: Console
    look: Look
    barriers: list[str]

    def scene(self, name: str, *there: Locator, within: str | None = None) -> None:
        """Look at the page as it is now, or at a part of it, when all of `there` can be seen."""
        for part in there:
            expect(part.first).to_be_visible()
        self.console.screenshot(f"{name}-{self.look}", whole=within is None)
        self.barriers += [f"{name}: {found}" for found in self.console.barriers(within=within)]
        if wider := self.console.overflow_px():
            self.barriers.append(f"{name}: {wider} px wider than the window")

    def status(self, name: str) -> Locator:
        return self.console.page.locator(".run-head .badge").get_by_text(name, exact=True)

    def button(self, name: str) -> Locator:
        return self.console.page.get_by_role("button", name=name)

    def dialog(self, name: str, button: str) -> None:
        """Look at the dialog behind a button, on a page that was looked at; it is left as it was opened."""
        self.button(button).first.click()
        self.scene(f"dialog-{name}", self.console.page.get_by_role("dialog"), within="dialog")
        self.console.page.keyboard.press("Escape")


pytestmark = pytest.mark.slow


@in_every_look
def test_no_page_and_no_state_of_it_keeps_anybody_out(console: Console, look: Look) -> None:
    tour = Tour(console, look, [])
    for part in (_beginning, _working, _ends, _refusals):
        part(tour)
    assert not tour.barriers, "\n".join(tour.barriers)


def _beginning(tour: Tour) -> None:
    """Before anything has happened."""
    console = tour.console
    tour.scene("overview-empty", console.open().page.get_by_role("heading", name="Federation"))
    tour.scene("clients-empty", console.open("#/clients").page.get_by_role("heading", name="Clients"))
    run_id = console.served.create(method="fedplcc", run={"name": "first", "rounds": 4})
    console.open(f"#/runs/{run_id}")
    tour.scene("run-pending", tour.status("pending"), console.page.get_by_text("Waiting for ann and bob to connect."))


def _working(tour: Tour) -> None:
    """A run in its middle, with everything that can be wrong with its clients."""
    console, federation = tour.console, tour.console.served.federation
    (run,) = federation.coordinator.list_runs(limit=10)
    federation.join()
    while federation.coordinator.get_run(run.run_id).round_number < 3:
        federation.step()
    ann, bob = federation.clients.values()
    federation.heartbeat(ann, activity=ClientActivity.TRAINING, run_id=run.run_id, round=3, progress=0.4)
    federation.heartbeat(bob, run_id=run.run_id, round=3, problem=PROBLEM)
    console.open(f"#/runs/{run.run_id}")
    tour.scene("run", tour.status("running"), console.page.get_by_text(PROBLEM.hint))
    tour.dialog("pause", "Pause …")
    tour.dialog("stop", "Stop …")
    tour.dialog("quarantine", "Quarantine …")
    federation.coordinator.steer(run.run_id, QuarantineClient("bob", reason="its scanner is being repaired"))
    release = tour.button("Release …")
    tour.scene("run-quarantine", release, console.page.get_by_text("its scanner is being repaired"))
    tour.dialog("release", "Release …")
    tour.scene("clients", console.open("#/clients").page.get_by_text(PROBLEM.hint))
    tour.scene("start", console.open("#/start").page.get_by_role("checkbox").first)
    tour.scene("overview", console.open().page.get_by_role("link", name="first"))
    federation.coordinator.steer(run.run_id, PauseRun(now=True))
    console.open(f"#/runs/{run.run_id}")
    tour.scene("run-paused", tour.status("paused"))
    tour.dialog("resume", "Resume …")


def _ends(tour: Tour) -> None:
    """Runs that have ended."""
    console, federation = tour.console, tour.console.served.federation
    (run,) = federation.coordinator.list_runs(limit=10)
    federation.coordinator.steer(run.run_id, ReleaseClient("bob"))
    federation.coordinator.steer(run.run_id, ResumeRun())
    console.open(f"#/runs/{run.run_id}")
    federation.run_to_end(run.run_id)
    tour.scene("run-completed", tour.status("completed"))
    stopped = console.served.create(run={"name": "second", "rounds": 4})
    federation.coordinator.steer(stopped, StopRun(reason="a wrong learning rate"))
    federation.run_to_end(stopped)
    console.open(f"#/runs/{stopped}")
    tour.scene("run-stopped", tour.status("stopped"), console.page.get_by_text("wrong learning rate"))


def _refusals(tour: Tour) -> None:
    """What is not there, and who does not answer."""
    console = tour.console
    console.tolerate("status of 404|status of 503|ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING")
    tour.scene("run-unknown", console.open("#/runs/unknown").page.get_by_role("heading", name="There is no such run"))
    tour.scene("nowhere", console.open("#/nowhere").page.get_by_role("heading", name="There is no such page"))
    lost = console.served.create(run={"name": "third", "rounds": 4})
    console.open(f"#/runs/{lost}")
    expect(tour.status("running")).to_be_visible()
    console.served.stop()
    tour.scene("run-lost", console.page.get_by_text("connection lost"))
    console.served.start()
