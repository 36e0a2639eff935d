"""Blobs that a task comes with, each fetched and held against the SHA-256 of its name."""

from __future__ import annotations

from fedplcc.shared.config.declared_arrays import declared_arrays, sent_groups
from fedplcc.shared.errors import BlobCorrupt, MalformedRequest
from fedplcc.shared.methods.arrays import ArrayGroup, group_fault
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.process.resources import rooms
from fedplcc.shared.tensors import from_bytes, prototypes_from_bytes, sha256_hex
from fedplcc.shared.types import GLOBAL_CLUSTER, BlobRef, PrototypeSet
from fedplcc.trainer.cancellation import check
from fedplcc.trainer.task.encoding import decoded_model
from fedplcc.trainer.task.failures import OutOfMemory
from fedplcc.trainer.task.job import Job
from fedplcc.trainer.task.models.latest_model import LatestModel

LARGE_BYTES = 64 << 20
"""Size beyond which a blob is held against the memory that is left."""

log = get_logger("fedplcc.trainer.task.received")


def received_prototypes(job: Job) -> PrototypeSet:
    """Return the global prototypes that the task comes with.

    Raises:
        MalformedRequest: It comes with none.
        BlobCorrupt: See `fetched`.
    """
    blob = job.task.payload.prototype_set(GLOBAL_CLUSTER)
    if blob is None:
        raise MalformedRequest(f"method {job.config.run.method} comes with prototypes", field="payload")
    return prototypes_from_bytes(fetched(job, blob))


def received_arrays(job: Job, dim: int) -> dict[str, ArrayGroup]:
    """Return the server arrays that the task comes with, by group; none before the first aggregation.

    Raises:
        MalformedRequest: A group is not as the method declares it.
        BlobCorrupt: See `fetched`.
    """
    declared, num_classes = declared_arrays(job.config, dim), len(job.config.data.classes)
    found: dict[str, ArrayGroup] = {}
    for name in sent_groups(job.config):
        blob = job.task.payload.tensor_group(name)
        if blob is None:
            continue
        found[name] = from_bytes(fetched(job, blob))
        fault = group_fault(found[name], declared[name], num_classes)
        if fault is not None:
            raise MalformedRequest(f"the task's tensor group {name!r} {fault[2]}", field="payload")
    return found


def fetched_for_all(
    job: Job, blob: BlobRef, latest: LatestModel, *, counts: bool, base: BlobRef | None = None
) -> bytes:
    """Return a model that the first client of this process to need it fetches for all of them.

    Each client counts what it would receive in a process of its own, which keeps the model that it evaluated.

    Args:
        latest: The model that the clients of this process share.
        counts: Whether the client would receive it.
        base: The model that an encoded one is the difference from, if the client holds it.
    """
    data, encoded = latest.get(blob), job.task.payload.encoded
    if data is None:
        data = fetched_model(job, blob, None if base is None else latest.get(base))
        latest.put(blob, data)
    elif counts:
        job.add("received_bytes", len(data) if base is None or encoded is None else encoded.size_bytes)
    return data


def fetched_model(job: Job, blob: BlobRef, base: bytes | None) -> bytes:
    """Return a model that has the SHA-256 of its name: from its encoded difference where the client holds the other model.

    It is fetched whole where it does not, or where that gives another model.

    Args:
        base: The model that the round's training began with; None where the client does not hold it.

    Raises:
        BlobCorrupt, Cancelled: See `fetched`.
    """
    encoded = job.task.payload.encoded
    if encoded is not None and base is not None:
        data = decoded_model(fetched(job, encoded), base, blob, job.config.wire)
        if data is not None:
            return data
        log.warning("encoded_model_of_another", sha256=blob.sha256)
    elif encoded is not None:
        log.info("whole_model_received", round=job.task.round, sha256=blob.sha256, bytes=blob.size_bytes)
    return fetched(job, blob)


def fetched(job: Job, blob: BlobRef) -> bytes:
    """Return a blob that has the SHA-256 of its name; one that has not is fetched once more.

    Raises:
        BlobCorrupt: It had another SHA-256 twice.
        OutOfMemory: It is announced as larger than the memory that is left: nothing of it is fetched.
        Cancelled: `should_stop()` holds.
    """
    if blob.size_bytes > LARGE_BYTES and blob.size_bytes > min(
        (each.left_bytes for each in rooms()), default=blob.size_bytes
    ):
        raise OutOfMemory(
            f"the {blob.role} that the task comes with has {blob.size_bytes} bytes, more than are free here"
        )
    for _ in range(2):
        check(job.should_stop)
        with job.timed("download_seconds"):
            data = job.aggregator.fetch(blob)
        if sha256_hex(data) == blob.sha256:
            job.add("received_bytes", len(data))
            return data
        log.warning("blob_corrupt", role=blob.role, sha256=blob.sha256)
    raise BlobCorrupt(f"the {blob.role} that arrived does not have the announced SHA-256", sha256=blob.sha256)
