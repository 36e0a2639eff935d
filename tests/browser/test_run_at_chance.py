"""A run that learns nothing says so on its page, with the key that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.federation.guessing_client import GuessingClient
from tests.support.federation.in_process import PassingClock
from tests.support.federation.served_gateway import ServedGateway
from tests.support.screens.browsing import Console, in_every_look


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedGateway]:
    clients = [GuessingClient(name) for name in ("ann", "bob")]
    with ServedGateway(tmp_path, clients, clock=PassingClock()) as served:
        yield served


@in_every_look
def test_a_run_at_chance_says_so_with_the_key_that_mends_it(console: Console) -> None:
    run_id = console.served.create_and_finish(method="fedplcc", run={"rounds": 10})
    (warning,) = console.served.http.get(f"/v1/runs/{run_id}").json()["warnings"]
    assert (warning["kind"], warning["round"]) == ("at_chance", 1)
    assert warning["keys"] == ["training.clip_norm", "training.learning_rate"]
    console.open(f"#/runs/{run_id}")
    banner = console.page.locator(".run-warnings .notice")
    expect(banner).to_contain_text("Mean accuracy is at chance, 33.3% with 3 classes, since round 1")
    expect(banner).to_contain_text("training.clip_norm = 40")
    assert console.barriers() == []
    assert console.overflow_px() <= 0
    console.screenshot(f"at-chance-{console.page.viewport_size and console.page.viewport_size['width']}")
