"""The trainer's connection against a server that breaks off, forgets and stands still, as real ones do on bad days."""

from __future__ import annotations

import random
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from fedplcc.shared import errors
from fedplcc.shared.convert.tasks import poll_from_proto, task_to_proto
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as pb
from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.tensors import blob_ref
from fedplcc.shared.types import LOCAL_CLUSTER, BlobRef, Client, Payload, Poll, RunSpec, Task, TaskKind, Update
from fedplcc.shared.wire.backoff import backoff
from fedplcc.trainer.aggregator import retries, task_stream, transfers
from fedplcc.trainer.aggregator.connection import AggregatorConnection
from fedplcc.trainer.aggregator.task_stream import StreamEnd
from fedplcc.trainer.cancellation import Cancelled, never
from fedplcc.trainer.readings.metrics import TrainerMetrics
from tests.support.federation.processes import eventually
from tests.unit.trainer.aggregator.troubled_server import BLOB, DATA, TOKEN, Quick, Server, Slow


@pytest.fixture
def client(server: Server) -> Iterator[AggregatorConnection]:
    metrics = TrainerMetrics(new_registry("trainer"))
    address = f"127.0.0.1:{server.port}"  # type: ignore[attr-defined]
    client = AggregatorConnection(address, "ann", TOKEN, metrics, rng=Quick())
    client.join(Client(client_id="ann", domain="d", num_examples=1, class_counts={"a": 1}))
    server.calls.clear()
    yield client
    client.close()


def value(client: AggregatorConnection, metric: str, *labels: str) -> float:
    (sample,) = [
        sample for sample in getattr(client.metrics, metric).labels(*labels)._child_samples() if sample.name == "_total"
    ]
    return float(sample.value)


def store(client: AggregatorConnection, should_stop: Callable[[], bool] = never) -> None:
    client.for_task(should_stop).store("run", 1, BLOB, DATA, is_prototypes=False)


def commit(client: AggregatorConnection) -> Any:
    update = Update(client_id="ann", payload=Payload(tensor_groups=(BLOB,)), num_examples=1)
    return client.for_task(never).commit_update("run", 1, update)


def test_a_download_goes_on_from_the_last_byte_that_arrived(server: Server, client: AggregatorConnection) -> None:
    server.trouble["DownloadBlob"] = [3000, 3000, 7000]
    assert client.for_task(never).fetch(BLOB) == DATA
    assert server.offsets == [0, 3000, 3000, 7000]
    assert value(client, "transfers_resumed", "received") == 3
    assert value(client, "transfer_bytes", "received", "model") == len(DATA)
    assert value(client, "resent_bytes", "received") == 0
    assert value(client, "retries", "download") == 3


def test_a_download_in_pieces_of_two_bytes_holds_little_more_than_its_bytes(client: AggregatorConnection) -> None:
    size = 1 << 17
    counted = transfers.ResentBytes(client.metrics.resent_bytes.labels("received"))
    download = transfers.Download(client, replace(BLOB, size_bytes=size), never, counted)
    tracemalloc.start()
    try:
        for offset in range(0, size, 2):
            download._append(offset, offset.to_bytes(4, "little")[:2])
        assert tracemalloc.get_traced_memory()[0] < 2 * size
    finally:
        tracemalloc.stop()


def test_a_blob_that_the_task_never_names_is_given_up(server: Server, client: AggregatorConnection) -> None:
    server.trouble["DownloadBlob"] = [errors.BlobNotFound("not named")] * 100
    with pytest.raises(errors.BlobNotFound):
        client.for_task(never).fetch(BLOB)
    assert len(server.offsets) == retries.GIVE_UP_AFTER


def test_an_upload_goes_on_from_the_offset_that_the_server_names(server: Server, client: AggregatorConnection) -> None:
    server.trouble["UploadModel"] = [2000, 5000]
    store(client)
    assert bytes(server.received) == DATA
    assert server.offsets == [0, 2000, 5000]
    assert value(client, "transfers_resumed", "sent") == 2


def test_a_blob_that_the_server_holds_is_not_sent_again(server: Server, client: AggregatorConnection) -> None:
    server.received += DATA
    store(client)
    assert server.offsets == []
    assert value(client, "transfer_bytes", "sent", "model") == 0


