"""Membership: instance tokens, leases, heartbeats, and the events that they leave."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.coordinator.attendance import HOURLY_ANNOUNCED, HOURLY_CHANGES, MAX_ANNOUNCED, MAX_PROBLEMS
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.store.base import Certificate, Invitation
from fedplcc.shared import errors
from fedplcc.shared.types import ClientActivity, ClientProblem, Environment, Event, Heartbeat, Task, TaskKind
from fedplcc.shared.version import VERSION
from tests.support.federation.in_process import Clock, LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.records.builders import a_blob, an_evaluation, an_update


class PassingTime(Clock):
    """A clock that goes on with every look at it."""

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


LEASE_S = Limits().lease_s


def test_a_member_is_told_its_terms(federation: LocalFederation, ann: NumpyClient) -> None:
    membership = federation.coordinator.join(ann.record, ann.token)
    assert (membership.heartbeat_interval_s, membership.lease_s) == (2.0, 10.0)
    assert (membership.max_chunk_bytes, membership.max_blob_bytes) == (1 << 20, 4 << 30)
    assert (membership.version, membership.last_committed) == (VERSION, None)


def test_the_invited_domain_binds(federation: LocalFederation, ann: NumpyClient) -> None:
    invitation = Invitation(
        invitation_id="1",
        secret_sha256="0",
        role="client",
        name="ann",
        domain=ann.record.domain,
        created_at=0,
        expires_at=1,
    )
    with federation.store.transaction() as transaction:
        transaction.save_invitation(replace(invitation, spent_at=1))
        transaction.save_invitation(replace(invitation, invitation_id="2", domain="of-nobody"))  # admitted nobody
    with pytest.raises(errors.IdentityMismatch, match="invited for 'ann-domain'"):
        federation.coordinator.join(replace(ann.record, domain="bob-domain"), ann.token)
    federation.coordinator.join(ann.record, ann.token)
    assert [client.domain for client in federation.coordinator.list_clients()] == ["ann-domain", "bob-domain"]


def test_two_trainers_cannot_claim_one_client_id(federation: LocalFederation, ann: NumpyClient) -> None:
    with pytest.raises(errors.ClientIdTaken, match="another trainer acts for client ann"):
        federation.coordinator.join(ann.record, "another-instance-token")
    assert federation.heartbeat(ann), "the first one is not disturbed"
    assert [event.client_id for event in federation.events("", "client_joined")] == ["ann", "bob"]


def test_the_same_token_joins_again_at_once_without_a_new_entry(federation: LocalFederation, ann: NumpyClient) -> None:
    federation.coordinator.join(ann.record, ann.token)
    assert len(federation.events("", "client_joined")) == 2


def test_a_clients_name_for_people_is_no_other_clients_id(federation: LocalFederation, ann: NumpyClient) -> None:
    with pytest.raises(errors.MalformedRequest, match="display_name: 'bob' is another client's id"):
        federation.coordinator.join(replace(ann.record, display_name="bob"), ann.token)
    federation.coordinator.join(replace(ann.record, display_name="ann"), ann.token)


@pytest.mark.parametrize(("method", "hyper"), [("fedavg", {}), ("fedproto", {}), ("fedproto", {"share_model": False})])
def test_a_run_without_a_roster_takes_in_no_client_that_could_not_take_part(
    federation: LocalFederation, ann: NumpyClient, method: str, hyper: dict[str, Any]
) -> None:
    """A client with its own kind of model would refuse every task of a run that averages models, which would wait for it."""
    federation.coordinator.join(replace(ann.record, model_kind="cnn5"), ann.token)
    document = {**a_document(method, run={"min_clients": 1}), "method": hyper}
    del document["run"]["clients"]
    run = federation.coordinator.create_run("open", document)
    federation.coordinator.tick()
    roster = ("ann", "bob") if hyper else ("bob",)
    assert federation.coordinator.get_run(run.run_id).roster == roster
    (started,) = federation.events(run.run_id, "run_started")
    kinds = {name: entry.get("model_kind") for name, entry in started.data["clients"].items()}
    assert kinds == {name: "cnn5" if name == "ann" else None for name in roster}


def test_joins_without_end_do_not_fill_the_history(federation: LocalFederation, ann: NumpyClient) -> None:
    before = len(federation.events("", "client_joined"))
    for number in range(3 * MAX_ANNOUNCED):
        federation.coordinator.join(replace(ann.record, domain=f"domain-{number}"), ann.token)
    assert len(federation.events("", "client_joined")) - before == MAX_ANNOUNCED - 1


def test_joins_of_many_instances_do_not_fill_the_history_either(federation: LocalFederation, ann: NumpyClient) -> None:
    """A new instance begins to count anew; the client's hour does not."""

    def join(token: str, number: int) -> None:
        federation.coordinator.join(replace(ann.record, domain=f"domain-{number}"), token)

    before = len(federation.events("", "client_joined"))
    for instance in range(5):
        federation.clock.now += LEASE_S + 0.1
        federation.coordinator.tick()
        for number in range(MAX_ANNOUNCED):
            join(f"instance-token-{instance}", number + 100 * instance)
    assert len(federation.events("", "client_joined")) - before == HOURLY_ANNOUNCED - 1
    federation.clock.now += 3600
    join("the-last-instance-token", 1000)
    assert federation.events("", "client_joined")[-1].data["num_left_out"] > 0


