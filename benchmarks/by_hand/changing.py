"""A run that changes for a long time: what grows with its rounds, and how soon its page shows something.

A hundred numpy clients, of which one is admitted or retired at random between any two rounds, sometimes forgotten; stages
that a person ends. The coordinator works on a real state directory in this process. Then a real aggregator and a real
gateway serve that directory, and Chromium opens the run's page.
"""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.by_hand.console import REPEATS, page_rows
from benchmarks.support.report import Row, finish, options
from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.shared.errors import InvalidTransition
from fedplcc.shared.steering import AdmitClient, AdvanceStage, RetireClient
from fedplcc.shared.types import RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.records.long_history import clients
from tests.support.screens.browsing import chromium, launched

ROUNDS, QUICK_ROUNDS = 1000, 16
NUM_CLIENTS, QUICK_CLIENTS = 100, 8
STAGES = 20
LINES = 4
"""Lines of the table of what grows."""
FORGOTTEN_SHARE = 0.2
"""Share of the retired clients that are forgotten."""


class _Federation(LocalFederation):
    keep = Keep()


def main() -> None:
    """Run the rounds, and print both tables."""
    arguments = options(__doc__)
    program = chromium()
    if program is None:
        sys.exit("the page is measured in a browser; install Debian's package chromium")
    num_rounds, num_clients = (QUICK_ROUNDS, QUICK_CLIENTS) if arguments.quick else (ROUNDS, NUM_CLIENTS)
    with tempfile.TemporaryDirectory(prefix="fedplcc-changing-") as name:
        folder = Path(name)
        (folder / "state").mkdir()
        run_id, grown = _changed(folder / "state", num_rounds, num_clients)
        with launched(program) as browser:
            pages = page_rows(browser, folder, run_id, repeats=1 if arguments.quick else REPEATS)
        finish("changing", grown, arguments, pages=pages, browser=browser.version)
        finish("changing-pages", [{"page": page, **row} for page, row in pages.items()], arguments)


def _changed(state: Path, num_rounds: int, num_clients: int) -> tuple[str, list[Row]]:
    """Let the run end but for its last rounds; returns its id, and a row for every part of its rounds."""
    rng, rows = random.Random(0), list[Row]()
    with _Federation(state, clients(num_clients), Limits()) as federation:
        federation.clock.now = time.time()
        federation.join()
        names = list(federation.clients)
        run = federation.create(
            "fedmlp",
            run={"name": "changing", "rounds": num_rounds + 10, "clients": names, "cohort_size": num_clients // 10 + 1},
            stream={"stages": STAGES, "advance": "manual"},
        )
        begin, number = time.perf_counter(), 0
        while number <= num_rounds:
            federation.join()
            federation.step()
            now = federation.coordinator.get_run(run.run_id)
            assert now.status is RunStatus.RUNNING, now.reason
            if now.round_number == number:
                continue
            number = now.round_number
            _change(federation, run.run_id, rng.choice(names), rng)
            if number % (num_rounds // STAGES or 1) == 0 and len(now.stage_began) + 1 < STAGES:
                federation.coordinator.steer(run.run_id, AdvanceStage())
            if number % (num_rounds // LINES) == 0:
                federation.coordinator.garbage_collection.collect()
                rows.append(_row(federation, run.run_id, number, time.perf_counter() - begin))
                print(rows[-1], flush=True)
    return run.run_id, rows


def _change(federation: LocalFederation, run_id: str, name: str, rng: random.Random) -> None:
    """Admit a client that is retired, or retire one that is not."""
    retired = federation.coordinator.get_run(run_id).retired.get(name)
    if retired is not None and not retired.is_back:
        federation.coordinator.steer(run_id, AdmitClient(name))
        return
    with suppress(InvalidTransition):  # the round would have nobody left
        federation.coordinator.steer(run_id, RetireClient(name, forgets=rng.random() < FORGOTTEN_SHARE))


def _row(federation: LocalFederation, run_id: str, number: int, seconds: float) -> Row:
    state = federation.folder
    memory = re.search(r"^RssAnon:\s+(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert memory is not None
    database = sum(path.stat().st_size for path in state.glob("aggregator.sqlite*"))
    return {
        "rounds": number,
        "seconds": seconds,
        "memory (MiB)": int(memory[1]) / 1024,
        "blobs": sum(len(os.listdir(each)) for each in (state / "blobs").iterdir()),
        "database a round (KiB)": database / 1024 / number,
        "run's own row (KiB)": len(repr(federation.coordinator.get_run(run_id))) / 1024,
    }


if __name__ == "__main__":
    main()
