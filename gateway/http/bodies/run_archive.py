"""All files of a run as one ZIP archive, made while it is sent: one piece of one file is in memory at a time."""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from fedplcc.gateway.run_service import ArtifactKind, RunServiceClient
from fedplcc.shared.convert.runs import RunView
from fedplcc.shared.errors import BlobNotFound

FIRST_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest date that a ZIP archive can hold."""


async def archive_of(aggregator: RunServiceClient, view: RunView, last: int) -> AsyncGenerator[bytes, None]:
    """Yield the archive: what `fedplcc run fetch` writes but the picture, up to a committed round.

    Args:
        last: Its last committed round; the files are of the run as it was then.

    Raises:
        FedplccError: A file cannot be read; the archive breaks off.
    """
    run_id, pieces = view.run.run_id, _Pieces()
    files: list[tuple[str, AsyncGenerator[bytes, None]]] = [
        ("run.json", _text(_manifest(view))),
        ("metrics.jsonl", _lines(aggregator, run_id, last, "results_json")),
        ("timings.jsonl", _lines(aggregator, run_id, last, "timings_json")),
        ("model.safetensors", _artifact(aggregator, run_id, "model", last)),
        ("prototypes.safetensors", _artifact(aggregator, run_id, "prototypes", last)),
    ]
    if view.best_round is not None and view.best_round <= last:
        files += [
            ("model-best.safetensors", _artifact(aggregator, run_id, "model", view.best_round)),
            ("prototypes-best.safetensors", _artifact(aggregator, run_id, "prototypes", view.best_round)),
        ]
    date = max(time.gmtime(view.run.updated_at)[:6], FIRST_DATE)
    with zipfile.ZipFile(pieces, "w") as archive:
        for name, content in files:
            async with aclosing(content):
                first = await _first(content)
                if first is None:
                    continue  # the best round's model, of which a better one has taken the place since
                info = zipfile.ZipInfo(f"{run_id}/{name}", date)
                is_text = not name.endswith(".safetensors")
                info.compress_type = zipfile.ZIP_DEFLATED if is_text else zipfile.ZIP_STORED
                with archive.open(info, "w", force_zip64=True) as member:
                    member.write(first)
                    yield pieces.take()
                    async for piece in content:
                        member.write(piece)
                        yield pieces.take()
    yield pieces.take()


class _Pieces:
    """A file that is only written to, from the front to the end; what was written is taken out."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: bytes, /) -> int:
        """Append."""
        self._written.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: there is nothing to wait for."""

    def close(self) -> None:
        """Do nothing: what is left is taken out afterwards."""

    def take(self) -> bytes:
        """Return what was written since the last time."""
        written, self._written = b"".join(self._written), []
        return written


async def _first(content: AsyncIterator[bytes]) -> bytes | None:
    try:
        return await anext(content, b"")
    except BlobNotFound:
        return None


def _manifest(view: RunView) -> str:
    return json.dumps(json.loads(view.manifest_json), sort_keys=True, indent=2, allow_nan=False) + "\n"


async def _text(text: str) -> AsyncGenerator[bytes, None]:
    yield text.encode()


async def _lines(aggregator: RunServiceClient, run_id: str, last: int, column: str) -> AsyncGenerator[bytes, None]:
    after, has_more = -1, True
    while has_more and after < last:
        rounds, has_more = await aggregator.some_rounds(run_id, after=after)
        texts = [getattr(current, column) for current in rounds if current.number <= last]
        yield "".join(f"{text}\n" for text in texts if text).encode()
        after = rounds[-1].number if rounds else last


async def _artifact(
    aggregator: RunServiceClient, run_id: str, kind: ArtifactKind, number: int
) -> AsyncGenerator[bytes, None]:
    artifact = await aggregator.fetch_artifact(run_id, kind, round_number=number)
    try:
        async for piece in artifact.chunks:
            yield piece
    finally:
        artifact.close()
