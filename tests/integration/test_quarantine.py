"""Refused updates and quarantined clients: REST shows them, and a person steers them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fedplcc.shared import documents
from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.types import RunStatus, TaskKind
from tests.support import commands
from tests.support.federation.served_gateway import ServedGateway

WHY = "1 update was refused, the last one because num_excluded = -1: out of range"


def with_a_refused_update(served: ServedGateway, **admission: object) -> str:
    """A run in whose round 1 bob has sent an update that was refused."""
    run_id = served.create(admission=admission)
    federation = served.federation
    federation.join()
    ann, bob = federation.clients["ann"], federation.clients["bob"]
    assert federation.perform(ann, federation.task(ann)), "ann makes the first model"
    task, update, blobs = federation.work(bob)
    with pytest.raises(MalformedUpdate):
        federation.submit(bob, task, replace(update, num_excluded=-1), blobs)
    return run_id


def called(served: ServedGateway, *arguments: str) -> tuple[int, str, str]:
    return commands.called("run", *arguments, "--gateway", served.url)


def run_of(served: ServedGateway, run_id: str) -> dict[str, Any]:
    document: dict[str, Any] = served.http.get(f"/v1/runs/{run_id}").json()
    return document


def test_a_client_whose_update_was_refused_is_named_with_count_reason_and_time(served: ServedGateway) -> None:
    run_id = with_a_refused_update(served)
    found = run_of(served, run_id)
    (refused,) = found["rejections"]
    assert refused == {
        "client_id": "bob",
        "count": 1,
        "reason": "MALFORMED_UPDATE",
        "check": "num_excluded",
        "detail": "num_excluded = -1: out of range",
        "round": 1,
        "last_at": "1970-01-01T00:16:40Z",
    }
    assert found["quarantined"] == []
    events = served.http.get(f"/v1/runs/{run_id}/events?after=0").json()["events"]
    (event,) = [event for event in events if event["type"] == "update_refused"]
    assert (event["client_id"], event["data"]["check"]) == ("bob", "num_excluded")


def test_the_status_says_whose_updates_were_refused_in_a_line(served: ServedGateway) -> None:
    run_id = with_a_refused_update(served)
    code, text, _ = called(served, "status", run_id)
    assert code == 0
    (line,) = [line for line in text.splitlines() if line.startswith("client ")]
    assert line.startswith("client bob: 1 update was refused, the last one at ")
    assert line.endswith(" in round 1: num_excluded = -1: out of range")


def test_a_quarantined_client_is_shown_and_released_by_a_person_and_the_run_ends(served: ServedGateway) -> None:
    run_id = with_a_refused_update(served, quarantine_after=1)
    assert run_of(served, run_id)["quarantined"] == [{"client_id": "bob", "reason": WHY}]
    code, text, _ = called(served, "status", run_id)
    assert code == 0
    assert f"client bob is quarantined: {WHY}; let it in again with: fedplcc run client release {run_id} bob" in text
    bob = served.federation.clients["bob"]
    assert served.federation.task(bob).kind is TaskKind.WAIT
    for _ in range(2):
        code, text, _ = called(served, "client", "release", run_id, "bob", "--json")
        assert code == 0
        found = json.loads(text)
        assert (found["quarantined"], found["rejections"]) == ([], [])
    assert served.federation.task(bob).kind is TaskKind.TRAIN
    (event,) = served.federation.events(run_id, "client_released")
    assert event.client_id == "bob"
    run = served.federation.run_to_end(run_id)
    assert run.status is RunStatus.COMPLETED
    cohorts = [event.data["cohort"] for event in served.federation.events(run_id, "round_opened")]
    assert cohorts == [["ann"], ["ann", "bob"], ["ann", "bob"]]


def test_a_person_quarantines_a_client_and_the_run_goes_on_without_it(served: ServedGateway) -> None:
    run_id = with_a_refused_update(served)
    code, text, _ = called(served, "client", "quarantine", run_id, "bob", "--reason", "broken scanner")
    assert code == 0
    assert f"run {run_id}: fedavg, running" in text
    assert run_of(served, run_id)["quarantined"] == [{"client_id": "bob", "reason": "broken scanner"}]
    waits = served.federation.task(served.federation.clients["bob"])
    assert waits.detail == f"run {run_id} has quarantined this client: broken scanner"
    run = served.federation.run_to_end(run_id)
    assert run.status is RunStatus.COMPLETED
    assert [name for current in served.federation.coordinator.list_rounds(run_id) for name in current.cohort].count(
        "bob"
    ) == 1, "it was asked in round 1 and never after"


@pytest.mark.parametrize("action", ["quarantine", "release", "admit", "retire"])
def test_a_slip_in_an_id_is_refused_with_a_sentence(served: ServedGateway, action: str) -> None:
    run_id = served.create()
    code, out, error = called(served, "client", action, run_id, "bobby")
    assert (code, out) == (1, "")
    assert error == f"fedplcc: run {run_id} has no client 'bobby', and none of that id ever joined\n"
    method = {"admit": "PUT", "retire": "DELETE"}.get(action, "POST")
    for name in ("a b", "x" * 65):
        path = f"/v1/runs/{run_id}/clients/{name}"
        answer = served.http.request(method, path if method != "POST" else f"{path}/{action}")
        problem = documents.Problem.model_validate_json(answer.content)
        assert (answer.status_code, problem.code) == (400, "MALFORMED_REQUEST")
    code, _, error = called(served, "client", action, "nothing-1", "bob")
    assert (code, error) == (1, "fedplcc: there is no run 'nothing-1'\n")


def test_a_run_that_has_ended_takes_none_of_them(served: ServedGateway) -> None:
    run_id = served.create_and_finish()
    nobody = dict.fromkeys(("quarantine", "release", "admit"), "nobody takes part in it")
    for action, why in (nobody | {"retire": "no client comes or goes"}).items():
        code, out, error = called(served, "client", action, run_id, "bob")
        assert (code, out, error) == (1, "", f"fedplcc: the run is completed; {why} any more\n")
