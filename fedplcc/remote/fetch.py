"""Download of a run's results from a gateway."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, get_args

from fedplcc.gateway_client.clients import AsyncGateway, File
from fedplcc.runs.artifacts import (
    BEST_MODEL,
    BEST_PROTOTYPES,
    MODEL,
    PROTOTYPES,
    RunRecord,
    claim_folder,
    write_record,
)
from fedplcc.shared.errors import BlobNotFound, Internal

NAMED = {"config", "method", "name", "seed", "total_rounds"}
"""Keys of every run.json."""
OnBytes = Callable[[str, int, int], None]
"""Told a file's name, how many bytes of it just came, and how many there are."""


async def fetch_run(
    gateway: AsyncGateway, run_id: str, folder: Path, on_bytes: OnBytes = lambda name, count, total: None
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
    metrics, timings = await _lines(gateway, run_id, "metrics"), await _lines(gateway, run_id, "timings")
    # A round may commit at any moment: from here on everything is of the last round whose metrics came.
    number = _round_of(metrics[-1]) if metrics else 0
    timings = [line for line in timings if _round_of(line) <= number]
    blobs = await gateway.results(run_id, number)
    claim_folder(folder, run_id)
    record = RunRecord(
        manifest=await manifest_of(gateway, run_id),
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


async def manifest_of(gateway: AsyncGateway, run_id: str) -> dict[str, Any]:
    """Return the content of a run's run.json.

    Raises:
        RunNotFound: There is no such run.
        Internal: What came is of another run, or no run's.
        Unavailable: The gateway or its aggregator is away.
    """
    found = await gateway.get_manifest(run_id)
    if found.get("run_id") != run_id or not found.keys() >= NAMED:
        raise Internal(f"what answers at {gateway.url} is no fedplcc gateway: its run.json is not of run {run_id}")
    return found


async def _fetch_results(
    gateway: AsyncGateway, run_id: str, number: int, paths: tuple[Path, Path], on_bytes: OnBytes
) -> None:
    """Write the model and the prototypes of a round."""
    for kind, path in zip(get_args(File), paths, strict=True):
        on_piece = partial(on_bytes, path.name)
        await gateway.download(run_id, kind, path, round_number=number, on_bytes=on_piece)


def _round_of(line: str) -> int:
    """Return the round of a line of metrics.jsonl or timings.jsonl."""
    try:
        return int(json.loads(line)["round"])
    except (ValueError, LookupError, TypeError, OverflowError):
        raise Internal("what answers is no fedplcc gateway: it sent lines of rounds that name none") from None


async def _lines(gateway: AsyncGateway, run_id: str, name: str) -> list[str]:
    """The lines of metrics.jsonl or timings.jsonl, byte by byte."""
    return (await gateway.call("GET", f"/v1/runs/{gateway.quoted(run_id)}/{name}.jsonl", str)).splitlines()