def test_a_changed_environment_is_an_event_of_few_words_and_not_without_end(
    federation: LocalFederation, ann: NumpyClient
) -> None:
    runs = [federation.create(run={"name": f"run-{number}"}) for number in range(3)]
    for number in range(2 * MAX_ANNOUNCED):
        packages = {f"{name}-" + "x" * 1000: f"{number}-" + "y" * 1000 for name in range(128)}
        environment = Environment(packages=packages, cpu=f"a processor {number}")
        federation.coordinator.join(replace(ann.record, environment=environment), ann.token)
    for run in runs:
        changes = federation.events(run.run_id, "environment_changed")
        assert len(changes) == HOURLY_CHANGES
        assert all(len(json.dumps(dict(event.data))) < 1024 for event in changes)
        assert changes[1].data["changed"]["cpu"] == ["a processor 0", "a processor 1"]
        assert changes[1].data["num_changed"] == 129


def calls_of_a_trainer(federation: LocalFederation, run_id: str) -> dict[str, Callable[[str, str], object]]:
    coordinator, transfers, blob = federation.coordinator, federation.coordinator.transfers, a_blob()
    return {
        "task": coordinator.task,
        "heartbeat": lambda name, token: coordinator.heartbeat(Heartbeat(client_id=name), token),
        "open_download": lambda name, token: transfers.open_download(name, token, blob.sha256),
        "upload_status": lambda name, token: transfers.upload_status(name, token, run_id, 0, blob),
        "begin_upload": lambda name, token: transfers.begin_upload(name, token, run_id, 0, blob),
        "commit_update": lambda name, token: coordinator.commit_update(name, token, run_id, 0, an_update()),
        "report_evaluation": lambda name, token: coordinator.report_evaluation(name, token, run_id, 0, an_evaluation()),
    }


STRANGERS: dict[tuple[str, str], type[errors.FedplccError]] = {
    ("", "token"): errors.Unauthenticated,
    ("ann", ""): errors.Unauthenticated,
    ("eve", "token"): errors.NotAMember,
    ("ann", "token"): errors.ClientIdTaken,
}


@pytest.mark.parametrize("who", STRANGERS)
@pytest.mark.parametrize(
    "call",
    ["task", "heartbeat", "open_download", "upload_status", "begin_upload", "commit_update", "report_evaluation"],
)
def test_every_call_of_a_stranger_is_refused(federation: LocalFederation, call: str, who: tuple[str, str]) -> None:
    run = federation.create()
    with pytest.raises(STRANGERS[who]):
        calls_of_a_trainer(federation, run.run_id)[call](*who)
    assert federation.coordinator.get_run(run.run_id) == run


