"""Downloads of models and prototypes: streamed, named by their SHA-256, resumable.

The entity tag is the SHA-256 of the whole file. A reader can check the file, skip a file that it has (If-None-Match), and
resume a broken transfer (Range: bytes=N-, guarded by If-Range).
"""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from fedplcc.gateway.http.bodies.streaming import Stream
from fedplcc.gateway.http.guards.slots import Slots
from fedplcc.gateway.http.problem import respond_http
from fedplcc.gateway.run_service import Artifact, ArtifactKind, RunServiceClient
from fedplcc.shared.types import BEST, LAST, BlobRef

MEDIA_TYPE = "application/octet-stream"

_FROM_OFFSET = re.compile(r"bytes=(\d{1,18})-")


async def download(
    request: Request,
    aggregator: RunServiceClient,
    places: Slots,
    run_id: str,
    kind: ArtifactKind,
    number: int,
) -> Response:
    """Answer a GET or HEAD for a file of a committed round; `LAST` and `BEST` are numbers too.

    Raises:
        RunNotFound, RoundNotFound: There is no such run or committed round.
        Overloaded: All places for downloads are taken.
    """
    with places.taken():
        return await _answer(request, aggregator, places, run_id, kind, number)


_WORDS = {LAST: "", BEST: "best-"}
"""Parts of a file's name for choices of a round."""


async def _answer(
    request: Request,
    aggregator: RunServiceClient,
    places: Slots,
    run_id: str,
    kind: ArtifactKind,
    number: int,
) -> Response:
    artifact = await aggregator.fetch_artifact(run_id, kind, round_number=number)
    blob = artifact.blob
    name = f"{run_id}-{_WORDS.get(number, f'round-{number}-')}{kind}"
    headers = _headers(blob, name)
    offset = _offset(request, headers["ETag"])
    if _is_known(request, headers["ETag"]):
        return _without_body(artifact, Response(status_code=304, headers=headers))
    if request.method == "HEAD":
        headers["Content-Length"] = str(blob.size_bytes)
        return _without_body(artifact, Response(headers=headers, media_type=MEDIA_TYPE))
    if offset and offset >= blob.size_bytes:
        refusal = respond_http(416, None, request.scope, {"Content-Range": f"bytes */{blob.size_bytes}"})
        return _without_body(artifact, refusal)
    if offset:
        artifact.close()
        artifact = await aggregator.fetch_artifact(run_id, kind, round_number=number, offset_bytes=offset)
        if artifact.blob == blob:
            headers["Content-Length"] = str(blob.size_bytes - offset)
            headers["Content-Range"] = f"bytes {offset}-{blob.size_bytes - 1}/{blob.size_bytes}"
            return _whole_or_rest(artifact, places, headers, status=206)
        # A round has committed in between: the reader has the beginning of another file.
        artifact.close()
        artifact = await aggregator.fetch_artifact(run_id, kind, round_number=number)
        headers = _headers(artifact.blob, name)
    headers["Content-Length"] = str(artifact.blob.size_bytes)
    return _whole_or_rest(artifact, places, headers)


def _whole_or_rest(artifact: Artifact, places: Slots, headers: dict[str, str], status: int = 200) -> Stream:
    return Stream(
        artifact.chunks,
        status=status,
        headers=headers,
        media_type=MEDIA_TYPE,
        places=places,
        close=artifact.close,
    )


def _headers(blob: BlobRef, name: str) -> dict[str, str]:
    return {
        "ETag": f'"{blob.sha256}"',
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Content-Disposition": f'attachment; filename="{name}.safetensors"',
    }


def _offset(request: Request, etag: str) -> int:
    """Return the first byte wanted. Other ranges, and ranges of another file, mean the whole file (RFC 9110, 14.2)."""
    found = _FROM_OFFSET.fullmatch(request.headers.get("range", ""))
    if found is None or request.headers.get("if-range", etag) != etag:
        return 0
    return int(found[1])


def _is_known(request: Request, etag: str) -> bool:
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    return etag in known or "*" in known


def _without_body(artifact: Artifact, response: Response) -> Response:
    artifact.close()
    return response
