"""Operations that start, show and steer runs, and check configurations."""

from __future__ import annotations

import asyncio
import uuid
from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import AwareDatetime, Field

from fedplcc.gateway import run_configuration
from fedplcc.gateway.http.bodies.json_body import with_json_object
from fedplcc.gateway.http.described.operations import SCHEMA, Operations
from fedplcc.gateway.routes.dependencies import Aggregator, needs, services_of
from fedplcc.gateway.routes.parameters import (
    RUN_PATH,
    ClientId,
    IdempotencyKey,
    PageToken,
    RunId,
    SteeringKey,
    request_id_of,
)
from fedplcc.shared import documents
from fedplcc.shared.bounds import MAX_SEARCHED, MAX_TAGS, TAG_PATTERN
from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.errors import (
    BlobNotFound,
    ClientNotFound,
    InvalidConfig,
    InvalidTransition,
    MalformedRequest,
    Overloaded,
    RequestIdReused,
    RoundNotFound,
    RunIsOpen,
    RunNotFound,
    TooManyCalls,
    TooManyOpenRuns,
)
from fedplcc.shared.identity.api_keys import Scope
from fedplcc.shared.run_lists import MAX_BY_SCORE, LabelChange, RunOrder, RunQuery, RunShow
from fedplcc.shared.steering import (
    AdmitClient,
    AdvanceStage,
    ExtendRun,
    PauseRun,
    QuarantineClient,
    ReleaseClient,
    ResumeRun,
    RetireClient,
    StopRun,
    Verb,
)
from fedplcc.shared.types import RunStatus