def test_a_trainer_that_falls_silent_is_lost_once_its_lease_has_run_out(
    federation: LocalFederation, ann: NumpyClient
) -> None:
    federation.clock.now += LEASE_S - 1
    federation.heartbeat(ann)
    federation.clock.now += 1.1
    federation.coordinator.tick()
    assert [event.client_id for event in federation.events("", "client_lost")] == ["bob"]
    assert federation.metric("clients", state="connected") == 1
    federation.coordinator.tick()
    assert len(federation.events("", "client_lost")) == 1
    with pytest.raises(errors.NotAMember):
        federation.heartbeat(federation.clients["bob"])


def test_a_trainer_that_says_that_it_ends_has_left_and_is_not_lost(
    federation: LocalFederation, ann: NumpyClient
) -> None:
    federation.heartbeat(ann, is_leaving=True)
    federation.heartbeat(federation.clients["bob"], is_leaving=True)
    federation.coordinator.join(federation.clients["bob"].record, federation.clients["bob"].token)
    federation.clock.now += LEASE_S + 1
    federation.coordinator.tick()
    assert [event.client_id for event in federation.events("", "client_left")] == ["ann"]
    assert [event.client_id for event in federation.events("", "client_lost")] == ["bob"], "it came back before"


def test_a_client_whose_certificates_were_all_revoked_is_shown_so(federation: LocalFederation) -> None:
    held = [
        Certificate(
            serial=serial,
            role="client",
            name=name,
            public_key_sha256="0",
            issued_at=0.0,
            not_after=9e9,
            revoked_at=revoked_at,
            pem="",
        )
        for serial, name, revoked_at in (("1", "ann", 1.0), ("2", "bob", 1.0), ("3", "bob", None))
    ]
    with federation.store.transaction() as transaction:
        for certificate in held:
            transaction.save_certificate(certificate)
    shown = {client.client_id: client.is_revoked for client in federation.coordinator.list_clients()}
    assert shown == {"ann": True, "bob": False}


def test_an_open_stream_alone_keeps_no_lease(federation: LocalFederation, ann: NumpyClient) -> None:
    federation.clock.now += LEASE_S
    assert federation.coordinator.task_if_connected("ann", ann.token).kind is TaskKind.WAIT
    with pytest.raises(errors.NotAMember):
        federation.coordinator.task_if_connected("ann", "another-instance-token")
    federation.clock.now += 0.1
    federation.coordinator.tick()
    with pytest.raises(errors.NotAMember):
        federation.coordinator.task_if_connected("ann", ann.token)


def test_when_a_lost_client_was_last_heard_of_is_known_after_a_restart_too(
    federation: LocalFederation, ann: NumpyClient
) -> None:
    federation.clock.now += LEASE_S
    federation.heartbeat(ann)
    heard_of = federation.clock.now
    federation.clock.now += LEASE_S + 1
    federation.coordinator.tick()
    assert federation.coordinator.list_clients()[0].last_seen_at == heard_of
    federation.store.close()
    federation._start()
    assert federation.coordinator.list_clients()[0].last_seen_at == heard_of


# Heartbeats


def test_what_a_heartbeat_says_is_shown_while_the_client_is_connected(
    federation: LocalFederation, ann: NumpyClient
) -> None:
    run = federation.create()
    federation.task(ann)
    said = {
        "activity": ClientActivity.INITIALISING,
        "run_id": run.run_id,
        "round": 0,
        "progress": 0.25,
        "readings": {"loss": 1.5},
    }
    assert federation.heartbeat(ann, **said)
    federation.clock.now += 3
    known, bob = federation.coordinator.list_clients()
    assert {name: getattr(known, name) for name in said} == said
    assert (known.is_connected, known.last_seen_at) == (True, federation.clock.now - 3)
    assert (bob.is_connected, bob.activity) == (True, ClientActivity.IDLE)
    federation.coordinator.tick()
    assert federation.metric("clients", state="initialising") == 1
    assert federation.metric("clients", state="idle") == 1
    federation.clock.now += LEASE_S
    known, _bob = federation.coordinator.list_clients()
    assert (known.is_connected, known.progress, known.readings) == (False, 0.0, {})


