"""Runs that begin with a model: where it may come from, what the first client is given, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import struct
from collections.abc import AsyncIterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedplcc.aggregator.incoming.initial_models import InitialModelReceiver
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.servicer.run_service import MAX_MODEL_UPLOADS, RunServicer
from fedplcc.aggregator.store.blobs.reserve import MOST_BYTES
from fedplcc.shared import errors
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.convert.uploads import initial_model_to_proto
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.steering import StopRun
from fedplcc.shared.tensors import blob_ref, from_bytes, prototypes_from_bytes, to_bytes
from fedplcc.shared.types import MODEL, BlobRef, Payload, Run, RunStatus, Task, TaskKind, Update
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import FEATURE_DIM, NumpyClient, a_document


def created(federation: LocalFederation, run: Run) -> dict[str, Any]:
    (event,) = federation.events(run.run_id, "run_created")
    return dict(event.data)


def refuse(federation: LocalFederation, initial_model: str, kind: type[errors.FedplccError], *said: str) -> None:
    before = len(federation.coordinator.list_runs(limit=100))
    with pytest.raises(kind) as refused:
        a_run(federation, initial_model)
    for words in said:
        assert words in refused.value.detail
    assert len(federation.coordinator.list_runs(limit=100)) == before


SIZE = 3
JOINED = (NumpyClient("ann", size=SIZE), NumpyClient("bob", size=SIZE, counts=(2, 0, 7)))
LIMITS = Limits(max_blob_bytes=4000)


def a_model(seed: int = 7) -> bytes:
    """A model of the right layout that no client would make."""
    return to_bytes(NumpyClient("ann", size=SIZE).first_model(seed))


def hold(federation: LocalFederation, data: bytes, name: str = "model.safetensors") -> str:
    """Upload a model; returns how a configuration names it."""
    blob = blob_ref(MODEL, data)
    receiver = federation.coordinator.initial_models.begin_upload(blob, name)
    if receiver is not None:
        receive(receiver, data)
    return f"sha256:{blob.sha256}"


def receive(receiver: InitialModelReceiver, data: bytes) -> None:
    with closing(receiver):
        for begin in range(0, len(data), 100):
            receiver.write(data[begin : begin + 100])
        receiver.finish()


def a_run(federation: LocalFederation, initial_model: str, method: str = "fedplcc", **run: Any) -> Run:
    return federation.create(method, run={"initial_model": initial_model, **run})


def model_of(federation: LocalFederation, run: Run, number: int) -> bytes:
    return federation.coordinator.artifact(run.run_id, number, "model")[1].read_bytes()


def test_the_first_client_is_given_the_model_and_commits_it_without_sending_it(federation: LocalFederation) -> None:
    data = a_model()
    run = a_run(federation, hold(federation, data, "best.safetensors"))
    ann = federation.clients["ann"]
    task = federation.task(ann)
    assert (task.kind, task.payload) == (TaskKind.INIT, Payload(tensor_groups=(blob_ref(MODEL, data),)))
    given = federation.fetch(ann, task)
    assert given == data
    update, blobs = ann.work(task, given)
    assert set(blobs) == {blob_ref(MODEL, data)}
    for blob in blobs:
        names = (ann.client_id, ann.token, run.run_id, 0, blob)
        assert federation.coordinator.transfers.upload_status(*names) == (blob.size_bytes, True)
        assert federation.coordinator.transfers.begin_upload(*names) is None
    federation.coordinator.commit_update(ann.client_id, ann.token, run.run_id, 0, update)
    assert model_of(federation, run, 0) == data
    prototypes = federation.coordinator.artifact(run.run_id, 0, "prototypes")[1].read_bytes()
    assert len(prototypes_from_bytes(prototypes)) == 0, "those of the model's own run are not taken over"
    assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED


def test_a_file_and_the_run_that_it_came_from_give_the_same_bytes_in_every_round(federation: LocalFederation) -> None:
    source = federation.create("fedplcc", run={"rounds": 2})
    federation.run_to_end(source.run_id)
    by_file = a_run(federation, hold(federation, model_of(federation, source, 1)))
    by_run = a_run(federation, f"run:{source.run_id}@1")
    by_last = a_run(federation, f"run:{source.run_id}")
    for run in (by_file, by_run, by_last):
        federation.run_to_end(run.run_id)
    assert federation.metrics_lines(by_file.run_id) == federation.metrics_lines(by_run.run_id)
    assert federation.metrics_lines(by_file.run_id) != federation.metrics_lines(by_last.run_id)
    assert model_of(federation, by_run, 0) == model_of(federation, source, 1)
    assert model_of(federation, by_last, 0) == model_of(federation, source, 2)
    assert by_file.config_hash == by_run.config_hash


def test_the_configuration_holds_the_content_and_the_history_where_it_came_from(federation: LocalFederation) -> None:
    source = federation.create(run={"rounds": 3})
    while federation.coordinator.get_run(source.run_id).round_number < 3:
        federation.step()
    run = a_run(federation, f"run:{source.run_id}")
    sha256 = hashlib.sha256(model_of(federation, source, 2)).hexdigest()
    assert json.loads(run.config_json)["run"]["initial_model"] == f"sha256:{sha256}"
    assert parse_run_config(json.loads(run.config_json)).hash == run.config_hash
    came_from = {"sha256": sha256, "run_id": source.run_id, "round": 2}
    assert created(federation, run) == {"config_hash": run.config_hash, "initial_model": came_from}
    assert federation.coordinator.manifest(run)["initial_model"] == came_from

    uploaded = a_run(federation, hold(federation, a_model(), "best.safetensors"))
    assert created(federation, uploaded)["initial_model"]["name"] == "best.safetensors"
    assert "initial_model" not in created(federation, source)
    assert federation.coordinator.manifest(source)["initial_model"] is None


def test_the_same_request_gives_the_same_run_although_the_other_run_went_on(federation: LocalFederation) -> None:
    source = federation.create(run={"rounds": 2})
    while federation.coordinator.get_run(source.run_id).round_number < 2:
        federation.step()
    document = a_document(clients=("ann", "bob"), run={"initial_model": f"run:{source.run_id}"})
    run = federation.coordinator.create_run("request", document)
    federation.run_to_end(source.run_id)
    assert federation.coordinator.create_run("request", document).run_id == run.run_id
    with pytest.raises(errors.RequestIdReused):
        federation.coordinator.create_run("request", a_document(clients=("ann", "bob")))


def test_a_run_that_has_not_begun_has_no_committed_model(federation: LocalFederation) -> None:
    run = a_run(federation, hold(federation, a_model()))
    with pytest.raises(errors.RoundNotFound, match="has not committed any round"):
        federation.coordinator.artifact(run.run_id, -1, "model")
    with pytest.raises(errors.RoundNotFound, match="has not committed any round"):
        a_run(federation, f"run:{run.run_id}")
    federation.coordinator.steer(run.run_id, StopRun())


def test_a_model_that_is_held_is_not_received_again(federation: LocalFederation) -> None:
    named = hold(federation, a_model())
    assert federation.coordinator.initial_models.begin_upload(blob_ref(MODEL, a_model()), "again") is None
    federation.restart()
    assert a_run(federation, named).model == blob_ref(MODEL, a_model())


def test_what_only_clients_have_sent_cannot_be_begun_with(federation: LocalFederation) -> None:
    run = federation.create(run={"rounds": 1})
    federation.run_to_end(run.run_id)
    (update, _other) = federation.store.find_round(run.run_id, 1).updates.values()  # type: ignore[union-attr]
    with pytest.raises(errors.BlobNotFound):
        a_run(federation, f"sha256:{update.payload.tensor_groups[0].sha256}")


def test_what_is_not_there_is_refused_with_a_sentence_and_creates_nothing(federation: LocalFederation) -> None:
    source = federation.create(run={"rounds": 2})
    federation.step()
    refuse(federation, "run:no-such-run", errors.RunNotFound, "run.initial_model = 'run:no-such-run': there is no run")
    refuse(
        federation, f"run:{source.run_id}@2", errors.RoundNotFound, "run.initial_model = ", "has not committed round 2"
    )
    refuse(federation, f"run:{source.run_id}@9", errors.RoundNotFound, "has not committed round 9")
    refuse(federation, f"sha256:{'ab' * 32}", errors.BlobNotFound, "holds no model", "file:PATH", "fedplcc run start")
    refuse(federation, "file:model.safetensors", errors.InvalidConfig, "no files of yours", "fedplcc run start")


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        ({"model": {"name": "cnn4"}}, {}, 'model.name is "resnet10", and was "cnn4" in run '),
        ({"model": {"stem": "cifar3x3"}}, {}, 'model.stem is "imagenet5x5", and was "cifar3x3" in run '),
        ({"model": {"norm": "group"}}, {}, 'model.norm is "batch", and was "group" in run '),
        ({}, {"data": {"mean": [0.5, 0.5, 0.4]}}, "data.mean is [0.5, 0.5, 0.4], and was [0.5, 0.5, 0.5] in run "),
        ({"data": {"std": [0.2] * 3}}, {}, "data.std is [0.5, 0.5, 0.5], and was [0.2, 0.2, 0.2] in run "),
        ({"data": {"window": [0, 4095]}}, {}, "data.window is not set, and was [0.0, 4095.0] in run "),
        ({}, {"run": {"initial_classes": ["b", "a", "c"]}}, " has other classes, and "),
    ],
)
@pytest.mark.parametrize("by_content", [False, True])
def test_a_run_that_would_take_a_model_for_another_is_refused(
    federation: LocalFederation, theirs: dict[str, Any], ours: dict[str, Any], said: str, by_content: bool
) -> None:
    source = federation.create(**theirs, run={"rounds": 1})
    federation.run_to_end(source.run_id)
    name = hold(federation, model_of(federation, source, 1)) if by_content else f"run:{source.run_id}@1"
    with pytest.raises(errors.InvalidConfig) as refused:
        federation.create(**{**ours, "run": {"initial_model": name, **ours.get("run", {})}})
    assert said in refused.value.detail


def a_file(**arrays: Any) -> bytes:
    return to_bytes({name: np.asarray(values, np.float32) for name, values in arrays.items()})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(a_file(w=[1.0, np.nan]), "NaN or infinite", id="not finite"),
        pytest.param(a_file(w=[1.0])[:-1], "do not end where", id="cut, with the SHA-256 of what is left"),
        pytest.param(b"PK\x03\x04" + bytes(100), "header", id="a pickle"),
        pytest.param(struct.pack("<Q", 2) + b"{}", "holds no tensor", id="nothing in it"),
        pytest.param(a_file(w=np.zeros((0, 6)), b=[]), "no tensor of the model has an element", id="tensors of size 0"),
        pytest.param(
            struct.pack("<Q", 58) + b'{"w":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}'.ljust(58) + b"\0\0",
            "neither F32 nor I64",
            id="half precision",
        ),
    ],
)
def test_what_is_no_model_is_refused_and_not_kept(federation: LocalFederation, data: bytes, said: str) -> None:
    with pytest.raises(errors.InvalidModel) as refused:
        hold(federation, data, "their.file")
    assert "their.file is no model to begin with" in refused.value.detail
    assert said in refused.value.detail
    assert nothing_is_left(federation)


def nothing_is_left(federation: LocalFederation) -> bool:
    return not any(path for name in ("initial", "staging") for path in (federation.folder / name).iterdir())


def test_bytes_that_are_not_what_was_announced_are_refused_and_not_kept(federation: LocalFederation) -> None:
    data = a_model()
    models = federation.coordinator.initial_models
    with pytest.raises(errors.BlobTooLarge, match="at most 4000 bytes here, this one 4001"):
        models.begin_upload(BlobRef(MODEL, "ab" * 32, 4001), "")
    for sent, kind in (
        (data[:-1], errors.BlobCorrupt),
        (data[:-1] + b"x", errors.BlobCorrupt),
        (data + b"x", errors.ChunkOutOfOrder),
    ):
        receiver = models.begin_upload(blob_ref(MODEL, data), "")
        assert receiver is not None
        with pytest.raises(kind):
            receive(receiver, sent)
    assert nothing_is_left(federation)


def test_other_bytes_below_the_name_of_a_held_model_are_not_said_to_be_held(federation: LocalFederation) -> None:
    hold(federation, data := a_model(), "a.safetensors")
    held = blob_ref(MODEL, data)
    with pytest.raises(errors.BlobCorrupt, match=f"has {len(data)} bytes, not 4"):
        federation.coordinator.initial_models.begin_upload(BlobRef(MODEL, held.sha256, 4), "b.safetensors")


def test_a_model_that_the_disk_has_no_room_for_is_refused_before_its_first_byte(
    federation: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, data = federation.coordinator.initial_models, a_model()
    free = [len(data) + 3 * MOST_BYTES - 1]
    monkeypatch.setattr(os, "statvfs", lambda folder: SimpleNamespace(f_blocks=1 << 40, f_frsize=1, f_bavail=free[0]))
    with pytest.raises(errors.StoreUnavailable, match=f"too few for a model of {len(data)} beside .* make room there"):
        models.begin_upload(blob_ref(MODEL, data), "")
    assert nothing_is_left(federation)
    free[0] += 1
    hold(federation, data)


def test_few_models_are_received_at_once_and_each_that_ends_makes_place(federation: LocalFederation) -> None:
    servicer = RunServicer(federation.coordinator, None)  # type: ignore[arg-type]
    held = hold(federation, a_model()).removeprefix("sha256:")

    async def begin(sha256: str) -> tuple[AsyncIterator[Any], bool]:
        header = initial_model_to_proto(BlobRef(MODEL, sha256, len(a_model())), "a.safetensors")

        async def requests() -> AsyncIterator[run_pb2.UploadInitialModelRequest]:
            yield run_pb2.UploadInitialModelRequest(header=header)
            await asyncio.Event().wait()

        answers = servicer.UploadInitialModel(requests(), None)  # type: ignore[arg-type]
        return answers, (await anext(answers)).is_stored

    async def crowd() -> None:
        streams = [(await begin(f"{number:064x}"))[0] for number in range(MAX_MODEL_UPLOADS)]
        with pytest.raises(errors.Overloaded, match="4 initial models are being uploaded; try again"):
            await begin("ab" * 32)
        assert (await begin(held))[1], "a model that is held needs no place"
        await streams.pop().aclose()  # type: ignore[attr-defined]
        streams.append((await begin("ab" * 32))[0])
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(crowd())
    assert not any((federation.folder / "staging").iterdir())


def first_update(data: bytes) -> tuple[Update, dict[BlobRef, bytes]]:
    blob = blob_ref(MODEL, data)
    payload = Payload(tensor_groups=(blob,), int_lists={"feature_dim": (FEATURE_DIM,)})
    return Update(client_id="ann", payload=payload, num_examples=0), {blob: data}


def other_layout(data: bytes) -> bytes:
    """The same tensors in a file whose header has other spaces."""
    length = int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8 : 8 + length]), indent=1).encode()
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


@pytest.mark.parametrize("is_changed", [False, True])
def test_round_0_must_be_the_initial_model_in_whatever_layout(federation: LocalFederation, is_changed: bool) -> None:
    run = a_run(federation, hold(federation, other_layout(a_model())))
    ann = federation.clients["ann"]
    task = federation.task(ann)
    arrays = {name: array.copy() for name, array in from_bytes(a_model()).items()}
    if is_changed:
        arrays["base.weight"][-1, -1] = np.nextafter(arrays["base.weight"][-1, -1], np.float32(9))
    update, blobs = first_update(to_bytes(arrays))
    if is_changed:
        with pytest.raises(errors.MalformedUpdate, match=r"'base.weight' is not the initial model's") as refused:
            federation.submit(ann, task, update, blobs)
        assert refused.value.metadata["check"] == "initial_model"
        return
    federation.submit(ann, task, update, blobs)
    assert federation.coordinator.get_run(run.run_id).round_number == 1
    assert model_of(federation, run, 0) == a_model()


def test_a_client_cannot_commit_another_model_as_round_0(federation: LocalFederation) -> None:
    a_run(federation, hold(federation, a_model()))
    ann = federation.clients["ann"]
    task: Task = federation.task(ann)
    fewer = {name: array for name, array in from_bytes(a_model()).items() if name != "head.weight"}
    for data, check in ((a_model(seed=8), "initial_model"), (to_bytes(fewer), "keys")):
        with pytest.raises(errors.MalformedUpdate) as refused:
            federation.submit(ann, task, *first_update(data))
        assert refused.value.metadata["check"] == check


def of_config(run: Run) -> dict[str, Any]:
    return dict(json.loads(run.config_json)["run"])


def test_a_run_knows_the_runs_that_trained_its_model_by_id_and_by_content(federation: LocalFederation) -> None:
    first = federation.create(run={"rounds": 1})
    federation.run_to_end(first.run_id)
    assert "initial_runs" not in of_config(first)
    second = federation.create(run={"rounds": 1, "initial_model": f"run:{first.run_id}"})
    federation.run_to_end(second.run_id)
    assert of_config(second)["initial_runs"] == [first.run_id]
    sent = hold(federation, model_of(federation, second, 1))
    third = a_run(federation, sent, "fedavg")
    assert of_config(third)["initial_runs"] == [second.run_id, first.run_id]
    fourth = a_run(federation, hold(federation, a_model(9)), "fedavg", initial_runs=["of-elsewhere"])
    assert of_config(fourth)["initial_runs"] == ["of-elsewhere"]
    assert "initial_runs" not in of_config(a_run(federation, hold(federation, a_model(10)), "fedavg"))


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"test_every": 4}, {"test_every": 5}, "data.test_every is 5, and was 4 in run"),
        ({}, {"validation_every": 3}, "data.validation_every is 3, and was not set in run"),
        ({"validation_every": 3}, {"validation_every": 4}, "data.validation_every is 4, and was 3 in run"),
        ({"validation_every": 3}, {}, ""),
        ({"validation_every": 3}, {"validation_every": 3}, ""),
    ],
)
@pytest.mark.parametrize("is_uploaded", [False, True])
def test_a_run_divides_images_as_the_run_that_trained_its_model(
    federation: LocalFederation, before: dict[str, int], now: dict[str, int], said: str, is_uploaded: bool
) -> None:
    first = federation.create(run={"rounds": 1}, data=before)
    federation.run_to_end(first.run_id)
    named = hold(federation, model_of(federation, first, 1)) if is_uploaded else f"run:{first.run_id}@1"
    if not said:
        federation.create(run={"initial_model": named}, data=now)
        return
    with pytest.raises(errors.InvalidConfig, match=said) as refused:
        federation.create(run={"initial_model": named}, data=now)
    assert refused.value.metadata["location"] == said.partition(" ")[0]
