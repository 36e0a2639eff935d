"""Clients that a person admits to a run and retires from it: REST, the command line, and the history."""

from __future__ import annotations

from fedplcc.shared import documents
from fedplcc.shared.types import RunStatus, TaskKind
from tests.support import commands
from tests.support.federation.served_gateway import ServedGateway


def called(served: ServedGateway, *arguments: str) -> tuple[int, str, str]:
    return commands.called("run", *arguments, "--gateway", served.url)


def in_round_1(served: ServedGateway) -> str:
    run_id = served.create()
    served.federation.join()
    ann = served.federation.clients["ann"]
    assert served.federation.perform(ann, served.federation.task(ann)), "ann makes the first model"
    return run_id


def test_a_client_is_retired_in_an_open_round_and_admitted_again(served: ServedGateway) -> None:
    run_id = in_round_1(served)
    bob = served.federation.clients["bob"]
    assert served.federation.task(bob).kind is TaskKind.TRAIN
    code, text, _ = called(served, "client", "retire", run_id, "bob")
    assert (code, f"run {run_id}: fedavg, running" in text) == (0, True)
    found = documents.Run.model_validate_json(served.http.get(f"/v1/runs/{run_id}").content)
    assert found.roster == ["ann", "bob"], "it stays visible"
    assert [(each.client_id, each.round, each.is_forgotten) for each in found.retired] == [("bob", 1, False)]
    waits = served.federation.task(bob)
    assert (waits.kind, waits.detail) == (TaskKind.WAIT, f"run {run_id} has retired this client")
    (dropped,) = served.federation.events(run_id, "client_dropped")
    assert (dropped.client_id, dropped.data["reason"]) == ("bob", "retired")
    code, _, _ = called(served, "client", "admit", run_id, "bob")
    assert code == 0
    assert served.federation.run_to_end(run_id).status is RunStatus.COMPLETED
    cohorts = [event.data["cohort"] for event in served.federation.events(run_id, "round_opened")]
    assert cohorts == [["ann"], ["ann", "bob"], ["ann", "bob"]]
    kinds = ("client_retired", "client_admitted")
    assert [event.client_id for kind in kinds for event in served.federation.events(run_id, kind)] == ["bob", "bob"]


def test_a_forgotten_client_joins_again_and_keeps_nothing_of_the_run(served: ServedGateway) -> None:
    run_id = in_round_1(served)
    assert called(served, "client", "retire", run_id, "bob", "--forget")[0] == 0
    coordinator, bob = served.federation.coordinator, served.federation.clients["bob"]
    (shown,) = [client for client in coordinator.list_clients() if client.client_id == "bob"]
    assert not shown.is_connected, "it has to join again, by which its trainer learns what to delete"
    membership = coordinator.join(shown, bob.token)
    assert run_id not in membership.open_runs
    assert [(each.run_id, each.round) for each in membership.forgotten_runs] == [(run_id, 1)]


def test_the_last_client_stays(served: ServedGateway) -> None:
    run_id = in_round_1(served)
    assert called(served, "client", "retire", run_id, "bob")[0] == 0
    code, _, error = called(served, "client", "retire", run_id, "ann")
    assert code == 1
    assert "without client ann the run has 0 of the 1 clients that a round needs" in error