@pytest.mark.parametrize(
    ("run_id", "number", "is_wanted"), [("", 1, False), ("other", 1, False), (None, 2, False), (None, 0, True)]
)
def test_work_is_wanted_as_long_as_it_is_the_clients_task(
    federation: LocalFederation, ann: NumpyClient, run_id: str | None, number: int, is_wanted: bool
) -> None:
    run = federation.create()
    named = run.run_id if run_id is None else run_id
    said = federation.heartbeat(ann, activity=ClientActivity.INITIALISING, run_id=named, round=number)
    assert said is is_wanted


def test_work_that_is_done_is_not_wanted_any_more(federation: LocalFederation, ann: NumpyClient) -> None:
    run = federation.create()
    federation.perform(ann, federation.task(ann))
    federation.perform(ann, federation.task(ann))
    assert not federation.heartbeat(ann, activity=ClientActivity.UPLOADING, run_id=run.run_id, round=1)


def test_the_history_is_in_the_order_of_its_times(tmp_path: Path) -> None:
    clients = [NumpyClient("ann"), NumpyClient("bob")]
    with LocalFederation(tmp_path, clients, clock=PassingTime()) as federation:
        run = federation.create()
        federation.join()
        federation.run_to_end(run.run_id)
        times = [event.time for event in federation.events()]
    assert times == sorted(times)


# Problems

PROBLEM = ClientProblem(reason="INVALID_DATA", detail="no images in /data", hint="check the mount", is_fatal=True)


def problems(federation: LocalFederation) -> list[Event]:
    return federation.events("", "client_problem")


def test_a_problem_is_in_the_history_and_with_the_client(federation: LocalFederation, ann: NumpyClient) -> None:
    run = federation.create()
    federation.heartbeat(ann, run_id=run.run_id, round=0, problem=PROBLEM)
    (event,) = problems(federation)
    assert (event.run_id, event.round, event.client_id) == (run.run_id, 0, "ann")
    assert event.data == {
        "reason": "INVALID_DATA",
        "detail": "no images in /data",
        "hint": "check the mount",
        "is_fatal": True,
    }
    assert event in federation.events(run.run_id)
    assert federation.coordinator.list_clients()[0].problem == PROBLEM
    assert federation.metric("client_problems_total") == 1


def test_a_problem_of_a_client_outside_the_roster_is_in_no_history_of_a_run(federation: LocalFederation) -> None:
    run = federation.create()
    eve = NumpyClient("eve")
    federation.coordinator.join(eve.record, eve.token)
    federation.heartbeat(eve, run_id=run.run_id, round=0, problem=PROBLEM)
    (event,) = problems(federation)
    assert (event.run_id, event.client_id) == ("", "eve")
    assert all(event.client_id != "eve" for event in federation.events(run.run_id))


def test_a_problem_that_is_said_again_is_one_problem(federation: LocalFederation, ann: NumpyClient) -> None:
    for _ in range(3):
        federation.heartbeat(ann, problem=PROBLEM)
    assert len(problems(federation)) == 1
    federation.heartbeat(ann, problem=replace(PROBLEM, detail="still none"))
    assert [event.data["detail"] for event in problems(federation)] == ["no images in /data", "still none"]


def test_problems_without_end_do_not_fill_the_history(federation: LocalFederation, ann: NumpyClient) -> None:
    def report(count: int) -> None:
        for number in range(count):
            federation.heartbeat(ann, problem=replace(PROBLEM, detail=f"problem {number}"))

    report(MAX_PROBLEMS)
    federation.coordinator.join(ann.record, ann.token)
    report(5)
    assert len(problems(federation)) == MAX_PROBLEMS
    assert federation.coordinator.list_clients()[0].problem == replace(PROBLEM, detail="problem 4"), "it is still shown"
    assert federation.metric("client_problems_total") == MAX_PROBLEMS + 5, "and counted"
    federation.create()
    federation.perform(ann, federation.task(ann))
    report(1)
    assert len(problems(federation)) == MAX_PROBLEMS + 1, "who works again is heard again"