def test_an_upload_that_arrived_corrupt_is_sent_anew(server: Server, client: AggregatorConnection) -> None:
    server.trouble["UploadModel"] = [errors.BlobCorrupt("other bytes")]
    store(client)
    assert bytes(server.received) == DATA


def test_an_upload_that_stands_still_is_ended_and_goes_on(
    server: Server, client: AggregatorConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "STANDSTILL_S", 0.2)
    server.trouble["UploadModel"] = [server.closing.wait]
    thread = threading.Timer(1.0, server.closing.set)
    thread.start()
    store(client)
    thread.join()
    assert value(client, "retries", "upload") >= 1


@pytest.mark.parametrize("method", ["GetUploadStatus", "DownloadBlob"])
def test_a_transfer_that_the_aggregator_found_idle_goes_on_however_often(
    server: Server, client: AggregatorConnection, method: str
) -> None:
    server.trouble[method] = [errors.TransferIdle("the client moves nothing")] * 10
    if method == "DownloadBlob":
        assert client.for_task(never).fetch(BLOB) == DATA
    else:
        store(client)
        assert bytes(server.received) == DATA


def test_a_transfer_that_is_not_wanted_any_more_is_ended_at_once(server: Server, client: AggregatorConnection) -> None:
    stopped = threading.Event()

    def stop_and_hang() -> None:
        stopped.set()
        server.closing.wait(20)

    server.trouble["UploadModel"] = [stop_and_hang]
    with pytest.raises(Cancelled):
        store(client, stopped.is_set)


@pytest.mark.parametrize("error", [errors.StoreUnavailable, errors.NotAMember])
def test_what_passes_is_waited_for(
    server: Server, client: AggregatorConnection, error: type[errors.FedplccError]
) -> None:
    server.trouble["CommitUpdate"] = [error("for now")] * 10
    assert commit(client).sha256s == (BLOB.sha256,)
    assert server.calls.count("CommitUpdate") == 11
    assert value(client, "retries", "commit") == 10


@pytest.mark.parametrize("error", [errors.RoundClosed, errors.MalformedUpdate, errors.Internal])
def test_what_is_refused_for_good_is_not_tried_again(
    server: Server, client: AggregatorConnection, error: type[errors.FedplccError]
) -> None:
    server.trouble["CommitUpdate"] = [error("for good")] * 10
    with pytest.raises(error, match="for good"):
        commit(client)
    assert server.calls == ["CommitUpdate"]


def test_who_waits_for_an_aggregator_goes_on_as_soon_as_its_task_is_told_anew(
    server: Server, client: AggregatorConnection
) -> None:
    client.rng = Slow()
    server.trouble["CommitUpdate"] = [errors.NotAMember("it has restarted")]
    server.steps = [pb.SyncRoundResponse(task=task_to_proto(TASK))]
    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(commit, client)
        eventually(lambda: value(client, "retries", "commit") == 1, "it waits, for hours", 20.0)
        assert next(client.follow()) == TASK
        assert committing.result(20.0).sha256s == (BLOB.sha256,)
    assert server.calls.count("CommitUpdate") == 2


def test_waiting_for_an_aggregator_ends_when_the_task_is_not_wanted(
    server: Server, client: AggregatorConnection
) -> None:
    server.trouble["GetUploadStatus"] = [errors.StoreUnavailable("away")] * 1000
    with pytest.raises(Cancelled):
        store(client, lambda: len(server.calls) > 3)


def test_closing_ends_a_call_that_hangs(server: Server, client: AggregatorConnection) -> None:
    hanging = threading.Event()

    def hang() -> None:
        hanging.set()
        server.closing.wait(20)

    def close() -> None:
        assert hanging.wait(20)
        client.close()

    server.trouble["CommitUpdate"] = [hang]
    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(Cancelled):
        commit(client)
    closer.join()
    with pytest.raises(Cancelled):
        commit(client)


TASK = Task(kind=TaskKind.TRAIN, run=RunSpec(run_id="r", config_json="{}", config_hash=""), round=3)


