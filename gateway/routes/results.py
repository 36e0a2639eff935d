"""Operations that return the results of runs: rounds, metrics, evaluations, models, prototypes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any

from fastapi import Query, Request, Response

from fedplcc.gateway.http.bodies.download import download
from fedplcc.gateway.http.bodies.run_archive import archive_of
from fedplcc.gateway.http.bodies.streaming import Stream
from fedplcc.gateway.http.described.operations import Operations
from fedplcc.gateway.routes.dependencies import Aggregator, services_of
from fedplcc.gateway.routes.parameters import MAX_ROUND, RUN_PATH, AfterRound, PageToken, RoundChoice, RunId, round_of
from fedplcc.gateway.run_service import RunServiceClient
from fedplcc.shared import documents, types
from fedplcc.shared.convert.reading.page_tokens import number_of, token_of
from fedplcc.shared.convert.runs import RunView
from fedplcc.shared.errors import BlobNotFound, NoPrototypes, Overloaded, PayloadCorrupt, RoundNotFound, RunNotFound
from fedplcc.shared.types import BlobRef, RoundPhase

OPERATIONS = Operations("results")
ZIP = "application/zip"
_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_FILE_HEADERS = {
    "ETag": {"description": "SHA-256 of the whole file, in quotes.", "schema": {"type": "string"}},
    "Content-Disposition": {"description": "A name for the file.", "schema": {"type": "string"}},
}
_FILE: dict[str, Any] = {
    "refusals": (RunNotFound, RoundNotFound, PayloadCorrupt, Overloaded),
    "http_refusals": (416,),
    "responses": {
        200: {"description": "The whole file.", "content": _BINARY, "headers": _FILE_HEADERS},
        206: {
            "description": "The file from byte N of `Range: bytes=N-` on.",
            "content": _BINARY,
            "headers": _FILE_HEADERS,
        },
        304: {"description": "The file has the entity tag of `If-None-Match`."},
    },
}
"""Declaration of an operation that downloads a file."""
_LINES: dict[int | str, Any] = {
    200: {
        "description": "JSON objects, one a line.",
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
}
_MANIFEST: dict[int | str, Any] = {
    200: {"description": "The content of run.json.", "content": {"application/json": {"schema": {"type": "object"}}}}
}


@OPERATIONS.add("GET", f"{RUN_PATH}/manifest", refusals=(RunNotFound,), responses=_MANIFEST)
async def get_manifest(aggregator: Aggregator, run_id: RunId) -> Response:
    """Return run.json: configuration, seed, versions and machine types."""
    view = await aggregator.get_run(run_id)
    return Response(view.manifest_json, media_type="application/json")


@OPERATIONS.add("GET", f"{RUN_PATH}/rounds", refusals=(RunNotFound,))
async def list_rounds(
    aggregator: Aggregator,
    run_id: RunId,
    after: AfterRound = -1,
    page_size: Annotated[int, Query(ge=1, le=1000)] = 200,
    page_token: PageToken = "",
) -> documents.RoundPage:
    """List rounds in order, with accuracy by domain, loss by term, prototypes and hashes."""
    rounds = await aggregator.list_rounds(run_id, after=_start("rounds", after, page_token), limit=page_size)
    following = token_of("rounds", rounds[-1].number) if len(rounds) == page_size else None
    return documents.RoundPage.of(rounds, following)


@OPERATIONS.add("GET", f"{RUN_PATH}/metrics.jsonl", refusals=(RunNotFound, Overloaded), responses=_LINES)
async def get_metrics_lines(
    request: Request, aggregator: Aggregator, run_id: RunId, after: AfterRound = -1
) -> Response:
    """Return metrics.jsonl: a line of computed values for each committed round."""
    return await _lines(request, aggregator, run_id, after, lambda current: current.results_json)


@OPERATIONS.add("GET", f"{RUN_PATH}/timings.jsonl", refusals=(RunNotFound, Overloaded), responses=_LINES)
async def get_timings_lines(
    request: Request, aggregator: Aggregator, run_id: RunId, after: AfterRound = -1
) -> Response:
    """Return timings.jsonl: a line of seconds, bytes and retries for each committed round."""
    return await _lines(request, aggregator, run_id, after, lambda current: current.timings_json)


@OPERATIONS.add("GET", f"{RUN_PATH}/evaluations", refusals=(RunNotFound,))
async def list_evaluations(
    aggregator: Aggregator,
    run_id: RunId,
    round_number: Annotated[
        int | None, Query(ge=0, le=MAX_ROUND, alias="round", description="Only this round; `after` is ignored then.")
    ] = None,
    after: AfterRound = -1,
    page_size: Annotated[int, Query(ge=1, le=100, description="Number of rounds, not of reports.")] = 20,
    page_token: PageToken = "",
) -> documents.EvaluationPage:
    """List the clients' reports by round and client: correct and total predictions per class."""
    start = _start("evaluations", after, page_token)
    last = (await aggregator.get_run(run_id)).run.round_number
    wanted = [round_number] if round_number is not None else range(start + 1, min(start + page_size, last) + 1)
    found = [entry for number in wanted for entry in await aggregator.list_evaluations(run_id, number)]
    is_more = round_number is None and start + page_size < last
    return documents.EvaluationPage(
        evaluations=[documents.Evaluation.of(*entry) for entry in found],
        next_page_token=token_of("evaluations", start + page_size) if is_more else None,
    )


