"""An encoded update is decoded once and is float32 behind its commit; what cannot be right is refused and leaves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedplcc.aggregator.computation.parts.wire import EXACT
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.shared.config.tables.wire import WireSection
from fedplcc.shared.encoded_models import Precision, encoded_size
from fedplcc.shared.errors import InvalidTransition, MalformedUpdate
from fedplcc.shared.steering import ExtendRun
from fedplcc.shared.tensors import blob_ref, from_bytes, sha256_hex
from fedplcc.shared.types import ENCODED, MODEL, BlobRef, Payload, Run, RunStatus, Task, TaskKind, Update
from fedplcc.trainer.task.encoding import decoded_model, encoded_update
from tests.support import present
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient

SECTION = WireSection(precision="int8")


@pytest.fixture(params=[4000, 0], ids=["inline", "uploaded"])
def federation(request: pytest.FixtureRequest, folder: Path) -> Iterator[LocalFederation]:
    clients = (NumpyClient("ann", size=3), NumpyClient("bob", size=3))
    with LocalFederation(folder, clients, Limits(max_inline_bytes=request.param)) as federation:
        federation.is_inline = request.param > 0
        federation.join()
        yield federation


@pytest.fixture
def run(federation: LocalFederation) -> Run:
    """A run of encoded models whose round 1 has opened; nobody has trained in it."""
    run = federation.create(run={"rounds": 2}, wire={"precision": "int8"})
    federation.step(["ann"])
    return federation.coordinator.get_run(run.run_id)


def work(federation: LocalFederation, name: str, precision: Precision = "int8") -> tuple[Task, Update, bytes]:
    """The client's encoded update for its present task, not yet sent, and its bytes."""
    client = federation.clients[name]
    task = federation.task(client)
    assert task.kind is TaskKind.TRAIN
    start = present(federation.fetch(client, task))
    update, blobs = client.work(task, start)
    (plain,) = blobs.values()
    whole, data, _left_out = encoded_update(
        from_bytes(plain), from_bytes(start), None, WireSection(precision=precision)
    )
    payload = Payload(tensor_groups=(blob_ref(MODEL, whole),), encoded=blob_ref(ENCODED, data))
    return task, replace(update, payload=payload), data


def send(federation: LocalFederation, name: str, task: Task, update: Update, data: bytes) -> None:
    client = federation.clients[name]
    assert task.run is not None
    assert update.payload.encoded is not None
    if not federation.is_inline:
        federation.upload(client, task, {update.payload.encoded: data})
    inline = [data] if federation.is_inline else []
    names = (client.client_id, client.token, task.run.run_id, task.round)
    federation.coordinator.commit_update(*names, update, inline)


def files(federation: LocalFederation) -> set[str]:
    """What is stored, and what is about to be."""
    return {
        path.name for part in ("blobs", "staging") for path in (federation.folder / part).rglob("*") if path.is_file()
    }


def test_what_is_stored_is_what_was_named_and_a_repetition_changes_nothing(
    federation: LocalFederation, run: Run
) -> None:
    task, update, data = work(federation, "ann")
    send(federation, "ann", task, update, data)
    (model,) = update.payload.tensor_groups
    assert model.sha256 in files(federation)
    assert sha256_hex(data) not in files(federation), "the encoding is not kept"
    stored = present(federation.coordinator.get_run(run.run_id).current_round)
    send(federation, "ann", task, update, data)
    again = federation.coordinator.get_run(run.run_id).current_round
    assert again == stored
    assert stored.updates["ann"].payload == update.payload
    assert stored.updates["ann"].norm is not None


