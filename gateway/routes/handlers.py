"""The handlers: read the request, ask the aggregator, write the document. Nothing is decided here."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Annotated, Literal

from fastapi import Depends, Header, Path, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from gateway import run_configuration
from gateway.http import problem, sse
from gateway.http.download import download
from gateway.http.json_body import read_json_object
from gateway.http.metrics import GatewayMetrics
from gateway.http.streaming import Stream
from gateway.run_service import AggregatorClient
from shared import documents, types
from shared.config.run import NAME_PATTERN, canonical_json
from shared.errors import BlobTooLarge, MalformedRequest, NotFound, Overloaded
from shared.types import EventQuery
from shared.version import VERSION

SERVICE = "fedplcc gateway"
MAX_EVENT_STREAMS = 256
"""Event streams open at a time; each holds a call to the aggregator open."""
MAX_EVENT_TYPES = 64
"""Types of events that a page may be narrowed to; there are fewer."""
DRAIN_S = 10.0
"""How long the rest of a refused body is read."""
MAX_SEQUENCE = 2**63 - 1
MAX_ROUND = 2**31 - 1
MAX_SIZE = 2**63 - 1
"""Largest size that the protocol can say; the aggregator's limit is far below."""


@dataclass(slots=True)
class Services:
    """What handlers work with, one of each per application."""

    metrics: GatewayMetrics
    host_names: frozenset[str] | None = None
    """By which names it may be asked for besides those of loopback; None for any."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the gateway stops; event streams end then."""
    stream_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_EVENT_STREAMS))
    """Taken by open event streams."""
    aggregator: AggregatorClient | None = None
    """Set while the application is up."""


def _services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


def _aggregator(request: Request) -> AggregatorClient:
    client = _services(request).aggregator
    assert client is not None, "the application's lifespan has not begun"
    return client


Aggregator = Annotated[AggregatorClient, Depends(_aggregator)]
RunId = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", description="The run's id.", examples=["digits-1f0c92ab"])
]
ClientId = Annotated[str, Path(pattern=NAME_PATTERN, description="The client's id.", examples=["ward-3"])]
AfterRound = Annotated[int, Query(ge=-1, le=MAX_ROUND, description="Only rounds after this one.")]
RoundChoice = Annotated[
    int | None, Query(ge=0, le=MAX_ROUND, alias="round", description="The round; the last committed one if not given.")
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=documents.REQUEST_ID,
        description="Chosen by the caller. The same key with the same configuration gives the same run, however often "
        "it is sent; with another configuration it is refused. A random one if not given.",
    ),
]
SteeringKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=documents.REQUEST_ID,
        description="Chosen by the caller. A key that was done changes nothing more, whatever was asked for since, and is "
        "answered with the run as it is now; with another wish it is refused.",
    ),
]
EventType = Annotated[str, Field(pattern=r"^[a-z_]{1,64}$")]
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", description="Sequence of the last event that was received.")
]


# Runs


async def create_run(
    request: Request, response: Response, aggregator: Aggregator, idempotency_key: IdempotencyKey = None
) -> documents.Run:
    """Create a run; it starts when its roster is met.

    The body is the run's configuration as a person writes it in TOML, as JSON.
    """
    document = await read_json_object(request)
    key = _request_id(idempotency_key) or uuid.uuid4().hex
    run = documents.Run.of(await aggregator.create_run(canonical_json(document), request_id=key))
    response.headers["Location"] = run.links.self
    return run


async def get_run_configuration() -> documents.RunConfigurationForm:
    """Describe what a run may be configured with: every key with its meaning, range and default, methods and models."""
    return await asyncio.to_thread(run_configuration.form)  # at first it reads the source of every section


async def check_run_configuration(request: Request) -> documents.ConfigurationCheck:
    """Say what is wrong with a run's configuration, key by key, or what it comes to. Nothing is created.

    The body is what would be posted to start the run. The aggregator is not asked: whether a model or a run to begin with is
    there, and whether its lease allows quorum.silence_s, it says when the run is started.
    """
    document = await read_json_object(request)
    return await asyncio.to_thread(run_configuration.check, document)