def _start(kind: str, after: int, page_token: str) -> int:
    """Return the round after which a page begins: that of its token, else the one asked for."""
    return max(after, number_of(kind, page_token, most=MAX_ROUND)) if page_token else after


@OPERATIONS.add("GET", f"{RUN_PATH}/model", **_FILE)
async def get_model(
    request: Request, aggregator: Aggregator, run_id: RunId, round_number: RoundChoice = None
) -> Response:
    """Download the global model of a round as safetensors."""
    return await download(request, aggregator, services_of(request).downloads, run_id, "model", round_of(round_number))


@OPERATIONS.add(
    "GET",
    f"{RUN_PATH}/archive",
    refusals=(RunNotFound, RoundNotFound, BlobNotFound, PayloadCorrupt, Overloaded),
    responses={
        200: {"description": "The archive.", "content": {ZIP: {"schema": {"type": "string", "format": "binary"}}}}
    },
)
async def get_archive(request: Request, aggregator: Aggregator, run_id: RunId) -> Response:
    """Download a run's files as one ZIP archive: what `fedplcc run fetch` writes, but the picture.

    It is made while it is sent, so it has no length and cannot be resumed. Its files are of the last committed round.
    """
    places = services_of(request).downloads
    with places.taken():
        view = await aggregator.get_run(run_id)
        artifact = await aggregator.fetch_artifact(run_id, "model")  # refused here, if it is, and not half-way
        artifact.close()
        number = await _round_of(aggregator, view, artifact.blob)
        headers = {"Content-Disposition": f'attachment; filename="{run_id}.zip"', "Cache-Control": "private, no-cache"}
        if request.method == "HEAD":
            return Response(headers=headers, media_type=ZIP)
    return Stream(archive_of(aggregator, view, number), headers=headers, media_type=ZIP, places=places)


@OPERATIONS.add("GET", f"{RUN_PATH}/prototypes", **_FILE)
async def get_prototypes(
    request: Request, aggregator: Aggregator, run_id: RunId, round_number: RoundChoice = None
) -> Response:
    """Download the global prototypes of a round as safetensors."""
    return await download(
        request, aggregator, services_of(request).downloads, run_id, "prototypes", round_of(round_number)
    )


@OPERATIONS.add(
    "GET",
    f"{RUN_PATH}/prototype-map",
    refusals=(RunNotFound, NoPrototypes, RoundNotFound, BlobNotFound, PayloadCorrupt, Overloaded),
)
async def get_prototype_map(
    aggregator: Aggregator,
    run_id: RunId,
    round_number: Annotated[
        int | None,
        Query(
            ge=0,
            le=MAX_ROUND,
            alias="round",
            description="The round, from 1; by default the last committed round whose prototypes are kept.",
        ),
    ] = None,
) -> documents.PrototypeMap:
    """Return a round's global and local prototypes on a plane that stays the same from round to round."""
    number = -1 if round_number is None else round_number
    return documents.PrototypeMap.of(await aggregator.get_prototype_map(run_id, round_number=number))


async def _round_of(aggregator: RunServiceClient, view: RunView, model: BlobRef) -> int:
    """Return the number of the last committed round, whose model is known."""
    number = view.run.round_number
    while number > 0:
        (current,) = await aggregator.list_rounds(view.run.run_id, after=number - 1, limit=1)
        if current.phase is RoundPhase.COMMITTED and current.model == model:
            return number
        number -= 1
    return 0


async def _lines(
    request: Request, aggregator: RunServiceClient, run_id: str, after: int, line: Callable[[types.Round], str]
) -> Response:
    """Stream a line for each committed round after one. The first page is fetched before, so that a refusal is an answer."""
    places = services_of(request).downloads
    with places.taken():
        if request.method == "HEAD":
            await aggregator.get_run(run_id)
            return Response(media_type="application/x-ndjson")
        first = await aggregator.some_rounds(run_id, after=after)

    async def content() -> AsyncGenerator[str, None]:
        rounds, has_more = first
        while True:
            yield "".join(f"{text}\n" for text in map(line, rounds) if text)
            if not has_more:
                return
            rounds, has_more = await aggregator.some_rounds(run_id, after=rounds[-1].number)

    return Stream(content(), media_type="application/x-ndjson", places=places)
