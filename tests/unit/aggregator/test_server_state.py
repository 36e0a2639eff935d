"""Server state in whole runs: what NumPy says, and who gets what; test_kept_between_rounds.py disturbs it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.errors import BlobNotFound
from fedplcc.shared.methods import add_methods, remove_method
from fedplcc.shared.methods.parts.slots import ServerSlots, ServerView
from fedplcc.shared.steering import QuarantineClient
from fedplcc.shared.tensors import from_bytes, sha256_hex, to_bytes
from fedplcc.shared.types import MODEL, BlobRef, Round, Run, RunStatus, Task, TaskKind, state_blobs
from fedplcc.state.replay import replay
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document

AHEAD = "tests.support.records.ahead_method"
with_slots = pytest.mark.parametrize("method", ["fedopt", AHEAD], ids=["fedopt", "ahead"])

Model = dict[str, np.ndarray]


@pytest.fixture(scope="module", autouse=True)
def known_methods() -> Iterator[None]:
    """The method of tests beside those of the package."""
    add_methods([AHEAD])
    yield
    remove_method(AHEAD)


def state_of(record: Run | Round) -> dict[str, BlobRef]:
    """What the next round needs, by role."""
    return {**({} if record.start is None else {"start": record.start}), **record.server_state}


def rounds_of(federation: LocalFederation, run: Run) -> list[Round]:
    return federation.coordinator.list_rounds(run.run_id)


def results(federation: LocalFederation, run: Run) -> list[dict[str, str]]:
    """SHA-256 of every round's model and state, by role."""
    return [
        {name: blob.sha256 for name, blob in {"model": each.model, **state_of(each)}.items() if blob is not None}
        for each in rounds_of(federation, run)
    ]


def expected(config: RunConfig, clients: list[NumpyClient]) -> list[dict[str, str]]:
    """What every round comes to: whole arrays, no coordinator, no blobs, no blocks."""
    method, hyper = config.algorithm, config.method
    part = method.part(ServerSlots)
    assert part is not None
    result = start = clients[0].first_model()
    trained = [name for name, value in result.items() if value.dtype == np.float32]
    slots: dict[str, Model] = {
        slot: {name: np.full(result[name].shape, value, np.float32) for name in trained}
        for slot, value in method.server_slots(hyper).items()
    }
    found = [{"model": sha256_hex(to_bytes(result))}]
    weights = [float(sum(client.counts)) for client in clients]
    for number in range(1, config.run.rounds + 1):
        models = [client.trained(Task(kind=TaskKind.TRAIN, round=number), start) for client in clients]
        result = {name: np.max([model[name] for model in models], axis=0) for name in start}
        ahead = dict(result)
        view = ServerView(round=number, num_eligible=len(clients))
        for name in trained:
            blocks = {slot: slots[slot][name] for slot in slots}
            folded = part.fold(start[name], iter([model[name] for model in models]), weights, blocks, view, hyper)
            result[name], ahead[name] = folded.result, folded.result if folded.start is None else folded.start
            for slot, block in folded.slots.items():
                slots[slot] = {**slots[slot], name: block}
        line = {"model": sha256_hex(to_bytes(result))}
        if part.has_start(hyper):
            line["start"] = sha256_hex(to_bytes(ahead))
        found.append({**line, **{slot: sha256_hex(to_bytes(slots[slot])) for slot in slots}})
        start = ahead
    return found


class Kept(LocalFederation):
    """Keeps the results of two rounds and the updates of one."""

    keep = Keep(models=2, prototypes=0, updates=1)


@with_slots
def test_every_round_comes_to_what_numpy_says_and_the_run_carries_it_on(folder: Path, method: str) -> None:
    with LocalFederation.small(folder) as federation:
        run = federation.whole_run(rounds=4, method=method)
        assert run.status is RunStatus.COMPLETED
        right = expected(parse_run_config(json.loads(run.config_json)), list(federation.clients.values()))
        assert results(federation, run) == right
        last = rounds_of(federation, run)[-1]
        assert (run.model, run.start, run.server_state) == (last.model, last.start, last.server_state)
        for blob in state_blobs(run):
            assert set(from_bytes(federation.path_of(blob).read_bytes())) == {"base.weight", "head.weight"} | (
                {"head.steps"} if blob == run.start else set()
            )