async def put_model(
    request: Request,
    aggregator: Aggregator,
    sha256: Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the file.")],
    name: Annotated[
        str,
        Query(pattern=r"^[^\x00-\x1f\x7f]{0,256}$", description="What people call it, for the history of its runs."),
    ] = "",
) -> documents.InitialModel:
    """Store a model that runs can begin with.

    The body is a safetensors file of float32 and int64 tensors. A run begins with it if its configuration writes what is
    answered as `run.initial_model`. Storing the same file again changes nothing.
    """
    announced = request.headers.get("content-length", "")
    if not announced.isdigit():
        raise HTTPException(411)
    if int(announced) > MAX_SIZE:
        raise BlobTooLarge(f"no model may have {announced} bytes")
    blob, pieces = types.BlobRef(types.MODEL, sha256, int(announced)), request.stream()
    try:
        await aggregator.store_model(blob, name, pieces)
    finally:
        await _drain(pieces)
    return documents.InitialModel.of(blob)


async def list_runs(
    aggregator: Aggregator,
    page_size: Annotated[int, Query(ge=1, le=200)] = 50,
    page_token: Annotated[str, Query(pattern=r"^[!-~]{0,256}$", description="From the page before.")] = "",
) -> documents.RunPage:
    """List runs, newest first."""
    views, token = await aggregator.list_runs(page_size=page_size, page_token=page_token)
    return documents.RunPage.of(views, token)


async def get_run(aggregator: Aggregator, run_id: RunId) -> documents.Run:
    """Show a run and its latest round."""
    return documents.Run.of(await aggregator.get_run(run_id))


async def get_manifest(aggregator: Aggregator, run_id: RunId) -> Response:
    """Fetch run.json: configuration, seed, versions and machine types."""
    view = await aggregator.get_run(run_id)
    return Response(view.manifest_json, media_type="application/json")


async def pause_run(
    aggregator: Aggregator,
    run_id: RunId,
    now: Annotated[bool, Query(description=documents.PauseRequest.model_fields["now"].description)] = False,
    request: documents.PauseRequest | None = None,
    idempotency_key: SteeringKey = None,
) -> documents.Run:
    """Pause a run when its open round commits, or at once. Pausing a paused run changes nothing."""
    at_once = now or (request is not None and request.now)
    key = _request_id(idempotency_key)
    return documents.Run.of(await aggregator.pause_run(run_id, now=at_once, request_id=key))


async def resume_run(aggregator: Aggregator, run_id: RunId, idempotency_key: SteeringKey = None) -> documents.Run:
    """Resume a run, or take back a pause that waits. Resuming a running run changes nothing."""
    return documents.Run.of(await aggregator.resume_run(run_id, request_id=_request_id(idempotency_key)))


async def stop_run(
    aggregator: Aggregator,
    run_id: RunId,
    request: documents.StopRequest | None = None,
    idempotency_key: SteeringKey = None,
) -> documents.Run:
    """Stop a run; its last committed round is kept. Stopping a run that has ended changes nothing."""
    reason, key = request.reason if request else "", _request_id(idempotency_key)
    return documents.Run.of(await aggregator.stop_run(run_id, reason=reason, request_id=key))


async def quarantine_client(
    aggregator: Aggregator,
    run_id: RunId,
    client_id: ClientId,
    request: documents.QuarantineRequest | None = None,
    idempotency_key: SteeringKey = None,
) -> documents.Run:
    """Leave a client out of a run until it is released. What it has committed in the open round stays part of it."""
    reason, key = request.reason if request else "", _request_id(idempotency_key)
    return documents.Run.of(await aggregator.quarantine_client(run_id, client_id, reason=reason, request_id=key))


async def release_client(
    aggregator: Aggregator, run_id: RunId, client_id: ClientId, idempotency_key: SteeringKey = None
) -> documents.Run:
    """Let a quarantined client take part again, with nothing held against it. One that is not quarantined stays as it is."""
    key = _request_id(idempotency_key)
    return documents.Run.of(await aggregator.release_client(run_id, client_id, request_id=key))


# Results


