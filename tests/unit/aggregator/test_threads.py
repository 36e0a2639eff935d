"""The coordinator is called from many threads at once, as the servicer does; nothing counts twice and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import ClientIdTaken, UpdateConflict
from fedplcc.shared.types import RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient
from tests.support.oracles.federation_result import expected

NAMES = ("ann", "bob", "cat", "dan")
JOINED = tuple(map(NumpyClient, NAMES))


def at_once(*calls: Callable[[], object]) -> list[object]:
    """Make these calls from a thread each, all released together; returns results and errors in order."""
    barrier = Barrier(len(calls))

    def released(call: Callable[[], object]) -> object:
        barrier.wait()
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(released, calls))


@pytest.mark.parametrize("method", ["fedavg", "fedplcc"])
def test_clients_in_threads_of_their_own_end_in_the_right_model(federation: LocalFederation, method: str) -> None:
    run = federation.create(method, run={"rounds": 4})

    def client(name: str) -> None:
        while not federation.coordinator.has_ended(run.run_id):
            client = federation.clients[name]
            federation.perform(client, federation.task(client))

    def worker() -> None:
        while not federation.coordinator.has_ended(run.run_id):
            federation.coordinator.work()
            federation.coordinator.tick()

    failures = at_once(worker, *(lambda name=name: client(name) for name in NAMES))
    assert failures == [None] * 5
    after = federation.coordinator.get_run(run.run_id)
    right = expected(parse_run_config(json.loads(run.config_json)), list(federation.clients.values()))
    assert after.status is RunStatus.COMPLETED
    assert after.model is not None
    assert after.prototypes is not None
    assert (after.model.sha256, after.prototypes.sha256) == (right.models[-1], right.prototypes[-1])


def test_one_update_committed_by_several_threads_counts_once(federation: LocalFederation) -> None:
    run = federation.create("fedplcc")
    federation.step(["ann"])
    ann = federation.clients["ann"]
    task, update, blobs = federation.work(ann)
    federation.upload(ann, task, blobs)
    answers = at_once(*[lambda: federation.coordinator.commit_update("ann", ann.token, run.run_id, 1, update)] * 6)
    assert len(set(answers)) == 1, answers
    assert not isinstance(answers[0], Exception), answers
    assert [event.round for event in federation.events(run.run_id, "update_committed")] == [0, 1]
    assert federation.metric("client_updates_total", outcome="accepted") == 2
    assert federation.metric("client_updates_total", outcome="duplicate") == 5
    assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED


def test_of_two_different_updates_at_once_one_is_committed_and_the_other_a_conflict(
    federation: LocalFederation,
) -> None:
    run = federation.create("fedavg")
    federation.step(["ann"])
    ann = federation.clients["ann"]
    task, update, blobs = federation.work(ann)
    federation.upload(ann, task, blobs)
    other, _blobs = NumpyClient("ann", counts=(4, 3, 4)).work(task, federation.fetch(ann, task))
    answers = at_once(
        *(
            lambda sent=sent: federation.coordinator.commit_update("ann", ann.token, run.run_id, 1, sent)
            for sent in (update, other)
        )
    )
    assert sorted(isinstance(answer, UpdateConflict) for answer in answers) == [False, True], answers
    assert len(federation.events(run.run_id, "update_committed")) == 2


def test_of_several_trainers_that_claim_a_client_at_once_one_gets_it(federation: LocalFederation) -> None:
    eve = NumpyClient("eve").record
    tokens = [f"instance-token-number-{index}" for index in range(6)]
    answers = at_once(*(lambda token=token: federation.coordinator.join(eve, token) for token in tokens))
    assert sorted(isinstance(answer, ClientIdTaken) for answer in answers) == [False] + [True] * 5, answers


def test_one_request_sent_by_several_threads_is_one_run(federation: LocalFederation) -> None:
    document = json.loads(federation.create().config_json)
    answers = at_once(*[lambda: federation.coordinator.create_run("mine", document).run_id] * 6)
    assert len(set(answers)) == 1, answers
    assert len(federation.coordinator.list_runs(limit=10)) == 2


def test_an_upload_sent_by_two_streams_at_once_ends_whole(federation: LocalFederation) -> None:
    run = federation.create()
    ann = federation.clients["ann"]
    task = federation.task(ann)
    update, blobs = ann.work(task, None)

    def send() -> None:
        federation.upload(ann, task, blobs)

    at_once(send, send, send)  # those that were taken over failed, and would begin again
    federation.upload(ann, task, blobs)
    federation.coordinator.commit_update("ann", ann.token, run.run_id, 0, update)
    assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED
