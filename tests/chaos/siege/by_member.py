"""What a member does, and what one does that was revoked: calls over mutual TLS, and bytes below them."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import lru_cache
from typing import Any

from fedplcc.shared.convert.membership import client_to_join
from fedplcc.shared.convert.tasks import task_from_proto
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2 as admin_pb2
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.identity.certificates import new_key, request_for
from fedplcc.shared.types import MODEL, Task, TaskKind
from fedplcc.shared.wire.tls import ClientTls
from tests.chaos.siege.foe import Foe, closed, said
from tests.support.federation.dearest_requests import dearest_commits, dearest_join
from tests.support.federation.grpc_client import GrpcClient
from tests.support.federation.http2_frames import PREFACE, SETTINGS, frame, opened_and_reset
from tests.support.federation.numpy_client import NumpyClient

ROUND = "/fedplcc.v1.RoundService/"
RENEW = "/fedplcc.v1.AdminService/RenewCertificate"
MALLORY = "mallory"
OWN = NumpyClient(MALLORY, size=400_000)
"""Its run's model has 9.6 MB."""
SECRETS = "://:::"
"""What looks like the beginning of a password in an address, over and over."""
AT_ONCE = 24
CONNECTIONS = 445

_lock = threading.Lock()


def begin_own_run(address: str, tls: ClientTls | None) -> None:
    """Make the first model of its own run, whose round 1 then waits for it alone."""
    client = GrpcClient(address, OWN, tls=tls)
    client.join()
    for response in client.tasks():
        task = task_from_proto(response.task)
        if task.kind is TaskKind.TRAIN:
            break
        if task.kind is TaskKind.INIT:
            update, blobs = OWN.work(task, None)
            for blob, data in blobs.items():
                client.upload(task, blob, data, chunk_bytes=1 << 20)
            client.commit(task, update)
    client.close()


@lru_cache(maxsize=1)
def _asked(foe: Foe) -> Task:
    client = GrpcClient("", OWN, foe.channel())
    client.join()
    return task_from_proto(next(client.tasks()).task)


def own_task(foe: Foe) -> Task:
    """What the member is asked for in its own run: to train in round 1."""
    with _lock:
        return _asked(foe)


def who() -> dict[str, Any]:
    """Fields that say who calls."""
    return {"client_id": MALLORY, "instance_token": OWN.token}


# Text that is written down


def long_run_ids(foe: Foe) -> Iterator[str]:
    """Heartbeats whose run id has 250 KB: of words like a password's, or of control characters."""
    own_task(foe)
    with foe.channel() as channel:
        for text in (SECRETS * 40_000, "\x01" * 240_000, "\N{BELL}" * 60_000) * 20:
            yield foe.call(channel, f"{ROUND}Heartbeat", round_pb2.HeartbeatRequest(**who(), run_id=text))


def longest_run_ids(foe: Foe) -> Iterator[str]:
    """Commits whose run id has 4.9 MB, of the same."""
    with foe.channel() as channel:
        for text in (SECRETS * 810_000, "\x01" * 4_900_000):
            yield foe.call(channel, f"{ROUND}CommitUpdate", round_pb2.CommitUpdateRequest(**who(), run_id=text))


def refused_heartbeats(foe: Foe) -> Iterator[str]:
    """Heartbeats of other clients, each of another name."""
    with foe.channel() as channel:
        for number in range(1000):
            request = round_pb2.HeartbeatRequest(client_id=f"other-{number}", instance_token=OWN.token)
            yield foe.call(channel, f"{ROUND}Heartbeat", request)


def unknown_methods(foe: Foe) -> Iterator[str]:
    """Methods that are not there, each of another name."""
    with foe.channel() as channel:
        for number in range(1000):
            yield foe.call(channel, f"/fedplcc.v1.RoundService/None{number}-{SECRETS * 100}", b"")


# Large requests


