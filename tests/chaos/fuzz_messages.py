"""Ways to spoil the messages of an update, its uploads and its commit: each public function is one, small and pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as pb2
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2, types_pb2
from tests.chaos.fuzz_attempt import Attempt, Scene, Sending, flipped

SIZES = (0, -1, -(2**63), 2**31, 2**40, 2**62, 2**63 - 1)


# Uploads


def upload_under_another_sha256(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    other = rng.choice([rng.randbytes(32).hex(), "0" * 64, "A" * 64, "", "../../etc/passwd", "a" * 63, "é" * 64])
    return _with_header(rng, good, lambda header: setattr(header.blob, "sha256", other))


def upload_of_another_size(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    def change(header: pb2.BlobHeader) -> None:
        size = header.blob.size_bytes
        header.blob.size_bytes = rng.choice([*SIZES, size - 1, size + 1, scene.max_blob_bytes + 1])

    return _with_header(rng, good, change)


def upload_in_another_name(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    field, value = rng.choice(_wrong_addresses(rng, scene))
    return _with_header(rng, good, lambda header: setattr(header, field, value))


def chunks_out_of_order(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    def change(upload: Sending) -> Sending:
        chunks = [part for offset, data in upload.chunks for part in _halves(offset, data)]
        index = rng.randrange(len(chunks))
        offset, data = chunks[index]
        kind = rng.choice(["swap", "again", "skip", "offset", "empty", "negative"])
        if kind == "swap":
            chunks.reverse()
        elif kind == "again":
            chunks.insert(index, chunks[index])
        elif kind == "skip":
            del chunks[index]
        elif kind == "empty":
            chunks.insert(index, (offset + 1, b""))
        else:
            chunks[index] = (rng.choice([offset + 1, -1, -(2**63), 2**62]), data)
        return replace(upload, chunks=tuple(chunks))

    return _with_upload(rng, good, change)


def more_bytes_than_announced(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    def change(upload: Sending) -> Sending:
        offset, data = upload.chunks[-1]
        return replace(upload, chunks=(*upload.chunks[:-1], (offset, data + rng.randbytes(rng.choice([1, 100])))))

    return _with_upload(rng, good, change)


def a_chunk_over_the_limit(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    size = rng.choice([scene.max_chunk_bytes + 1, 2 * scene.max_chunk_bytes, 6 << 20])

    def change(upload: Sending) -> Sending:
        assert upload.header is not None
        header = _copied(upload.header)
        header.blob.size_bytes = size
        return replace(upload, header=header, chunks=((0, bytes(size)),))

    return _with_upload(rng, good, change)


def a_stream_that_breaks_the_order(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    def change(upload: Sending) -> Sending:
        kind = rng.choice(["no header", "nothing", "two headers", "no chunks"])
        if kind == "two headers":
            return replace(upload, has_second_header=True)
        return replace(
            upload,
            header=upload.header if kind == "no chunks" else None,
            chunks=upload.chunks if kind == "no header" else (),
        )

    return _with_upload(rng, good, change)


def a_blob_that_is_not_sent(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    return replace(good, uploads=tuple(rng.sample(good.uploads, rng.randrange(2))))


def other_bytes_than_announced(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    def change(upload: Sending) -> Sending:
        offset, data = rng.choice(upload.chunks)
        spoilt = {offset: flipped(rng, data, 0, len(data))}
        return replace(upload, chunks=tuple((begin, spoilt.get(begin, data)) for begin, data in upload.chunks))

    return _with_upload(rng, good, change)


# The commit


def bytes_inside_the_commit_that_nobody_named(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    most = scene.max_inline_bytes
    extra = rng.choice([[b""], [rng.randbytes(100)], [bytes(most + 1)], [bytes(most // 2)] * 3, [b"x"] * 100])
    return _with_commit(good, lambda commit: commit.inline_blobs.extend(extra))


def commit_in_another_name(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    field, value = rng.choice(_wrong_addresses(rng, scene))
    return _with_commit(good, lambda commit: setattr(commit, field, value))


def commit_of_a_blob_of_somebody_else(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    foreign = rng.choice(scene.foreign)

    def change(commit: pb2.CommitUpdateRequest) -> None:
        blobs = rng.choice([commit.payload.tensor_groups, commit.payload.prototype_sets])
        blobs[0].sha256, blobs[0].size_bytes = foreign.sha256, foreign.size_bytes

    return _with_commit(good, change)


def commit_of_other_blobs(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    def change(commit: pb2.CommitUpdateRequest) -> None:
        blob = rng.choice([commit.payload.tensor_groups, commit.payload.prototype_sets])[0]
        kind = rng.choice(["sha256", "size", "case"])
        if kind == "sha256":
            blob.sha256 = rng.choice([rng.randbytes(32).hex(), "", "x" * 64, "../" * 20 + "abcd", "0" * 5000])
        elif kind == "size":
            blob.size_bytes = rng.choice([*SIZES, blob.size_bytes - 1, blob.size_bytes + 1])
        else:
            blob.sha256 = blob.sha256.upper()

    return _with_commit(good, change)


def commit_with_other_roles(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    def change(commit: pb2.CommitUpdateRequest) -> None:
        groups, sets = commit.payload.tensor_groups, commit.payload.prototype_sets
        kind = rng.choice(["renamed", "second", "twice", "missing", "swapped", "many"])
        blobs = rng.choice([groups, sets])
        if kind == "renamed":
            blobs[0].role = rng.choice(["", "Model", "gradient", "global_cluster", "x" * 2000, "model "])
        elif kind in ("second", "twice", "many"):
            for number in range(100 if kind == "many" else 1):
                again = blobs.add()
                again.CopyFrom(blobs[0])
                again.role = again.role if kind == "twice" else f"role{number}"
        elif kind == "missing":
            del blobs[:]
        else:
            model, prototypes = _copied(groups[0]), _copied(sets[0])
            del groups[:], sets[:]
            groups.append(prototypes)
            sets.append(model)

    return _with_commit(good, change)


def flipped_bits_of_the_commit(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    assert good.commit is not None
    data = good.commit.SerializeToString()
    spoilt = flipped(rng, data, 0, len(data)) if rng.random() < 0.7 else data[: rng.randrange(len(data))]
    commit = pb2.CommitUpdateRequest()
    try:
        commit.ParseFromString(spoilt)
    except Exception:  # google.protobuf.message.DecodeError, whose bytes no record can hold
        return Attempt(stray=("RoundService/CommitUpdate", spoilt))
    return replace(good, commit=commit)


# Anything to any method

_ROUND_METHODS: Mapping[str, Any] = {
    "Join": pb2.JoinRequest,
    "SyncRound": pb2.SyncRoundRequest,
    "Heartbeat": pb2.HeartbeatRequest,
    "DownloadBlob": pb2.DownloadBlobRequest,
    "GetUploadStatus": pb2.GetUploadStatusRequest,
    "UploadModel": pb2.UploadModelRequest,
    "UploadPrototypes": pb2.UploadPrototypesRequest,
    "CommitUpdate": pb2.CommitUpdateRequest,
    "ReportEvaluation": pb2.ReportEvaluationRequest,
}
_RUN_METHODS = tuple(run_service_pb2.DESCRIPTOR.services_by_name["RunService"].methods_by_name)


def garbage_to_any_method(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    names = [*(f"RoundService/{name}" for name in _ROUND_METHODS), *(f"RunService/{name}" for name in _RUN_METHODS)]
    size = rng.choice([0, 1, 2, 3, 5, 10, 100, 10_000, 6 << 20]) if rng.random() < 0.1 else rng.randrange(40)
    return Attempt(stray=(rng.choice(names), rng.randbytes(size)))


def torn_messages_of_a_stranger(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    """Well-formed requests of somebody who is in no roster, with flipped bits or cut off."""
    name = rng.choice(sorted(_ROUND_METHODS))
    data = _strangers_request(name, scene).SerializeToString()
    spoilt = flipped(rng, data, 0, len(data)) if rng.random() < 0.7 else data[: rng.randrange(len(data))]
    return Attempt(stray=(f"RoundService/{name}", spoilt))


def _strangers_request(name: str, scene: Scene) -> Any:
    own: dict[str, Any] = {"client_id": "zz-stranger", "instance_token": "zz-stranger-token-0123456789"}
    work: dict[str, Any] = {"run_id": scene.run_id, "round": scene.task.round}
    blob = types_pb2.BlobRef(role="model", sha256="ab" * 32, size_bytes=100)
    header = pb2.BlobHeader(blob=blob, **own, **work)
    counts = types_pb2.EvaluationCounts(set_name="test", model="global", correct=[1, 2, 3], total=[4, 5, 6])
    fields: Mapping[str, Mapping[str, Any]] = {
        "Join": {
            **own,
            "domain": "nowhere",
            "num_examples": 3,
            "class_counts": [types_pb2.ClassCount(class_name="a", num_examples=3)],
            "version": "1",
        },
        "SyncRound": {**own, "poll": pb2.Poll()},
        "Heartbeat": {**own, **work, "activity": 1, "readings": {"x_seconds": 1.0}},
        "DownloadBlob": {**own, "sha256": "ab" * 32},
        "GetUploadStatus": {"header": header},
        "UploadModel": {"header": header},
        "UploadPrototypes": {"header": header},
        "CommitUpdate": {**own, **work, "payload": types_pb2.Payload(tensor_groups=[blob]), "num_examples": 3},
        "ReportEvaluation": {**own, **work, "counts": [counts], "timings": {"seconds": 1.0}},
    }
    return _ROUND_METHODS[name](**fields[name])


# Parts of the above


def _halves(offset: int, data: bytes) -> list[tuple[int, bytes]]:
    middle = len(data) // 2
    return [(offset, data[:middle]), (offset + middle, data[middle:])] if middle else [(offset, data)]


def _wrong_addresses(rng: Random, scene: Scene) -> list[tuple[str, Any]]:
    other = rng.choice(scene.others)
    here = scene.task.round
    return [
        *(("run_id", text) for text in ("", "no-such-run", scene.run_id.upper(), scene.run_id + " ", "x" * 2000)),
        *(("round", number) for number in (-1, 0, here - 1, here + 1, 2**31 - 1, -(2**31)) if number != here),
        *(("client_id", name) for name in ("", "nobody", other.client_id, "../" + other.client_id, "x" * 2000)),
        *(("instance_token", token) for token in ("", other.token, scene.client.token[:-1], "x" * 2000)),
    ]


def _with_upload(rng: Random, good: Attempt, change: Callable[[Sending], Sending]) -> Attempt:
    if not good.uploads:
        return good
    index = rng.randrange(len(good.uploads))
    if good.uploads[index].header is None or not good.uploads[index].chunks:
        return good
    uploads = list(good.uploads)
    uploads[index] = change(uploads[index])
    return replace(good, uploads=tuple(uploads))


def _with_header(rng: Random, good: Attempt, change: Callable[[pb2.BlobHeader], Any]) -> Attempt:
    def changed(upload: Sending) -> Sending:
        assert upload.header is not None
        header = _copied(upload.header)
        change(header)
        return replace(upload, header=header)

    return _with_upload(rng, good, changed)


def _with_commit(good: Attempt, change: Callable[[pb2.CommitUpdateRequest], Any]) -> Attempt:
    if good.commit is None or not good.commit.payload.tensor_groups or not good.commit.payload.prototype_sets:
        return good
    commit = _copied(good.commit)
    change(commit)
    return replace(good, commit=commit)


_Message = TypeVar("_Message")


def _copied(message: _Message) -> _Message:
    copy: Any = type(message)()
    copy.CopyFrom(message)
    result: _Message = copy
    return result
