"""A sample of the requests of `python -m tests.chaos.complexity`, by the same code; and that it would find a fault."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedplcc.gateway.app import ROUTES
from fedplcc.shared.convert.reading import json_text
from tests.chaos import complexity
from tests.chaos.complexity import Report, Served, examine, rest_cases, rpc_cases
from tests.support import growth

SAMPLE = (
    "POST /v1/runs: body of a key at the end again",
    "POST /v1/run-configuration/check: body of many classes",
    "POST /v1/runs/{run_id}/stop: body of a long text",
    "GET /v1/runs/{run_id}/events: query type again and again",
    "GET /v1/runs/{run_id}: path run_id long of passwords",
    "GET /v1/runs: query no-such-parameter long of passwords",
    "GET /v1/runs/{run_id}: header authorization long of keys",
    "Heartbeat: instance_token",
    "Heartbeat: run_id of passwords",
    "CommitUpdate: run_id of commands",
    "Join: class_counts",
)


def test_the_time_of_a_request_does_not_grow_faster_than_the_request(
    tmp_path: Path, covered: Callable[[str], None]
) -> None:
    report = Report()
    examine(lambda _place, name: name in SAMPLE, report, tmp_path)
    covered(report.text())
    assert report.num_sent == len(SAMPLE)
    assert not report.violations


def test_every_route_and_every_rpc_is_asked(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        names = [case.name for case in (*rest_cases(served, served.create()), *rpc_cases(served, "run"))]
    listed = {f"{method} {route.path}" for route in ROUTES if route.include_in_schema for method in route.methods or ()}
    assert {name.partition(": ")[0] for name in names if "/" in name} == listed
    assert len(names) == len(set(names)) > 300


def test_time_that_grows_with_the_square_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken_s: list[float] = []

    def quadratic(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        taken_s.append((len(pairs) / 1000) ** 2)
        return dict(pairs)

    monkeypatch.setattr(json_text, "_unique", quadratic)
    monkeypatch.setattr(complexity, "CLOCK", lambda: time.process_time() + sum(taken_s))
    monkeypatch.setattr(growth, "ROUNDS", 1)
    report = Report()
    examine(lambda _place, name: name == "POST /v1/run-configuration/check: body of unknown sections", report, tmp_path)
    assert report.violations
