"""Whose run a client works on: each creator's in turn, and within one creator each run in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aggregator.presence.turns import MAX_KEPT, Turns
from shared.identity.principals import Principal, current_principal
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import a_document

NUM_HOSTILE = 9


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