async def list_rounds(
    aggregator: Aggregator,
    run_id: RunId,
    after: AfterRound = -1,
    page_size: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> documents.RoundPage:
    """List rounds in order, with accuracy by domain, loss by term, prototypes and hashes."""
    return documents.RoundPage.of(await aggregator.list_rounds(run_id, after=after, limit=page_size), page_size)


async def get_metrics_lines(aggregator: Aggregator, run_id: RunId, after: AfterRound = -1) -> Response:
    """Fetch metrics.jsonl: a line per committed round, computed values only."""
    return await _lines(aggregator, run_id, after, lambda current: current.results_json)


async def get_timings_lines(aggregator: Aggregator, run_id: RunId, after: AfterRound = -1) -> Response:
    """Fetch timings.jsonl: a line per committed round, seconds, bytes and retries."""
    return await _lines(aggregator, run_id, after, lambda current: current.timings_json)


async def list_evaluations(
    aggregator: Aggregator,
    run_id: RunId,
    round_number: Annotated[
        int | None, Query(ge=0, le=MAX_ROUND, alias="round", description="Only this round; `after` is ignored then.")
    ] = None,
    after: AfterRound = -1,
    page_size: Annotated[int, Query(ge=1, le=100, description="Rounds, not reports.")] = 20,
) -> documents.EvaluationPage:
    """List what clients reported, by round and client: correct and total predictions per class."""
    last = (await aggregator.get_run(run_id)).run.round_number
    wanted = [round_number] if round_number is not None else range(after + 1, min(after + page_size, last) + 1)
    found = [entry for number in wanted for entry in await aggregator.list_evaluations(run_id, number)]
    is_more = round_number is None and after + page_size < last
    return documents.EvaluationPage(
        evaluations=[documents.Evaluation.of(*entry) for entry in found],
        next_after=after + page_size if is_more else None,
    )


async def get_model(
    request: Request, aggregator: Aggregator, run_id: RunId, round_number: RoundChoice = None
) -> Response:
    """Download the global model of a round as safetensors."""
    return await download(request, aggregator, run_id, "model", round_number)


async def get_prototypes(
    request: Request, aggregator: Aggregator, run_id: RunId, round_number: RoundChoice = None
) -> Response:
    """Download the global prototypes of a round as safetensors."""
    return await download(request, aggregator, run_id, "prototypes", round_number)


async def get_prototype_map(
    aggregator: Aggregator,
    run_id: RunId,
    round_number: Annotated[
        int | None,
        Query(
            ge=0,
            le=MAX_ROUND,
            alias="round",
            description="The round, from 1; the last committed one whose prototypes are there if not given.",
        ),
    ] = None,
) -> documents.PrototypeMap:
    """Show a round's global and local prototypes on a plane that is steady from round to round."""
    number = -1 if round_number is None else round_number
    return documents.PrototypeMap.of(await aggregator.get_prototype_map(run_id, round_number=number))


# Events


async def get_events(
    request: Request,
    aggregator: Aggregator,
    run_id: RunId,
    after: Annotated[int | None, Query(ge=0, le=MAX_SEQUENCE, description="Only events after this sequence.")] = None,
    page_size: Annotated[int, Query(ge=1, le=1000, description="Of a plain page.")] = 500,
    before: Annotated[int, Query(ge=0, le=MAX_SEQUENCE, description="Only events before this; 0 for no limit.")] = 0,
    order: Annotated[Literal["oldest_first", "newest_first"], Query(description="Of a page.")] = "oldest_first",
    types: Annotated[
        tuple[EventType, ...],
        Query(alias="type", max_length=MAX_EVENT_TYPES, description="Only events of these types."),
    ] = (),
    client: Annotated[str, Query(pattern=rf"^$|{NAME_PATTERN}", description="Only events of this client.")] = "",
    last_event_id: LastEventId = None,
) -> Response:
    """Follow a run's history as server-sent events, or read a page of it.

    A stream for who accepts text/event-stream, and for who asks for nothing special; it begins after `Last-Event-ID`, else
    after `after`, and has every event. A page for who accepts application/json only, or gives `after` or what chooses
    events: `before`, `order`, `type` and `client`.
    """
    accepted = request.headers.get("accept", "")
    newest_first = order == "newest_first"
    chooses = bool(before or newest_first or types or client)
    wants_page = sse.MEDIA_TYPE not in accepted and (after is not None or chooses or "application/json" in accepted)
    if chooses and not wants_page:
        raise MalformedRequest("query: before, order, type and client are for pages; accept application/json")
    view = await aggregator.get_run(run_id)
    if not wants_page:
        return _event_stream(_services(request), aggregator, run_id, _cursor(last_event_id, after))
    events = await aggregator.list_events(
        EventQuery(
            run_id=run_id,
            after=after or 0,
            before=before,
            limit=page_size,
            types=types,
            client_id=client,
            newest_first=newest_first,
        )
    )
    # The run was asked for first: one that had ended by then has no more events than there are.
    is_final = view.run.status.is_final and not before
    page = documents.EventPage.of(events, page_size, after=after or 0, newest_first=newest_first, is_final=is_final)
    return Response(page.model_dump_json(), media_type="application/json")


# The federation and the gateway itself


async def list_clients(aggregator: Aggregator) -> documents.ClientList:
    """List every client that ever joined, and what it is doing."""
    return documents.ClientList(clients=[documents.Client.of(client) for client in await aggregator.list_clients()])


async def list_problems() -> documents.ProblemKinds:
    """Describe every kind of problem that this API answers with."""
    return documents.ProblemKinds(problems=[kind.document for kind in problem.KINDS.values()])


async def get_problem(code: Annotated[str, Path(pattern=r"^[A-Z_]{1,64}$")]) -> documents.ProblemKind:
    """Describe a kind of problem; the `type` of a problem document refers to this."""
    kind = problem.KINDS.get(code)
    if kind is None:
        raise NotFound(f"there is no problem {code}")
    return kind.document


async def live() -> documents.Health:
    """Say that the process serves; touches nothing else."""
    return documents.Health(status="ok", service=SERVICE, version=VERSION)


async def ready(aggregator: Aggregator) -> documents.Readiness:
    """Say whether requests can be served: the aggregator answers and serves."""
    await aggregator.check_health()
    return documents.Readiness(status="ok", service=SERVICE, version=VERSION, checks={"aggregator": "ok"})


async def get_metrics(request: Request) -> Response:
    """Expose this process's metrics for Prometheus."""
    return Response(generate_latest(_services(request).metrics.registry), media_type=CONTENT_TYPE_LATEST)


# Parts of the above


def _request_id(idempotency_key: str | None) -> str:
    """What the header says, with or without the quotes of its standard; empty for none."""
    return (idempotency_key or "").strip('"')


async def _lines(aggregator: AggregatorClient, run_id: str, after: int, line: Callable[[types.Round], str]) -> Response:
    """The lines of the committed rounds after one. The first are asked for at once, so that a refusal is an answer."""
    first = await aggregator.some_rounds(run_id, after=after)

    async def content() -> AsyncGenerator[str, None]:
        rounds, has_more = first
        while True:
            yield "".join(f"{text}\n" for text in map(line, rounds) if text)
            if not has_more:
                return
            rounds, has_more = await aggregator.some_rounds(run_id, after=rounds[-1].number)

    return Stream(content(), media_type="application/x-ndjson")


def _event_stream(services: Services, aggregator: AggregatorClient, run_id: str, after: int) -> Response:
    if services.stream_slots.locked():
        raise Overloaded(f"{MAX_EVENT_STREAMS} event streams are open; read pages with ?after= instead")

    async def content() -> AsyncGenerator[str, None]:
        async with services.stream_slots:
            with services.metrics.event_streams.track_inprogress():
                items = sse.follow_run(aggregator, run_id, after=after)
                async with aclosing(sse.frames(items, stopping=services.stopping)) as frames:
                    async for frame in frames:
                        yield frame

    return Stream(content(), headers=sse.HEADERS, media_type=sse.MEDIA_TYPE)


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read what a sender still sends, for a while: most read no answer before they have sent everything."""
    with suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(DRAIN_S):
            async for _ in pieces:
                pass


def _cursor(last_event_id: str | None, after: int | None) -> int:
    if not last_event_id:
        return after or 0
    if not re.fullmatch(r"[0-9]{1,19}", last_event_id) or int(last_event_id) > MAX_SEQUENCE:
        raise MalformedRequest("header.Last-Event-ID: it is not the id of an event of this stream")
    return int(last_event_id)