def test_a_refreshed_stream_ends_quietly_and_a_lost_one_does_not(server: Server, client: AggregatorConnection) -> None:
    server.steps = [pb.SyncRoundResponse(task=task_to_proto(TASK))]
    steps = client.follow()
    assert next(steps) == TASK
    client.refresh()
    assert list(steps) == [StreamEnd.REFRESHED]
    server.trouble["SyncRound"] = [errors.NotAMember("join first")]
    with pytest.raises(errors.NotAMember):
        list(client.follow())


ANSWERED = pb.SyncRoundResponse(end=pb.StreamEnd(reason=pb.StreamEnd.REASON_POLL_ANSWERED))


@pytest.fixture
def polling(client: AggregatorConnection) -> AggregatorConnection:
    """The client, as it follows tasks by short calls."""
    client.poll_hold_s = 7.0
    return client


def a_step(task: Task) -> pb.SyncRoundResponse:
    return pb.SyncRoundResponse(task=task_to_proto(task))


def test_polls_say_what_is_known_and_go_on_until_the_stream_ends_for_another_reason(
    server: Server, polling: AggregatorConnection
) -> None:
    other = replace(TASK, round=4)
    end = pb.SyncRoundResponse(end=pb.StreamEnd(reason=pb.StreamEnd.REASON_LEASE_EXPIRED))
    for answer in ([a_step(TASK), ANSWERED], [ANSWERED], [a_step(other), ANSWERED], [end]):
        server.polls.put(answer)
    assert list(polling.follow()) == [TASK, other, StreamEnd.LEASE_EXPIRED]
    asked = [poll_from_proto(server.asked.get_nowait().poll) for _ in range(4)]
    assert asked == [Poll(None, 7.0), Poll(TASK.key, 7.0), Poll(TASK.key, 7.0), Poll(other.key, 7.0)]


def test_a_stream_is_asked_for_as_in_the_first_version_and_takes_small_blobs(
    server: Server, client: AggregatorConnection
) -> None:
    server.steps = [pb.SyncRoundResponse(end=pb.StreamEnd(reason=pb.StreamEnd.REASON_SHUTTING_DOWN))]
    assert list(client.follow()) == [StreamEnd.SHUTTING_DOWN]
    assert server.asked.get_nowait() == pb.SyncRoundRequest(
        client_id="ann", instance_token=TOKEN, inline_blobs=pb.InlineBlobs(max_bytes=1 << 20)
    )


def test_a_refresh_while_a_poll_is_held_or_between_two_has_the_present_task_told_anew(
    server: Server, polling: AggregatorConnection
) -> None:
    server.polls.put([a_step(TASK), ANSWERED])
    steps = polling.follow()
    assert next(steps) == TASK
    polling.refresh()  # the first poll has been answered, the next is not asked yet
    assert list(steps) == [StreamEnd.REFRESHED]
    server.polls.put([a_step(TASK), ANSWERED])
    steps = polling.follow()
    assert next(steps) == TASK

    def refresh_when_held() -> None:
        for _ in range(3):
            server.asked.get(timeout=20)
        polling.refresh()

    refreshing = threading.Thread(target=refresh_when_held)
    refreshing.start()
    assert list(steps) == [StreamEnd.REFRESHED]
    refreshing.join()


def test_a_poll_without_an_answer_is_given_up(
    server: Server, polling: AggregatorConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_stream, "POLL_ANSWER_S", 0.1)
    polling.poll_hold_s = 0.1
    with pytest.raises(errors.Unavailable, match="did not answer in time"):
        list(polling.follow())


def test_answers_of_a_later_version_are_refused_by_name_and_not_for_good(
    server: Server, client: AggregatorConnection
) -> None:
    server.steps, server.max_inline_bytes = [pb.SyncRoundResponse()], -1
    for asking in (lambda: list(client.follow()), lambda: client.join(Client(client_id="ann", domain="d"))):
        with pytest.raises(errors.FailedPrecondition, match="this version does not understand: "):
            asking()