@with_slots
def test_a_slot_that_was_recorded_otherwise_is_found(folder: Path, method: str) -> None:
    with Kept.small(folder) as federation:
        run = federation.whole_run(rounds=2, method=method)
        first, last = rounds_of(federation, run)[1:]
        wrong = json.dumps(
            {
                name: {"role": b.role, "sha256": b.sha256, "size_bytes": b.size_bytes}
                for name, b in first.server_state.items()
            }
        )
    assert first.server_state != last.server_state
    with closing(sqlite3.connect(folder / "aggregator.sqlite")) as connection, connection:
        connection.execute("UPDATE rounds SET server_state = ? WHERE number = 2", (wrong,))
    with LocalFederation.small(folder) as federation:
        found = federation.coordinator.get_run(run.run_id)
        assert found.reason is not None, "the row's digest covers its state"


@with_slots
def test_no_client_gets_a_slot(folder: Path, method: str) -> None:
    with LocalFederation.small(folder) as federation:
        federation.join()
        run = federation.coordinator.create_run("the run", a_document(method, run={"rounds": 3}))
        ann = federation.clients["ann"]
        while (task := federation.task(ann)).round < 2:
            federation.step()
        known = federation.coordinator.get_run(run.run_id)
        assert task.payload.blobs == (task.payload.tensor_group(MODEL),) == ((known.start or known.model),)
        for blob in known.server_state.values():
            with pytest.raises(BlobNotFound, match="does not name this blob"):
                federation.coordinator.transfers.open_download("ann", ann.token, blob.sha256)


def test_the_neutral_setting_leaves_no_state_at_all(folder: Path) -> None:
    with LocalFederation.small(folder) as federation:
        federation.join()
        document = {**a_document("fedopt"), "method": {"server_opt": "sgdm", "server_lr": 1.0, "beta1": 0.0}}
        run = federation.run_to_end(federation.coordinator.create_run("neutral", document).run_id)
        plain = federation.run_to_end(federation.create("fedavg").run_id)
        assert run.model == plain.model
        assert all(not state_blobs(each) for each in rounds_of(federation, run))


def test_a_round_is_computed_again_with_the_clients_that_were_eligible_then(folder: Path) -> None:
    """One client has come since, another has left: neither counted as the round was aggregated."""
    late = NumpyClient("zoe", size=3)
    document = a_document(AHEAD, run={"min_clients": 2, "rounds": 4})
    del document["run"]["clients"]
    with Kept.small(folder) as federation:
        federation.keep = Keep(models=None, updates=9)
        federation.restart()
        run = federation.coordinator.create_run("the run", document)
        while federation.coordinator.get_run(run.run_id).round_number < 2:
            federation.step()
        federation.clients["zoe"] = late
        federation.coordinator.join(late.record, late.token)
        while federation.coordinator.get_run(run.run_id).round_number < 4:
            federation.step()
        federation.coordinator.steer(run.run_id, QuarantineClient("bob", reason="a test"))
        run = federation.run_to_end(run.run_id)
        assert run.roster == ("ann", "bob", "zoe")
        assert [len(each.cohort) for each in rounds_of(federation, run)] == [1, 2, 2, 3, 3]
        assert all(replay(folder, run.run_id, number).is_equal for number in range(1, 5))


def test_the_norm_of_an_update_is_its_distance_from_what_clients_received(folder: Path) -> None:
    with LocalFederation.small(folder) as federation:
        federation.join()
        run = federation.run_to_end(federation.create(AHEAD, admission={"max_update_norm": 1e6}).run_id)
        first, second = (federation.store.find_round(run.run_id, number) for number in (1, 2))
        assert first is not None
        assert second is not None
        start = from_bytes(federation.path_of(first.start).read_bytes())
        for committed in second.updates.values():
            trained = from_bytes(federation.path_of(committed.payload.tensor_groups[0]).read_bytes())
            names = [name for name, value in start.items() if value.dtype == np.float32]
            squares = sum(((trained[name].astype(np.float64) - start[name]) ** 2).sum() for name in names)
            assert committed.norm == pytest.approx(squares**0.5, rel=1e-9)
