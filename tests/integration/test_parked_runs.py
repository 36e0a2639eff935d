"""A parked run over REST and the command: it says why, whose numbers are the cause and what to do, and can be steered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.command.all_commands import app
from fedplcc.shared.types import RoundPhase, RunStatus
from tests.support.federation.served_gateway import ServedGateway
from tests.support.federation.wedged_runs import store_a_number_of_an_earlier_version, until

SENTENCE = (
    "parked: round 1 cannot go on: losses: 'ce' is 1.7e+308; a number is at most 3.40282e+38 in magnitude; "
    "sent by bob: quarantine the client and resume the run, or stop it"
)


@pytest.fixture
def parked(tmp_path: Path) -> Iterator[tuple[ServedGateway, str]]:
    """A gateway, and a run that an aggregator of this version parked when it took it up."""
    with ServedGateway(tmp_path, limits=Limits(max_open_runs=2)) as served:
        federation = served.federation
        federation.join()
        run_id = served.create()
        run = federation.coordinator.get_run(run_id)
        until(federation, run, RoundPhase.EVALUATING)
        served.stop_aggregator()
        federation.store.close()
        store_a_number_of_an_earlier_version(tmp_path, run_id)
        federation.restart()
        served.start_aggregator()
        federation.run_to_end(run_id)
        yield served, run_id


def steer(served: ServedGateway, run_id: str, action: str, body: Any = None) -> dict[str, Any]:
    answer = served.http.post(f"/v1/runs/{run_id}/{action}", **({} if body is None else {"json": body}))
    assert answer.is_success, answer.text
    document: dict[str, Any] = answer.json()
    return document


def status(served: ServedGateway, run_id: str) -> tuple[str, str]:
    document = served.http.get(f"/v1/runs/{run_id}").json()
    return document["status"], document["reason"]


def test_it_says_why_and_whose_numbers_are_the_cause(parked: tuple[ServedGateway, str]) -> None:
    served, run_id = parked
    assert status(served, run_id) == ("paused", SENTENCE)
    events = served.http.get(f"/v1/runs/{run_id}/events?after=0").json()["events"]
    (event,) = [event for event in events if event["type"] == "run_parked"]
    assert event["data"] == {"reason": SENTENCE, "clients": ["bob"]}
    shown = CliRunner().invoke(app, ["run", "status", run_id, "--gateway", served.url])
    assert "quarantine the client and resume the run" in " ".join(shown.stdout.split())


def test_quarantine_and_resume_let_it_complete(parked: tuple[ServedGateway, str]) -> None:
    served, run_id = parked
    steer(served, run_id, "clients/bob/quarantine", {"reason": "a number without sense"})
    assert steer(served, run_id, "resume")["status"] == "running"
    served.federation.run_to_end(run_id)
    assert status(served, run_id) == ("completed", "")


def test_pause_changes_nothing_and_stop_ends_it(parked: tuple[ServedGateway, str]) -> None:
    served, run_id = parked
    assert steer(served, run_id, "pause")["reason"] == SENTENCE
    steer(served, run_id, "stop", {"reason": "enough"})
    served.federation.run_to_end(run_id)
    assert status(served, run_id) == ("stopped", "enough")


def test_another_run_starts_and_completes_beside_it(parked: tuple[ServedGateway, str]) -> None:
    served, _run_id = parked
    other = served.create()
    assert served.federation.run_to_end(other).status is RunStatus.COMPLETED


def test_one_open_run_too_many_is_refused_with_the_sentence(parked: tuple[ServedGateway, str]) -> None:
    served, run_id = parked
    served.create()
    sections = {
        "run": {"name": "more", "method": "fedavg", "rounds": 1, "clients": ["ann"]},
        "data": {"classes": ["a", "b"]},
    }
    answer = served.http.post("/v1/runs", json=sections)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (429, "TOO_MANY_OPEN_RUNS")
    assert "--max-open-runs" in problem["detail"]
    assert len(served.http.get("/v1/runs").json()["runs"]) == 2
    assert run_id