def test_a_problem_outlives_the_connection_and_ends_when_the_client_joins_again(
    federation: LocalFederation, ann: NumpyClient
) -> None:
    federation.heartbeat(ann, problem=PROBLEM)
    federation.clock.now += LEASE_S + 1
    federation.coordinator.tick()
    assert federation.coordinator.list_clients()[0].problem == PROBLEM
    federation.coordinator.join(ann.record, ann.token)
    assert federation.coordinator.list_clients()[0].problem is None


def test_those_who_subscribe_hear_of_every_change_and_whose_task_changed(
    federation: LocalFederation, ann: NumpyClient
) -> None:
    heard: list[Collection[str]] = []
    federation.coordinator.subscribe(lambda tasks_of, _runs: heard.append(tasks_of))
    run = federation.create()
    assert heard == [{"ann", "bob"}], "the run started"
    federation.heartbeat(ann, problem=PROBLEM)
    assert not heard.pop()
    federation.perform(ann, federation.task(ann))
    assert heard.pop() == {"ann", "bob"}, "round 1 opened"
    task: Task = federation.task(ann)
    federation.perform(ann, task)
    assert not heard.pop(), "a client's own update asks nothing of anybody"
    federation.perform(federation.clients["bob"], federation.task(federation.clients["bob"]))
    assert heard.pop() == {"ann", "bob"}, "the round aggregates"
    assert federation.coordinator.get_run(run.run_id).round_number == 1


def test_a_client_that_is_done_in_one_run_is_told_at_once_that_another_wants_it(
    federation: LocalFederation, ann: NumpyClient
) -> None:
    federation.create()
    federation.perform(ann, federation.task(ann))
    training = federation.task(ann)
    second = federation.create(run={"name": "second"})
    assert federation.task(ann).key == training.key, "one task at a time"
    heard: list[Collection[str]] = []
    federation.coordinator.subscribe(lambda tasks_of, _runs: heard.append(tasks_of))
    federation.perform(ann, training)
    assert heard == [{"ann"}], "bob's update is waited for, but the other run needs its first model"
    assert federation.task(ann).key == (second.run_id, 0, TaskKind.INIT, 0)


def test_a_disk_that_cannot_be_read_for_the_metrics_keeps_nobody_waiting(
    federation: LocalFederation, ann: NumpyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = federation.clients["bob"]
    run = federation.create(run={"rounds": 2})
    federation.step()
    federation.step()
    while federation.task(ann).kind is not TaskKind.EVALUATE:
        federation.step()
    federation.perform(ann, federation.task(ann))
    report = federation.task(bob)
    heard: list[Collection[str]] = []
    federation.coordinator.subscribe(lambda tasks_of, _runs: heard.append(tasks_of))

    def unreadable(*_arguments: object, **_named: object) -> None:
        raise OSError("the disk cannot be read")

    monkeypatch.setattr(federation.metrics.runs, "committed", unreadable)
    federation.perform(bob, report)
    assert heard == [{"ann", "bob"}]
    assert federation.coordinator.get_run(run.run_id).round_number == report.round + 1


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "whoever comes"])
def test_run_json_has_every_client_also_those_whose_joining_admits_them(tmp_path: Path, is_named: bool) -> None:
    with LocalFederation.small(tmp_path / "state") as federation:
        document = a_document("fedavg", tuple(federation.clients))
        if not is_named:
            del document["run"]["clients"]
            document["run"]["min_clients"] = 1
        run = federation.coordinator.create_run("the run", document)
        federation.join()
        run = federation.run_to_end(run.run_id)
        entries = federation.coordinator.manifest(run)["clients"]
        assert {name: entry["num_examples"] for name, entry in entries.items()} == {
            name: client.record.num_examples for name, client in federation.clients.items()
        }


def test_a_lease_that_is_ended_frees_the_name_at_once(federation: LocalFederation, ann: NumpyClient) -> None:
    federation.coordinator.leases.end("ann")
    assert [event.client_id for event in federation.events("", "client_lost")] == ["ann"]
    with pytest.raises(errors.NotAMember):
        federation.heartbeat(ann)
    federation.coordinator.join(ann.record, "another instance")
    federation.coordinator.leases.end("nobody")
    assert len(federation.events("", "client_lost")) == 1