def test_a_poll_that_is_answered_at_once_with_no_news_is_not_asked_again_at_once(
    server: Server, polling: AggregatorConnection
) -> None:
    class Counting(Quick):
        waits = 0

        def uniform(self, a: float, b: float) -> float:
            self.waits += 1
            return super().uniform(a, b)

    polling.rng = rng = Counting()
    end = pb.SyncRoundResponse(end=pb.StreamEnd(reason=pb.StreamEnd.REASON_SHUTTING_DOWN))
    for answer in ([a_step(TASK), ANSWERED], [ANSWERED], [a_step(TASK), ANSWERED], [ANSWERED], [end]):
        server.polls.put(answer)
    assert list(polling.follow()) == [TASK, TASK, StreamEnd.SHUTTING_DOWN]
    assert rng.waits == 3, "after each answer but the first and the last"


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_transfer_that_gets_on_with_every_attempt_never_waits_long(
    server: Server, client: AggregatorConnection, way: str
) -> None:
    limits: list[float] = []

    def noted(rng: random.Random) -> Iterator[float]:
        for limit in backoff(random.Random(0)):
            limits.append(limit)
            yield 0.01

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retries, "backoff", noted)
        if way == "up":
            server.trouble["UploadModel"] = list(range(1000, 9001, 1000))
            store(client)
            assert bytes(server.received) == DATA
        else:
            server.trouble["DownloadBlob"] = list(range(1000, 9001, 1000))
            assert client.for_task(never).fetch(BLOB) == DATA
    assert len(limits) == 9
    assert max(limits) < 0.5, "the second pause at most"


# Small blobs inside messages


def a_task_with(*blobs: BlobRef) -> Task:
    """TASK, of another round each time that its blobs are others."""
    number = 1 + sum(map(ord, "".join(blob.sha256 for blob in blobs)))
    return replace(TASK, round=number, payload=Payload(tensor_groups=blobs))


def test_a_blob_that_came_with_its_task_is_not_downloaded(server: Server, client: AggregatorConnection) -> None:
    server.steps = [pb.SyncRoundResponse(task=task_to_proto(a_task_with(BLOB)), inline_blobs=[DATA])]
    next(iter(client.follow()))
    assert client.for_task(never).fetch(BLOB) == DATA
    assert server.offsets == []
    assert client.metrics.transfer_bytes.labels("received", "model")._value.get() == len(DATA)


def test_a_blob_that_did_not_come_or_came_damaged_is_downloaded(server: Server, client: AggregatorConnection) -> None:
    server.steps = [pb.SyncRoundResponse(task=task_to_proto(a_task_with(BLOB)), inline_blobs=[DATA[1:], b"other"])]
    next(iter(client.follow()))
    assert client.for_task(never).fetch(BLOB) == DATA
    assert server.offsets == [0]


def test_a_trainer_holds_the_blobs_of_the_last_task_that_named_any_and_says_so(
    server: Server, polling: AggregatorConnection
) -> None:
    other = blob_ref(LOCAL_CLUSTER, b"prototypes")
    both = replace(a_task_with(BLOB, other), payload=Payload(tensor_groups=(BLOB,), prototype_sets=(other,)))
    wait = Task(kind=TaskKind.WAIT)
    for task, inline in ((a_task_with(BLOB), [DATA]), (wait, []), (both, [b"prototypes"]), (a_task_with(other), [])):
        server.polls.put([pb.SyncRoundResponse(task=task_to_proto(task), inline_blobs=inline), ANSWERED])
    server.polls.put([pb.SyncRoundResponse(end=pb.StreamEnd(reason=pb.StreamEnd.REASON_LEASE_EXPIRED))])
    for _ in polling.follow():
        pass
    asked = [server.asked.get_nowait().inline_blobs for _ in range(5)]
    assert {message.max_bytes for message in asked} == {1 << 20}
    held = [set(message.held_sha256s) for message in asked]
    assert held == [set(), {BLOB.sha256}, {BLOB.sha256}, {BLOB.sha256, other.sha256}, {other.sha256}]


def test_a_commit_carries_the_blobs_and_its_limit_is_the_aggregators_last_word(
    server: Server, client: AggregatorConnection
) -> None:
    connection = client.for_task(never)
    assert connection.max_inline_bytes == 0  # it said nothing, as an older one
    server.max_inline_bytes = 5000
    connection.announce(Client(client_id="ann", domain="d", num_examples=1, class_counts={"a": 1}))
    assert connection.max_inline_bytes == 5000
    update = Update(client_id="ann", payload=Payload(), num_examples=1)
    connection.commit_update("run-1", 1, update, [b"one", b"two"])
    assert list(server.commits[-1].inline_blobs) == [b"one", b"two"]


