"""The first model is compared by all who begin with it: most of them end the run, and one alone does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedplcc.shared.chance import RunWarning, RunWarningKind
from fedplcc.shared.errors import FirstModelDiffers, RunEnded
from fedplcc.shared.reasons import sentence_of
from fedplcc.shared.types import HEAD, PARAMETERS, ClientActivity, ClientProblem, RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient

NAMES = ("ann", "bob", "cid", "dan")
DIFFERS = ClientProblem(reason=FirstModelDiffers.reason, detail="tensor 'head.weight' differs", is_fatal=True)
JOINED = tuple(map(NumpyClient, NAMES))


def begun(federation: LocalFederation, **run: object) -> str:
    """A run whose first model ann has sent."""
    run_id = federation.create("fedavg", run={"rounds": 2, "clients": list(federation.clients), **run}).run_id
    federation.step(["ann"])
    return run_id


def doubt(federation: LocalFederation, run_id: str, *names: str, number: int = 1) -> None:
    for name in names:
        client = federation.clients[name]
        said = {"activity": ClientActivity.DOWNLOADING, "run_id": run_id, "round": number, "problem": DIFFERS}
        federation.task(client)
        federation.heartbeat(client, **said)


def warning(federation: LocalFederation, run_id: str) -> RunWarning | None:
    found = federation.coordinator.warnings(federation.coordinator.get_run(run_id))
    return next((each for each in found if each.kind is RunWarningKind.FIRST_MODEL_DOUBTED), None)


def test_where_most_of_the_others_make_another_model_the_run_ends_and_names_all(federation: LocalFederation) -> None:
    run_id, dan = begun(federation), federation.clients["dan"]
    task = federation.task(dan)
    work = dan.work(task, federation.fetch(dan, task))
    doubt(federation, run_id, "bob")
    assert federation.coordinator.get_run(run_id).status is RunStatus.RUNNING
    doubt(federation, run_id, "cid")
    run = federation.coordinator.get_run(run_id)
    assert run.status is RunStatus.FAILED
    assert run.reason is not None
    said = "the first model, which ann sent, is not what bob, cid make of specification and seed"
    assert sentence_of(run.reason).startswith(said)
    assert [event.data["reason"] for event in federation.events(run_id, "run_failed")] == [sentence_of(run.reason)]
    with pytest.raises(RunEnded):
        federation.submit(dan, task, *work)


def test_one_of_three_others_ends_nothing_and_is_named_with_the_maker(federation: LocalFederation) -> None:
    run_id = begun(federation)
    assert warning(federation, run_id) is None
    doubt(federation, run_id, "dan")
    federation.step(["ann", "bob", "cid"])
    run = federation.coordinator.get_run(run_id)
    assert (run.status, run.round_number) == (RunStatus.RUNNING, 1)
    found = warning(federation, run_id)
    assert found is not None
    assert "which ann sent, is not what dan make of" in found.sentence
    assert not any(name in found.sentence for name in ("bob", "cid"))
    federation.restart()
    assert warning(federation, run_id) == found
    federation.step(["dan"])  # it could train from it after all
    assert warning(federation, run_id) is None
    assert federation.run_to_end(run_id).status is RunStatus.COMPLETED


def test_of_two_clients_nobody_knows_who_is_right_and_the_run_ends(tmp_path: Path) -> None:
    with LocalFederation(tmp_path, map(NumpyClient, NAMES[:2])) as federation:
        federation.join()
        run_id = begun(federation)
        doubt(federation, run_id, "bob")
        run = federation.coordinator.get_run(run_id)
        assert run.status is RunStatus.FAILED
        assert run.reason is not None
        assert "ann sent, is not what bob make" in sentence_of(run.reason)


def test_doubts_of_before_a_restart_count(federation: LocalFederation) -> None:
    run_id = begun(federation)
    doubt(federation, run_id, "bob")
    federation.restart()
    doubt(federation, run_id, "cid")
    assert federation.coordinator.get_run(run_id).status is RunStatus.FAILED


def test_doubts_of_the_maker_of_other_runs_and_of_later_rounds_count_for_nothing(federation: LocalFederation) -> None:
    run_id = begun(federation)
    doubt(federation, run_id, "ann")
    doubt(federation, run_id, "bob", number=2)
    doubt(federation, "another run", "cid")
    assert federation.coordinator.get_run(run_id).status is RunStatus.RUNNING
    assert federation.run_to_end(run_id).status is RunStatus.COMPLETED
    for name in NAMES:
        doubt(federation, run_id, name)
    assert federation.coordinator.get_run(run_id).status is RunStatus.COMPLETED


def test_lists_of_tensors_are_compared_where_a_client_says_its_own(federation: LocalFederation) -> None:
    """One that says none is not asked."""
    run_id = begun(federation)
    bob = federation.clients["bob"]
    task, update, blobs = federation.work(bob)
    for lists, is_same in (({HEAD: (0,)}, False), ({PARAMETERS: (1, 2), "feature_dim": (6,)}, True)):
        payload = replace(update.payload, int_lists={**update.payload.int_lists, **lists})
        if is_same:
            federation.submit(bob, task, replace(update, payload=payload), blobs)
            continue
        with pytest.raises(FirstModelDiffers, match="list 'head' of the first model"):
            federation.submit(bob, task, replace(update, payload=payload), blobs)
    run = federation.coordinator.get_run(run_id)
    assert run.rejections == {}, "it speaks against the maker as much as against the sender"


@pytest.mark.parametrize(("names", "says"), [(("ann",), ["the run has no other client"]), (("ann", "bob"), [])])
def test_the_history_says_where_nobody_can_compare(tmp_path: Path, names: tuple[str, ...], says: list[str]) -> None:
    with LocalFederation(tmp_path, map(NumpyClient, names)) as federation:
        federation.join()
        run_id = federation.create("fedavg").run_id
        federation.step(["ann"])
        assert [event.data["detail"] for event in federation.events(run_id, "first_model_uncompared")] == says
        assert federation.run_to_end(run_id).status is RunStatus.COMPLETED
