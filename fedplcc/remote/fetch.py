"""Download of a run's results from a gateway."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fedplcc.remote.rest_client import Gateway
from fedplcc.runs.artifacts import (
    BEST_MODEL,
    BEST_PROTOTYPES,
    MODEL,
    PROTOTYPES,
    RunRecord,
    blob_file,
    claim_folder,
    write_record,
)
from fedplcc.shared.errors import BlobNotFound
from fedplcc.shared.types import BlobRef

OnBytes = Callable[[str, int, int], None]
"""Told a file's name, how many bytes of it just came, and how many there are."""


async def fetch_run(
    gateway: Gateway, run_id: str, folder: Path, on_bytes: OnBytes = lambda name, count, total: None
) -> RunRecord:
    """Write a run's committed results into a folder.

    Raises:
        RunNotFound, RoundNotFound: There is no such run, or it has committed nothing.
        InvalidConfig: The folder holds another run.
        PayloadCorrupt: What came does not have its SHA-256.
        StoreUnavailable: The folder cannot be written.
        Unavailable: The gateway or its aggregator is away.
    """
    run = await gateway.get_run(run_id)
    metrics, timings = await gateway.lines(run_id, "metrics"), await gateway.lines(run_id, "timings")
    # A round may commit at any moment: from here on everything is of the last round whose metrics came.
    number = json.loads(metrics[-1])["round"] if metrics else 0
    timings = [line for line in timings if json.loads(line)["round"] <= number]
    blobs = await gateway.results(run_id, number)
    claim_folder(folder, run_id)
    record = RunRecord(
        manifest=await gateway.manifest(run_id),
        status=run.status.value,
        reason=run.reason,
        metrics_lines=metrics,
        timings_lines=timings,
        model=blobs[0],
        prototypes=blobs[1],
    )
    await _fetch_results(gateway, run_id, number, (folder / MODEL, folder / PROTOTYPES), on_bytes)
    if record.best is not None:
        with suppress(BlobNotFound):  # a better round may have committed since, and this one been collected
            names = (folder / BEST_MODEL, folder / BEST_PROTOTYPES)
            await _fetch_results(gateway, run_id, record.best.round, names, on_bytes)
    write_record(folder, record)
    return record


async def _fetch_results(
    gateway: Gateway, run_id: str, number: int, paths: tuple[Path, Path], on_bytes: OnBytes
) -> None:
    """Write the model and the prototypes of a round."""
    for path, blob in zip(paths, await gateway.results(run_id, number), strict=True):
        await _download(gateway, run_id, number, blob, path, on_bytes)


async def _download(gateway: Gateway, run_id: str, number: int, blob: BlobRef, path: Path, on_bytes: OnBytes) -> None:
    with blob_file(path, blob) as file:
        await gateway.download(
            run_id,
            blob,
            file,
            round_number=number,
            on_bytes=lambda count: on_bytes(path.name, count, blob.size_bytes),
        )