def test_the_result_is_what_clients_decode_and_the_exact_model_stays_with_the_server(
    federation: LocalFederation, run: Run
) -> None:
    ann, start = federation.clients["ann"], b""
    for name in ("ann", "bob"):
        task, update, data = work(federation, name)
        start = federation.fetch(ann, task) or start
        send(federation, name, task, update, data)
    while federation.coordinator.work():
        pass
    task = federation.task(ann)
    assert task.kind is TaskKind.EVALUATE
    encoded, model = task.payload.encoded, task.payload.tensor_group(MODEL)
    assert encoded is not None
    assert model is not None
    assert task.payload.moved == (encoded,)
    _blob, kind, path = federation.coordinator.transfers.open_download(ann.client_id, ann.token, encoded.sha256)
    assert kind == "model"
    whole = decoded_model(path.read_bytes(), start, model, SECTION)
    assert whole == federation.fetch(ann, task)
    current = present(federation.coordinator.get_run(run.run_id).current_round)
    name = current.server_state[EXACT].sha256
    exact = from_bytes((federation.folder / "blobs" / name[:2] / name).read_bytes())
    assert whole is not None
    left_out = np.abs(exact["base.weight"] - from_bytes(whole)["base.weight"])
    step = np.abs(exact["base.weight"] - from_bytes(start)["base.weight"]).max(axis=1, keepdims=True)
    assert left_out.max() > 0
    assert (left_out <= step / 254 * 1.001 + 1e-7).all()
    np.testing.assert_array_equal(exact["head.steps"], from_bytes(whole)["head.steps"])


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def with_scale(scale: float) -> Callable[[bytes], bytes]:
    """The first scale stands behind the beginning and the 8 bytes of head.steps."""
    return lambda data: data[:16] + np.array([scale], "<f4").tobytes() + data[20:]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (flipped, "not the one that the update names"),
        (lambda data: data + b"\0", "bytes"),
        (lambda data: data[:-1], "bytes"),
        (lambda data: b"fedplcc\x07" + data[8:], "code of int8"),
        (with_scale(float("nan")), "scale"),
        (with_scale(float("inf")), "scale"),
        (with_scale(-1e-3), "scale"),
        (with_scale(1e38), "scale"),
    ],
)
def test_a_hostile_encoding_is_refused_by_name_and_leaves_nothing(
    federation: LocalFederation, run: Run, spoil: Callable[[bytes], bytes], sentence: str
) -> None:
    task, update, data = work(federation, "ann")
    wrong = spoil(data)
    before = files(federation)
    payload = replace(update.payload, encoded=blob_ref(ENCODED, wrong))
    with pytest.raises(MalformedUpdate, match=sentence):
        send(federation, "ann", task, replace(update, payload=payload), wrong)
    assert files(federation) == before
    send(federation, "ann", task, update, data)
    assert run.status is RunStatus.RUNNING


def test_a_whole_model_or_another_precision_is_refused_where_int8_is_due(federation: LocalFederation, run: Run) -> None:
    task, update, data = work(federation, "ann", "bfloat16")
    with pytest.raises(MalformedUpdate, match="bytes"):
        send(federation, "ann", task, update, data)
    client = federation.clients["ann"]
    whole = replace(update, payload=replace(update.payload, encoded=None))
    assert task.run is not None
    with pytest.raises(MalformedUpdate, match="travel as int8") as refused:
        federation.coordinator.commit_update("ann", client.token, task.run.run_id, task.round, whole, [])
    assert refused.value.metadata["check"] == "encoding"
    with pytest.raises(MalformedUpdate, match="has no blob 'model'"):
        federation.upload(client, task, {whole.payload.tensor_groups[0]: b"?"})


def test_an_encoding_is_refused_where_models_travel_whole(federation: LocalFederation) -> None:
    run = federation.create()
    federation.step(["ann"])
    task, update, data = work(federation, "ann")
    client = federation.clients["ann"]
    with pytest.raises(MalformedUpdate, match="travel whole"):
        federation.coordinator.commit_update("ann", client.token, run.run_id, task.round, update, [data])
    with pytest.raises(MalformedUpdate, match="has no blob 'encoded_model'"):
        federation.upload(client, task, {BlobRef(ENCODED, sha256_hex(data), len(data)): data})


def test_a_size_is_refused_before_its_first_byte(federation: LocalFederation, run: Run) -> None:
    task, update, data = work(federation, "ann")
    assert update.payload.encoded is not None
    large = replace(update.payload.encoded, size_bytes=len(data) + 1)
    with pytest.raises(MalformedUpdate, match=f"at most {len(data)} bytes"):
        federation.upload(federation.clients["ann"], task, {large: data + b"\0"})
    model = {"base.weight": ("F32", (3, 6)), "head.weight": ("F32", (3, 6)), "head.steps": ("I64", ())}
    assert len(data) == encoded_size(model, "int8")


def test_a_damaged_model_is_asked_for_again_and_decoded_anew(federation: LocalFederation, run: Run) -> None:
    sent = {}
    for name in ("ann", "bob"):
        task, update, data = work(federation, name)
        sent[name] = update, data
        send(federation, name, task, update, data)
    (model,) = sent["ann"][0].payload.tensor_groups
    path = federation.path_of(model)
    whole = path.read_bytes()
    path.write_bytes(flipped(whole))
    while federation.coordinator.work():
        pass
    task = federation.task(federation.clients["ann"])
    assert (task.kind, task.missing) == (TaskKind.TRAIN, (model.sha256,))
    send(federation, "ann", task, *sent["ann"])
    assert path.read_bytes() == whole
    while federation.coordinator.work():
        pass
    assert federation.task(federation.clients["ann"]).kind is TaskKind.EVALUATE


def test_a_completed_run_whose_clients_dropped_their_errors_goes_on_to_no_more_rounds(
    federation: LocalFederation, run: Run
) -> None:
    for _ in range(2):
        for name in ("ann", "bob"):
            send(federation, name, *work(federation, name))
        while federation.coordinator.work():
            pass
        federation.step()
    assert federation.coordinator.get_run(run.run_id).status is RunStatus.COMPLETED
    with pytest.raises(InvalidTransition, match="what rounding left out"):
        federation.coordinator.steer(run.run_id, ExtendRun(rounds=5))
