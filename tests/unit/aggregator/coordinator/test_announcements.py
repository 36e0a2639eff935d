"""Sizes that clients announce, and the bytes that they may leave on the aggregator's disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedplcc.aggregator.incoming.announcements import SLACK_BYTES
from fedplcc.aggregator.incoming.transfers import Receiver
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.shared.errors import BlobTooLarge, MalformedUpdate, UploadSuperseded
from fedplcc.shared.methods import METHODS
from fedplcc.shared.types import LOCAL_CLUSTER, MODEL, BlobRef, Run, RunStatus
from tests.support import present
from tests.support.federation.in_process import LocalFederation
from tests.support.records.builders import a_blob

GIB = 1 << 30
LIMITS = Limits(max_chunk_bytes=1 << 20)


def of_size(role: str, size_bytes: int, content: str = "") -> BlobRef:
    return BlobRef(role, a_blob(f"{role} {size_bytes} {content}").sha256, size_bytes)


def incoming_bytes(federation: LocalFederation, client_id: str) -> int:
    return sum(path.stat().st_size for path in federation.folder.glob(f"incoming/{client_id}/*"))


def begin(federation: LocalFederation, run: Run, blob: BlobRef, client_id: str = "ann", number: int = 1) -> Receiver:
    token = federation.clients[client_id].token
    receiver = present(federation.coordinator.transfers.begin_upload(client_id, token, run.run_id, number, blob))
    return receiver


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_s_honest_updates_are_within_what_may_be_announced(folder: Path, method: str) -> None:
    with LocalFederation.small(folder) as federation:
        federation.join()
        run = federation.run_to_end(federation.create(method).run_id)
        assert run.status is RunStatus.COMPLETED
        assert not federation.events(run.run_id, "update_refused")


def test_a_model_of_gibibytes_for_a_run_of_kilobytes_is_refused_before_its_first_byte(
    federation: LocalFederation,
) -> None:
    run = federation.create("fedplcc")
    federation.step(["ann"])
    model = present(federation.coordinator.get_run(run.run_id).model)
    most = model.size_bytes + SLACK_BYTES
    for role, size_bytes, check in (
        (MODEL, 4 * GIB, "size"),
        (MODEL, most + 1, "size"),
        (LOCAL_CLUSTER, 2 * GIB, "size"),
        ("class_mean", 10, "roles"),
        ("anything", 10, "roles"),
    ):
        with pytest.raises(MalformedUpdate) as refused:
            begin(federation, run, of_size(role, size_bytes))
        assert refused.value.metadata["check"] == check
    with pytest.raises(BlobTooLarge):
        begin(federation, run, of_size(MODEL, 4 * GIB + 1))
    assert not list(federation.folder.glob("incoming/ann/*"))
    receiver = begin(federation, run, of_size(MODEL, most))
    receiver.close()
    checks = [
        event.data.get("check", event.data["reason"]) for event in federation.events(run.run_id, "update_refused")
    ]
    assert sorted(checks) == ["BLOB_TOO_LARGE", "roles", "size"], "once each in a round"
    assert federation.coordinator.get_run(run.run_id).rejections["ann"].count == 5


def test_before_round_0_nobody_knows_the_size_and_the_aggregator_s_limit_holds(federation: LocalFederation) -> None:
    run = federation.create()
    receiver = begin(federation, run, of_size(MODEL, 4 * GIB), number=0)
    receiver.close()
    with pytest.raises(MalformedUpdate, match="has no blob 'local_cluster'"):
        begin(federation, run, of_size(LOCAL_CLUSTER, 10), number=0)


def test_a_client_s_uploads_never_exceed_twice_its_round_s_update_and_the_oldest_give_way(
    federation: LocalFederation,
) -> None:
    run = federation.create("fedavg")
    federation.step(["ann"])
    model = present(federation.coordinator.get_run(run.run_id).model)
    most = model.size_bytes + SLACK_BYTES
    receivers = []
    for number in range(12):
        receiver = begin(federation, run, of_size(MODEL, most, str(number)))
        receivers.append(receiver)
        for offset in range(0, most - 1, 1 << 16):
            receiver.write(offset, bytes(min(1 << 16, most - 1 - offset)))
        assert incoming_bytes(federation, "ann") <= 2 * most
        if number % 2:
            receiver.close()
    with pytest.raises(UploadSuperseded):
        receivers[0].write(most - 1, b"x")
    for receiver in receivers:
        receiver.close()
    assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED


def test_round_0_takes_one_first_model_of_a_client_at_a_time(federation: LocalFederation) -> None:
    run, receivers = federation.create(), []
    for number in range(3):
        receivers.append(begin(federation, run, of_size(MODEL, 3 * GIB, str(number)), number=0))
        receivers[-1].write(0, bytes(1000))
        assert incoming_bytes(federation, "ann") == 1000
    for receiver in receivers:
        receiver.close()
    assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED
