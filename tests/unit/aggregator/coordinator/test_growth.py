"""A client's weight in a run is bound to the samples with which the run took it in."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedplcc.aggregator.histories.taken_in import FREE, GROWTH
from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.steering import AdmitClient, RetireClient
from fedplcc.shared.types import RunStatus, TaskKind
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient

NAMES = ("ann", "bob", "cid")
CAME_WITH = 200
JOINED = [NumpyClient(name, counts=(CAME_WITH, 0, 0)) for name in NAMES]


def begun(federation: LocalFederation) -> str:
    run = federation.create("fedavg", run={"rounds": 3, "clients": list(NAMES)})
    federation.step(["ann"])
    return run.run_id


def grow(federation: LocalFederation, client_id: str, num_examples: int) -> NumpyClient:
    """Let a client join again and say that it has other samples."""
    client = federation.clients[client_id]
    client.counts = (num_examples, 0, 0)
    federation.coordinator.join(client.record, client.token)
    return client


def works(federation: LocalFederation, client: NumpyClient) -> None:
    task = federation.task(client)
    assert task.kind is TaskKind.TRAIN
    federation.perform(client, task)


def test_a_client_that_grows_beyond_ten_times_is_refused_by_name_however_it_gets_there(
    federation: LocalFederation,
) -> None:
    run_id = begun(federation)
    for num_examples in (GROWTH * CAME_WITH, 100 * CAME_WITH, 2**29):
        bob = grow(federation, "bob", num_examples)
    with pytest.raises(MalformedUpdate, match=f"the client had {CAME_WITH} samples when the run took it in") as refused:
        works(federation, bob)
    assert refused.value.metadata["check"] == "num_examples"
    assert federation.coordinator.get_run(run_id).rejections["bob"].check == "num_examples"
    federation.restart()
    federation.join()
    with pytest.raises(MalformedUpdate, match="the client had"):
        works(federation, bob)


def test_ten_times_are_taken_and_the_history_says_what_changed(federation: LocalFederation) -> None:
    run_id = begun(federation)
    works(federation, grow(federation, "bob", GROWTH * CAME_WITH))
    (event,) = federation.events(run_id, "client_data_changed")
    assert (event.client_id, event.round) == ("bob", 1)
    assert event.data == {"before": CAME_WITH, "num_examples": GROWTH * CAME_WITH}
    assert federation.run_to_end(run_id).status is RunStatus.COMPLETED


def test_small_clients_may_grow_to_a_usual_size(tmp_path: Path) -> None:
    with LocalFederation(tmp_path, [NumpyClient(name, counts=(1, 0, 0)) for name in NAMES]) as federation:
        federation.join()
        run_id = begun(federation)
        works(federation, grow(federation, "bob", FREE))
        assert federation.run_to_end(run_id).status is RunStatus.COMPLETED


def test_a_person_who_admits_it_again_takes_its_new_size(federation: LocalFederation) -> None:
    run_id = begun(federation)
    bob = grow(federation, "bob", 100 * CAME_WITH)
    with pytest.raises(MalformedUpdate, match="retire it from the run and admit it again"):
        works(federation, bob)
    federation.coordinator.steer(run_id, RetireClient("bob"))
    federation.coordinator.steer(run_id, AdmitClient("bob"))
    assert federation.run_to_end(run_id).status is RunStatus.COMPLETED
    (event,) = federation.events(run_id, "client_admitted")
    assert event.data == {"num_examples": 100 * CAME_WITH}
    counted = {event.client_id for event in federation.events(run_id, "update_committed") if event.round == 3}
    assert counted == set(NAMES)
