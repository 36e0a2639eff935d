"""Whose run a client works on: each creator's in turn, and within one creator each run in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from fedplcc.aggregator.presence.turns import MAX_KEPT, Turns
from fedplcc.shared.identity.principals import Principal, current_principal
from fedplcc.shared.types import ClientActivity, ClientProblem
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import a_document

NUM_HOSTILE = 9
CANNOT = ClientProblem(
    reason="MALFORMED_UPDATE", detail="3 class counts for 10000 classes", hint="compare data", is_fatal=True
)


@contextmanager
def called_by(key_id: str) -> Iterator[None]:
    token = current_principal.set(Principal(key_id=key_id))
    try:
        yield
    finally:
        current_principal.reset(token)


def begin(federation: LocalFederation, key_id: str, name: str) -> str:
    with called_by(key_id):
        document = a_document("fedavg", run={"rounds": 50, "name": name})
        return federation.coordinator.create_run(f"request {name}", document).run_id


def test_a_key_with_one_run_gets_as_much_work_as_a_key_with_many(federation: LocalFederation) -> None:
    hostile = [begin(federation, "0123456789ab", f"many-{number}") for number in range(NUM_HOSTILE)]
    honest = begin(federation, "ba9876543210", "one")
    for _ in range(60):
        federation.step()
    rounds = {run_id: federation.coordinator.get_run(run_id).round_number for run_id in (*hostile, honest)}
    of_many = [rounds[run_id] for run_id in hostile]
    assert rounds[honest] >= 0.7 * sum(of_many)
    assert max(of_many) - min(of_many) <= 1, "each of a key's runs has its turn"


def test_a_run_whose_task_its_clients_cannot_do_keeps_them_from_no_other_run(federation: LocalFederation) -> None:
    hostile = begin(federation, "0123456789ab", "hostile")
    while federation.coordinator.get_run(hostile).round_number < 1:
        federation.step()
    honest = begin(federation, "ba9876543210", "honest")
    cannot = Counter[str]()
    for _ in range(40):
        for client in federation.clients.values():
            task = federation.task(client)
            if task.run is not None and task.run.run_id == hostile:
                cannot[client.client_id] += 1
                federation.heartbeat(client, run_id=hostile, activity=ClientActivity.TRAINING, problem=CANNOT)
            else:
                federation.perform(client, task)
        while federation.coordinator.work():
            pass
        federation.clock.now += 1
    assert federation.coordinator.get_run(honest).round_number >= 5
    assert max(cannot.values()) > 1, "it is tried again"
    problems = federation.events(hostile, "client_problem")
    assert [event.client_id for event in problems] == list(cannot), "and told once of each client"


def test_turns_forget_what_was_served_longest_ago() -> None:
    turns = Turns()
    for number in range(MAX_KEPT + 1):
        turns.given(f"run-{number}", f"key:{number}")
    assert turns.rank("run-0", "key:0") == (0, 0)
    assert turns.rank("run-1", "key:1") == (2, 2)


def test_the_next_is_of_the_creator_and_then_the_run_that_waited_longest() -> None:
    turns, served = Turns(), Counter[str]()
    runs = {"a1": "a", "a2": "a", "a3": "a", "b1": "b"}
    for _ in range(12):
        name = min(runs, key=lambda run_id: turns.rank(run_id, runs[run_id]))
        served[name] += 1
        turns.given(name, runs[name])
    assert served == {"a1": 2, "a2": 2, "a3": 2, "b1": 6}
