"""Lists of many past runs at the REST interface, and the deletion of one.

A real aggregator and a real gateway on loopback, on a state directory with thousands of runs that have ended. Each question
is asked again and again; the whole list is read page by page. The deleted run shares its blobs with all others but one.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx

from benchmarks.support.processes import aggregator, gateway
from benchmarks.support.report import Row, finish, options
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.types import Run, RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import a_document
from tests.support.records.long_history import clients

RUNS, CLIENTS, ROUNDS = 5000, 20, 5
REPEATS = 15
GOAL_S = 0.3
QUESTIONS = {
    "newest 20": "page_size=20",
    "newest 200": "page_size=200",
    "open": "status=pending&status=running&status=paused&page_size=200",
    "failed": "status=failed&page_size=50",
    "part of a name": "name=run-49&page_size=50",
    "name of none": "name=nothing&page_size=50",
    "a tag": "tag=kept&page_size=50",
    "by name": "order=name&page_size=50",
    "last changed": "order=updated&page_size=50",
    "everything": "show=all&page_size=50",
}
ENDINGS = (RunStatus.COMPLETED, RunStatus.COMPLETED, RunStatus.STOPPED, RunStatus.FAILED)


def main() -> None:
    """Measure every question."""
    arguments = options(__doc__)
    number = RUNS // 100 if arguments.quick else RUNS
    with tempfile.TemporaryDirectory(prefix="fedplcc-benchmark-") as name:
        folder = Path(name)
        (folder / "state").mkdir()
        last = with_past_runs(folder / "state", number)
        with (
            aggregator(folder, plain=True) as (served, _pid),
            gateway(folder, served) as url,
            httpx.Client(base_url=url, timeout=120) as there,
        ):
            there.patch(f"/v1/runs/{last}", json={"tags": ["kept"]})
            rows = [_asked(there, question, f"/v1/runs?{query}") for question, query in QUESTIONS.items()]
            rows.append(_whole_list(there))
            rows.append(_measured("one run", lambda: there.get(f"/v1/runs/{last}").raise_for_status()))
            for what, run_id in (("delete one, just started", last), ("delete another", f"run-{number - 2}")):
                began = time.perf_counter()
                if there.delete(f"/v1/runs/{run_id}").is_success:
                    rows.append({"question": what, "median (ms)": 1000 * (time.perf_counter() - began)})
    finish("past_runs", rows, arguments, runs=number, clients=CLIENTS, rounds=ROUNDS)


def with_past_runs(state: Path, number: int, num_clients: int = CLIENTS) -> str:
    """Make a state directory with so many runs that have ended; return the id of the newest."""
    with LocalFederation(state, clients(num_clients)) as federation:
        federation.clock.now = time.time() - 10.0 * number
        federation.join()
        document = a_document("fedplcc", clients=tuple(federation.clients), run={"name": "run-0", "rounds": ROUNDS})
        first = federation.run_to_end(federation.coordinator.create_run("request", document).run_id)
        for begin in range(1, number, 200):
            _copies(federation.store, first, range(begin, min(begin + 200, number)))
    return f"run-{number - 1}"


def _copies(store: SqlStore, first: Run, numbers: range) -> None:
    rounds = store.list_rounds(first.run_id)
    with store.transaction() as transaction:
        for index in numbers:
            run = replace(
                first,
                run_id=f"run-{index}",
                name=f"run-{index}",
                status=ENDINGS[index % len(ENDINGS)],
                created_at=first.created_at + 10.0 * index,
                updated_at=first.updated_at + 10.0 * index,
            )
            transaction.add_run(run, request_id=f"request {index}", request_hash="")
            for current in rounds:
                transaction.save_run(replace(run, current_round=current))


def _asked(there: httpx.Client, question: str, path: str) -> Row:
    return _measured(question, lambda: there.get(path).raise_for_status())


def _measured(question: str, ask: Callable[[], httpx.Response]) -> Row:
    seconds, size = [], 0
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        size = len(ask().content)
        seconds.append(time.perf_counter() - began)
    median = statistics.median(seconds[1:])
    return {
        "question": question,
        "median (ms)": 1000 * median,
        "slowest (ms)": 1000 * max(seconds[1:]),
        "KiB": size / 1024,
        "goal": f"<= {GOAL_S:g} s",
        "reached": median <= GOAL_S,
    }


def _whole_list(there: httpx.Client) -> Row:
    """Every run, in pages of 200."""
    began, token, pages, slowest = time.perf_counter(), "", 0, 0.0
    while token is not None:
        asked = time.perf_counter()
        page = there.get("/v1/runs", params={"page_size": 200, **({"page_token": token} if token else {})}).json()
        slowest = max(slowest, time.perf_counter() - asked)
        token, pages = page["next_page_token"], pages + 1
    seconds = time.perf_counter() - began
    return {"question": f"all in {pages} pages", "median (ms)": 1000 * seconds, "slowest (ms)": 1000 * slowest}


if __name__ == "__main__":
    main()