@pytest.mark.parametrize(("size", "is_beside"), [(64 << 10, True), ((64 << 10) + 1, False)])
def test_heartbeats_wait_behind_no_larger_commit(
    server: Server, client: AggregatorConnection, size: int, is_beside: bool
) -> None:
    update = Update(client_id="ann", payload=Payload(), num_examples=1)
    client.for_task(never).commit_update("run-1", 1, update, [bytes(size)])
    joined, committed = server.peers
    assert (joined == committed) is is_beside


@pytest.mark.parametrize("direction", ["sent", "received"])
def test_a_renewal_in_mid_transfer_cuts_nothing_and_moves_no_byte_twice(
    server: Server, client: AggregatorConnection, direction: str
) -> None:
    peers = list(server.peers)
    method = "UploadModel" if direction == "sent" else "DownloadBlob"
    server.trouble[method] = [client.use_renewed_certificate]
    if direction == "sent":
        store(client)
        assert bytes(server.received) == DATA
    else:
        assert client.for_task(never).fetch(BLOB) == DATA
    assert server.offsets == [0]
    assert value(client, "transfer_bytes", direction, "model") == len(DATA)
    assert value(client, "resent_bytes", direction) == 0
    assert value(client, "retries", "upload" if direction == "sent" else "download") == 0
    client.join(Client(client_id="ann", domain="d", num_examples=1, class_counts={"a": 1}))
    assert server.peers[-1] not in peers, "the next call goes over a new connection"
    assert client._draining == []


def test_a_renewal_moves_the_task_stream_to_a_new_connection(server: Server, client: AggregatorConnection) -> None:
    steps = client.follow()
    ended = threading.Event()

    def follow() -> None:
        assert list(steps) == [StreamEnd.REFRESHED]
        ended.set()

    thread = threading.Thread(target=follow)
    thread.start()
    server.asked.get(timeout=20)
    client.use_renewed_certificate()
    assert ended.wait(20)
    thread.join()
    assert client._draining == []


def test_the_end_of_a_connection_ends_the_calls_that_drain_too(server: Server, client: AggregatorConnection) -> None:
    def end() -> None:
        client.use_renewed_certificate()
        client.close()

    server.trouble["UploadModel"] = [end]
    with pytest.raises(Cancelled):
        store(client)


def test_bytes_that_are_downloaded_again_for_the_same_task_are_counted_as_such(client: AggregatorConnection) -> None:
    connection = client.for_task(never)
    assert [connection.fetch(BLOB) for _ in range(2)] == [DATA] * 2
    assert value(client, "resent_bytes", "received") == len(DATA)
    assert client.for_task(never).fetch(BLOB) == DATA
    assert value(client, "resent_bytes", "received") == len(DATA), "another task's are its own"
    assert value(client, "transfer_bytes", "received", "model") == 3 * len(DATA)


def test_bytes_that_the_server_lost_are_counted_as_sent_again(server: Server, client: AggregatorConnection) -> None:
    forgets = [lambda: None, lambda: server.received.__delitem__(slice(2000, None))]
    server.trouble.update(UploadModel=[5000], GetUploadStatus=forgets)
    store(client)
    assert bytes(server.received) == DATA
    assert (resent := value(client, "resent_bytes", "sent")) >= 2000
    assert value(client, "transfer_bytes", "sent", "model") - resent == len(DATA)


def test_an_aggregator_of_an_earlier_version_answers_a_poll_with_a_stream(
    server: Server, polling: AggregatorConnection
) -> None:
    reason = pb.StreamEnd.REASON_SHUTTING_DOWN
    server.polls.put(
        [a_step(TASK), a_step(replace(TASK, round=4)), pb.SyncRoundResponse(end=pb.StreamEnd(reason=reason))]
    )
    assert list(polling.follow()) == [TASK, replace(TASK, round=4), StreamEnd.SHUTTING_DOWN]


def test_a_task_that_cannot_go_on_says_why_in_the_log_once(
    server: Server, client: AggregatorConnection, caplog: pytest.LogCaptureFixture
) -> None:
    server.trouble["CommitUpdate"] = [errors.StoreUnavailable("the disk is full")] * 10
    commit(client)
    assert caplog.text.count("the disk is full; trying again until it works") == 1