def large_commits(foe: Foe) -> Iterator[str]:
    """Commits of 4.6 MB for its own round, as many at once as connections."""
    task = own_task(foe)
    assert task.run is not None
    run = round_pb2.CommitUpdateRequest(**who(), run_id=task.run.run_id).SerializeToString()
    with ExitStack() as held:
        channels = [held.enter_context(foe.channel()) for _ in range(AT_ONCE)]
        for data in dearest_commits():
            yield from foe.burst(channels, f"{ROUND}CommitUpdate", data + run)


def empty_entries(foe: Foe) -> Iterator[str]:
    """Joins of 4 MiB of empty entries, as many at once as connections."""
    with ExitStack() as held:
        channels = [held.enter_context(foe.channel()) for _ in range(AT_ONCE)]
        for _ in range(10):
            yield from foe.burst(channels, f"{ROUND}Join", dearest_join())


def many_classes(foe: Foe) -> Iterator[str]:
    """Joins that name 10,000 classes, others each time."""
    with foe.channel() as channel:
        for _ in range(20):
            name = secrets.token_hex(45)
            counts = [types_pb2.ClassCount(class_name=f"{name}{number}", num_examples=1) for number in range(10_000)]
            request = client_to_join(OWN.record, instance_token=OWN.token, version="test")
            request.num_examples = len(counts)
            del request.class_counts[:]
            request.class_counts.extend(counts)
            yield foe.call(channel, f"{ROUND}Join", request)


# Small calls that write much


def changed_environments(foe: Foe) -> Iterator[str]:
    """Joins whose environment is another each time, within its bounds and beyond them."""
    with foe.channel() as channel:
        for number in range(200):
            request = client_to_join(OWN.record, instance_token=OWN.token, version="test")
            count, size = ((128, 1024), (32, 100))[number % 2]
            request.environment.packages.clear()
            for place in range(count):
                request.environment.packages[f"{place}-{'x' * size}"] = secrets.token_hex(16)
            yield foe.call(channel, f"{ROUND}Join", request)


def problems(foe: Foe) -> Iterator[str]:
    """Heartbeats that tell another problem each time, and progress that means nothing."""
    task = own_task(foe)
    assert task.run is not None
    with foe.channel() as channel:
        for number in range(1000):
            text = f"{number} " * 200
            request = round_pb2.HeartbeatRequest(
                **who(),
                run_id=task.run.run_id,
                round=task.round,
                activity=types_pb2.CLIENT_ACTIVITY_TRAINING,
                progress=1e-9 * number,
                readings={f"reading {place} {number}": 1.0 for place in range(32)},
                problem=types_pb2.ClientProblem(reason="OTHER", detail=text, hint=text, is_fatal=True),
            )
            yield foe.call(channel, f"{ROUND}Heartbeat", request)


def extreme_updates(foe: Foe) -> Iterator[str]:
    """Updates of its own run with the largest counts and numbers that there are, and reports of such counts."""
    task = own_task(foe)
    assert task.run is not None
    where: dict[str, Any] = {"run_id": task.run.run_id, "round": task.round}
    with foe.channel() as channel:
        for number in range(100):
            commit = round_pb2.CommitUpdateRequest(
                **who(), **where, num_examples=1 << 29, class_counts=[1 << 29, 0, number], losses={"ce": 3.4e38}
            )
            yield foe.call(channel, f"{ROUND}CommitUpdate", commit)
            counts = types_pb2.EvaluationCounts(set_name="test", model="global", correct=[1 << 29], total=[1 << 29])
            report = round_pb2.ReportEvaluationRequest(**who(), **where, counts=[counts])
            yield foe.call(channel, f"{ROUND}ReportEvaluation", report)


def renewals(foe: Foe) -> Iterator[str]:
    """Renewals of its certificate."""
    request = admin_pb2.RenewCertificateRequest(certificate_request=request_for(new_key()))
    with foe.channel() as channel:
        for _ in range(1000):
            yield foe.call(channel, RENEW, request)


# Streams that are held


