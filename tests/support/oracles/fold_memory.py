"""A round's aggregation in a process of its own, with what memory it needs, or within a limit on it.

    python -m tests.support.oracles.fold_memory FOLDER [LIMIT_MIB]

computes the round that `write_round` has put into the folder and prints one JSON object: the results' SHA-256, and the most
anonymous memory that the process had, in MiB.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import threading
from pathlib import Path

import numpy as np

from fedplcc.aggregator.computation.aggregation import aggregate
from fedplcc.aggregator.computation.fold import BLOCK_ELEMENTS
from fedplcc.aggregator.computation.round_inputs import RoundInputs
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.process.allocator import keep_freed_memory
from fedplcc.shared.tensors import prototypes_to_bytes, read_header, to_bytes
from fedplcc.shared.types import (
    LOCAL_CLUSTER,
    MODEL,
    BlobRef,
    Payload,
    PrototypeSet,
    Round,
    RoundPhase,
    Run,
    RunStatus,
    Update,
)
from tests.support.federation.numpy_client import CLASSES, FEATURE_DIM, a_config

LOOK_S = 0.002
"""Shorter than a block of work; a peak between two looks is missed."""


def write_round(folder: Path, num_updates: int, num_parameters: int) -> None:
    """A model and so many updates of it, all different in every page of the disk that is not empty."""
    header = _header(num_parameters)
    documents = []
    for index in range(num_updates):
        rng = np.random.default_rng(index)
        prototypes = PrototypeSet.of(rng.random((len(CLASSES), FEATURE_DIM)), range(len(CLASSES)), [1, 2, 3])
        blobs = (
            _write_model(folder, header, num_parameters, mark=1.0 + index),
            _write(folder, LOCAL_CLUSTER, prototypes_to_bytes(prototypes)),
        )
        documents.append([(blob.role, blob.sha256, blob.size_bytes) for blob in blobs])
    document = {"start": documents[0][0], "updates": documents}
    (folder / "round.json").write_text(json.dumps(document))


def mean_of_round(folder: Path, num_updates: int, num_parameters: int) -> str:
    """SHA-256 of the mean of a round's updates, which are alike but for one number; written down, not computed."""
    mean = sum(1.0 + index for index in range(num_updates)) / num_updates
    return _write_model(folder, _header(num_parameters), num_parameters, mark=mean).sha256


def computed(folder: Path) -> tuple[str, str]:
    """SHA-256 of the global model and prototypes that the round in the folder makes."""
    document = json.loads((folder / "round.json").read_text())
    config = a_config(run={"method": "fedplcc"})
    updates = {}
    for index, blobs in enumerate(document["updates"]):
        model, prototypes = (BlobRef(*blob) for blob in blobs)
        client_id = f"client-{index:04}"
        payload = Payload(tensor_groups=(model,), prototype_sets=(prototypes,))
        updates[client_id] = Update(client_id=client_id, payload=payload, num_examples=6, class_counts=(1, 2, 3))
    record = Round(number=1, phase=RoundPhase.AGGREGATING, cohort=tuple(updates), updates=updates)
    run = Run(
        run_id="memory",
        name="memory",
        status=RunStatus.RUNNING,
        config_json=config.canonical_json,
        config_hash=config.hash,
        method="fedplcc",
        total_rounds=1,
        seed=0,
        roster=tuple(updates),
        current_round=record,
        model=BlobRef(*document["start"]),
    )
    blobs = BlobStore(folder)
    assert run.model is not None
    with blobs.open(run.model.sha256) as file:
        table = read_header(file)
    made = aggregate(RoundInputs(run=run, table=table, blobs=blobs, block_elements=BLOCK_ELEMENTS))
    return made.model.sha256, made.prototypes.sha256


def main() -> None:
    """Compute within a limit, and watch the memory."""
    keep_freed_memory()  # as an aggregator's process does
    if len(sys.argv) > 2:
        limit_bytes = int(sys.argv[2]) << 20
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    threading.stack_size(256 << 10)
    peak_kib, is_over = [_anonymous_kib()], threading.Event()

    def watch() -> None:
        while not is_over.wait(LOOK_S):
            peak_kib[0] = max(peak_kib[0], _anonymous_kib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        made = computed(Path(sys.argv[1]))
    finally:
        is_over.set()
        watcher.join()
    print(json.dumps({"made": made, "peak_mib": peak_kib[0] / 1024}))


def _anonymous_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise AssertionError("Linux says how much anonymous memory a process has")


def _header(num_parameters: int) -> bytes:
    """What a safetensors file of one float32 tensor of this size begins with."""
    small = to_bytes({"weight": np.zeros(1, np.float32)})
    document = json.loads(small[8 : 8 + int.from_bytes(small[:8], "little")])
    document["weight"]["shape"], document["weight"]["data_offsets"] = [num_parameters], [0, 4 * num_parameters]
    text = json.dumps(document, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _write_model(folder: Path, header: bytes, num_parameters: int, mark: float) -> BlobRef:
    """A model of which every 1024th block of 4 KiB has numbers, and the rest is a hole in the file."""
    size_bytes = len(header) + 4 * num_parameters
    path = folder / "writing"
    with path.open("wb") as file:
        file.write(header)
        file.truncate(size_bytes)
        numbers = np.full(min(1024, num_parameters), mark, np.float32).tobytes()
        for offset in range(len(header), size_bytes - len(numbers) + 1, 1024 * 4096):
            file.seek(offset)
            file.write(numbers)
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    target = folder / "blobs" / sha256[:2] / sha256
    target.parent.mkdir(parents=True, exist_ok=True)
    path.rename(target)
    return BlobRef(MODEL, sha256, size_bytes)


def _write(folder: Path, role: str, data: bytes) -> BlobRef:
    sha256 = hashlib.sha256(data).hexdigest()
    target = folder / "blobs" / sha256[:2] / sha256
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return BlobRef(role, sha256, len(data))


if __name__ == "__main__":
    main()