OPERATIONS = Operations("runs")
EXAMPLE = {
    "run": {"name": "digits", "method": "fedplcc", "rounds": 30, "seed": 0, "clients": ["mnist", "optdigits"]},
    "method": {"lambda1": 100.0},
    "model": {"name": "resnet10"},
    "data": {"classes": ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"], "image_size": 32},
    "training": {"local_steps": 10, "batch_size": 32},
}
"""A run's configuration."""
RUNS_PATH = "/v1/runs"
_CONFIGURATION = "/v1/run-configuration"
CHECK_PATH = f"{_CONFIGURATION}/check"
_CREATED: dict[int | str, Any] = {
    202: {
        "description": "The run, created now or by an earlier request with the same key.",
        "headers": {"Location": {"description": "The run's path.", "schema": {"type": "string"}}},
    }
}


@OPERATIONS.add(
    "POST",
    RUNS_PATH,
    status=202,
    refusals=(
        InvalidConfig,
        RequestIdReused,
        RunNotFound,
        RoundNotFound,
        BlobNotFound,
        TooManyOpenRuns,
        TooManyCalls,
        Overloaded,
    ),
    http_refusals=(413, 415),
    responses=_CREATED,
    body={"application/json": {"schema": {"$ref": SCHEMA.format(model="RunConfiguration")}, "example": EXAMPLE}},
)
async def create_run(
    request: Request, response: Response, aggregator: Aggregator, idempotency_key: IdempotencyKey = None
) -> documents.Run:
    """Create a run; it starts when its roster is met.

    The body is the run's configuration as JSON, with the sections and keys of the TOML file.
    """
    config_json = await with_json_object(request, services_of(request).turns, canonical_json)
    key = request_id_of(idempotency_key) or uuid.uuid4().hex
    run = documents.Run.of(await aggregator.create_run(config_json, request_id=key))
    response.headers["Location"] = run.links.self
    request.state.run_id = run.run_id  # its address does not name it
    return run


@OPERATIONS.add("GET", _CONFIGURATION, calls_aggregator=False, dependencies=(needs(Scope.READ),))
async def get_run_configuration() -> documents.RunConfigurationForm:
    """Describe a run's configuration: every key with its meaning, range and default, the methods and the models."""
    return await asyncio.to_thread(run_configuration.form)  # the first call reads the source of every section


@OPERATIONS.add(
    "POST",
    CHECK_PATH,
    refusals=(MalformedRequest, Overloaded),
    http_refusals=(413, 415),
    # Any object: its problems are the answer, not a refusal.
    body={"application/json": {"schema": {"type": "object"}, "example": EXAMPLE}},
    calls_aggregator=False,
    dependencies=(needs(Scope.READ),),
)
async def check_run_configuration(request: Request) -> documents.ConfigurationCheck:
    """List the problems of a run's configuration by key, or return it with its defaults. Nothing is created.

    The body is that of the request that starts the run. The aggregator is not called: it checks when the run starts
    whether the run or model to begin with exists and whether its lease allows quorum.silence_s.
    """
    return await with_json_object(request, services_of(request).turns, run_configuration.check)


@OPERATIONS.add("GET", RUNS_PATH)
async def list_runs(
    aggregator: Aggregator,
    status: Annotated[
        list[RunStatus],
        Query(
            max_length=len(RunStatus), description="Only runs with one of these; `running` has those that are stopping."
        ),
    ] = [],  # noqa: B006  (the framework copies it)
    method: Annotated[str, Query(pattern=r"^[!-~]{0,256}$", description="Only runs of this method.")] = "",
    name: Annotated[
        str,
        Query(max_length=MAX_SEARCHED, description="Only runs with this in their name or id; case does not matter."),
    ] = "",
    tag: Annotated[
        list[Annotated[str, Field(pattern=TAG_PATTERN)]],
        Query(max_length=MAX_TAGS, description="Only runs with all of these tags."),
    ] = [],  # noqa: B006
    since: Annotated[
        AwareDatetime | None,
        Query(description="Only runs created then or later.", examples=["2026-11-23T00:00:00Z"]),
    ] = None,
    order: Annotated[
        RunOrder,
        Query(
            description="`newest` and `oldest` by creation, `updated` by the last change, `took` by duration, `rounds`, "
            "`mean` and `worst` with the greatest first; `name`, `status` and `method` by the alphabet. By `mean` and "
            f"`worst` at most {MAX_BY_SCORE} runs that match are sorted."
        ),
    ] = RunOrder.NEWEST,
    reverse: Annotated[
        bool, Query(description="The order turned round; runs without a value come last all the same.")
    ] = False,
    show: Annotated[RunShow, Query(description="`current` runs are neither archived nor deleted.")] = RunShow.CURRENT,
    page_size: Annotated[int, Query(ge=1, le=200)] = 50,
    page_token: PageToken = "",
) -> documents.RunPage:
    """List the runs that match all filters, with the numbers of runs by status."""
    query = RunQuery(
        statuses=tuple(status),
        method=method,
        name=name,
        tags=tuple(tag),
        since=None if since is None else since.timestamp(),
        order=order,
        is_reversed=reverse,
        show=show,
        limit=page_size,
    )
    return documents.RunPage.of(*await aggregator.list_runs(query, page_token=page_token))


@OPERATIONS.add("GET", RUN_PATH, refusals=(RunNotFound,))
async def get_run(aggregator: Aggregator, run_id: RunId) -> documents.Run:
    """Return a run and its latest round."""
    return documents.Run.of(await aggregator.get_run(run_id))


@OPERATIONS.add("PATCH", RUN_PATH, refusals=(RunNotFound, RunIsOpen, RequestIdReused), http_refusals=(413, 415))
async def update_run(
    aggregator: Aggregator, run_id: RunId, request: documents.RunChange, idempotency_key: SteeringKey = None
) -> documents.Run:
    """Change what people note about a run: tags, notes, archive. Nothing of its training changes."""
    change = LabelChange(
        tags=None if request.tags is None else tuple(request.tags),
        notes=request.notes,
        is_archived=request.is_archived,
    )
    return documents.Run.of(await aggregator.update_run(run_id, change, request_id=request_id_of(idempotency_key)))


@OPERATIONS.add("DELETE", RUN_PATH, refusals=(RunNotFound, RunIsOpen, Overloaded))
async def delete_run(aggregator: Aggregator, run_id: RunId) -> documents.DeletedRun:
    """Delete a run that has ended, and each blob that no other run needs.

    Its line stays: `show=deleted` lists it. Its id is never used again, and its events and the audit stay.
    """
    return documents.DeletedRun(run_id=run_id, freed_bytes=await aggregator.delete_run(run_id))


@OPERATIONS.add(
    "POST", f"{RUN_PATH}/pause", refusals=(RunNotFound, InvalidTransition, RequestIdReused), http_refusals=(413,)
)
async def pause_run(
    aggregator: Aggregator,
    run_id: RunId,
    now: Annotated[bool, Query(description=documents.PauseRequest.model_fields["now"].description)] = False,
    request: documents.PauseRequest | None = None,
    idempotency_key: SteeringKey = None,
) -> documents.Run:
    """Pause a run when its open round commits, or at once. Pausing a paused run changes nothing."""
    at_once = now or (request is not None and request.now)
    return await _steered(aggregator, run_id, PauseRun(at_once), idempotency_key)


@OPERATIONS.add("POST", f"{RUN_PATH}/resume", refusals=(RunNotFound, InvalidTransition, RequestIdReused))
async def resume_run(aggregator: Aggregator, run_id: RunId, idempotency_key: SteeringKey = None) -> documents.Run:
    """Resume a run, or withdraw a pause that waits. Resuming a running run changes nothing."""
    return await _steered(aggregator, run_id, ResumeRun(), idempotency_key)


@OPERATIONS.add("POST", f"{RUN_PATH}/stop", refusals=(RunNotFound, RequestIdReused), http_refusals=(413,))
async def stop_run(
    aggregator: Aggregator,
    run_id: RunId,
    request: documents.StopRequest | None = None,
    idempotency_key: SteeringKey = None,
) -> documents.Run:
    """Stop a run; its last committed round is kept. Stopping a run that has ended changes nothing."""
    return await _steered(aggregator, run_id, StopRun(request.reason if request else ""), idempotency_key)


@OPERATIONS.add(
    "POST",
    f"{RUN_PATH}/extend",
    refusals=(RunNotFound, InvalidTransition, InvalidConfig, TooManyOpenRuns, RequestIdReused),
    http_refusals=(413,),
)
async def extend_run(
    aggregator: Aggregator,
    run_id: RunId,
    request: documents.ExtendRequest,
    idempotency_key: SteeringKey = None,
) -> documents.Run:
    """Let a completed run go on to more rounds; from there on it is the run that was longer from the start."""
    return await _steered(aggregator, run_id, ExtendRun(request.rounds), idempotency_key)


@OPERATIONS.add(
    "POST",
    f"{RUN_PATH}/clients/{{client_id}}/quarantine",
    refusals=(RunNotFound, ClientNotFound, InvalidTransition, RequestIdReused),
    http_refusals=(413,),
)
async def quarantine_client(
    aggregator: Aggregator,
    run_id: RunId,
    client_id: ClientId,
    request: documents.QuarantineRequest | None = None,
    idempotency_key: SteeringKey = None,
) -> documents.Run:
    """Exclude a client from a run until its release. The open round keeps what the client has committed."""
    verb = QuarantineClient(client_id, request.reason if request else "")
    return await _steered(aggregator, run_id, verb, idempotency_key)


@OPERATIONS.add(
    "POST",
    f"{RUN_PATH}/clients/{{client_id}}/release",
    refusals=(RunNotFound, ClientNotFound, InvalidTransition, RequestIdReused),
)
async def release_client(
    aggregator: Aggregator, run_id: RunId, client_id: ClientId, idempotency_key: SteeringKey = None
) -> documents.Run:
    """End a client's quarantine and forget its refused updates. Releasing a client without quarantine changes nothing."""
    return await _steered(aggregator, run_id, ReleaseClient(client_id), idempotency_key)


@OPERATIONS.add(
    "PUT",
    f"{RUN_PATH}/clients/{{client_id}}",
    refusals=(RunNotFound, ClientNotFound, InvalidTransition, RequestIdReused),
)
async def admit_client(
    aggregator: Aggregator, run_id: RunId, client_id: ClientId, idempotency_key: SteeringKey = None
) -> documents.Run:
    """Admit a client to a run from the next round on. Admitting a client that takes part changes nothing."""
    return await _steered(aggregator, run_id, AdmitClient(client_id), idempotency_key)


@OPERATIONS.add(
    "DELETE",
    f"{RUN_PATH}/clients/{{client_id}}",
    refusals=(RunNotFound, ClientNotFound, InvalidTransition, RequestIdReused),
)
async def retire_client(
    aggregator: Aggregator,
    run_id: RunId,
    client_id: ClientId,
    forget: Annotated[
        bool,
        Query(description="Leave its earlier prototypes out of later pools, and let its trainer delete what it keeps."),
    ] = False,
    idempotency_key: SteeringKey = None,
) -> documents.Run:
    """Retire a client from a run: its part in the open round ends, and no later round has it.

    The open round keeps what the client has committed. Refused where the run's rounds would wait for ever without it.
    """
    return await _steered(aggregator, run_id, RetireClient(client_id, forget), idempotency_key)


@OPERATIONS.add("POST", f"{RUN_PATH}/stages", refusals=(RunNotFound, InvalidTransition, RequestIdReused))
async def advance_stage(aggregator: Aggregator, run_id: RunId, idempotency_key: SteeringKey = None) -> documents.Run:
    """End the present stage of a run whose stages people end; the next round begins the next one.

    Asking again before that round has opened changes nothing.
    """
    return await _steered(aggregator, run_id, AdvanceStage(), idempotency_key)


async def _steered(aggregator: Aggregator, run_id: str, verb: Verb, idempotency_key: str | None) -> documents.Run:
    return documents.Run.of(await aggregator.steer(run_id, verb, request_id=request_id_of(idempotency_key)))