def unread_downloads(foe: Foe) -> Iterator[str]:
    """A thousand downloads of which it reads nothing."""
    task = own_task(foe)
    model = next(blob for blob in task.payload.blobs if blob.role == MODEL)
    request = round_pb2.DownloadBlobRequest(**who(), sha256=model.sha256)
    with foe.channel() as channel:
        yield from foe.held_streams(channel, f"{ROUND}DownloadBlob", request, 1000, hold_s=5.0)


def cancelled_downloads(foe: Foe) -> Iterator[str]:
    """Downloads that it leaves in their middle."""
    task = own_task(foe)
    model = next(blob for blob in task.payload.blobs if blob.role == MODEL)
    request = round_pb2.DownloadBlobRequest(**who(), sha256=model.sha256).SerializeToString()
    with foe.channel() as channel:
        for _ in range(50):
            download: Any = channel.unary_stream(f"{ROUND}DownloadBlob")  # type: ignore[call-arg]  # bytes as they are
            call = download(request, timeout=30)
            yield said(lambda call=call: next(call))  # type: ignore[misc]
            call.cancel()


def task_streams(foe: Foe) -> Iterator[str]:
    """A thousand streams of tasks."""
    own_task(foe)
    with foe.channel() as channel:
        yield from foe.held_streams(channel, f"{ROUND}SyncRound", round_pb2.SyncRoundRequest(**who()), 1000, hold_s=2.0)


def stalled_uploads(foe: Foe) -> Iterator[str]:
    """Uploads that never go on."""
    task = own_task(foe)
    assert task.run is not None
    with foe.channel() as channel:
        calls = []
        for number in range(64):
            blob = types_pb2.BlobRef(role=MODEL, sha256=f"{number:064x}", size_bytes=9_600_400)
            header = round_pb2.BlobHeader(**who(), run_id=task.run.run_id, round=task.round, blob=blob)
            first = round_pb2.UploadModelRequest(header=header).SerializeToString()

            def parts(first: bytes = first) -> Iterator[bytes]:
                yield first
                foe.is_over.wait(5.0)

            upload: Any = channel.stream_unary(f"{ROUND}UploadModel")  # type: ignore[call-arg]  # bytes as they are
            calls.append(upload.future(parts(), timeout=30))
        for call in calls:
            yield said(call.result)


# Below gRPC


def resets(foe: Foe) -> Iterator[str]:
    """Streams that are opened and reset, a hundred at a time, on one connection."""
    yield from resets_of(foe, foe.known.address, (f"{ROUND}Heartbeat", f"{ROUND}NoSuch", f"{ROUND}Join"))


def resets_of(foe: Foe, address: str, methods: tuple[str, ...]) -> Iterator[str]:
    """Streams of these methods that are opened and reset on one connection, until it ends."""
    with foe.spoken(address) as link:
        link.sendall(PREFACE + frame(SETTINGS, 0, 0))
        drain = threading.Thread(target=_drained, args=(link,), daemon=True)
        drain.start()
        for turn in range(10_000):
            link.sendall(opened_and_reset(methods[turn % len(methods)], 1 + 200 * turn, 100))
            yield "100 opened and reset"


def connections(foe: Foe) -> Iterator[str]:
    """Connections over TLS that say nothing more."""
    yield from held_open(foe, foe.known.address, CONNECTIONS)


def held_open(foe: Foe, address: str, number: int) -> Iterator[str]:
    """Connections over TLS to a port of gRPC, held for some time."""
    held = []
    try:
        for _ in range(number):
            try:
                held.append(foe.spoken(address))
            except OSError as error:
                yield type(error).__name__
            else:
                yield "held open"
        foe.is_over.wait(10.0)
    finally:
        closed(held)


# Who was revoked


def refused_calls(foe: Foe) -> Iterator[str]:
    """Every call of a member, small, by one who was revoked."""
    (service,) = round_pb2.DESCRIPTOR.services_by_name.values()
    with foe.channel() as channel:
        for _ in range(100):
            for method in service.methods:
                yield foe.call(channel, f"/{service.full_name}/{method.name}", b"")


def _drained(link: object) -> None:
    try:
        while link.recv(1 << 16):  # type: ignore[attr-defined]
            pass
    except OSError:
        pass
