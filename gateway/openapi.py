"""The description of the API: every operation with its problem documents, and what the framework cannot derive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from gateway.http import problem
from gateway.run_configuration import described, section_kinds
from shared.config.run import RunConfig
from shared.documents import EventPage, FieldProblem, Problem
from shared.errors import AggregatorUnavailable, FedplccError, Internal, MalformedRequest, StoreUnavailable
from shared.version import VERSION

TITLE = "fedplcc gateway"
SUMMARY = "Start, watch and stop federated training runs."
DESCRIPTION = """
Every error is an `application/problem+json` document whose `code` is stable; `type` leads to its description.
Starting, pausing, resuming and stopping with an `Idempotency-Key` may be repeated at any time: twice equals once. Without
one, pausing, resuming and stopping may be repeated too, as long as nothing else was asked for in between.
Pages are bounded and followed by a cursor. Progress comes as server-sent events or as pages.
"""
TAGS = (
    {"name": "runs", "description": "Start and steer runs."},
    {"name": "results", "description": "What runs computed."},
    {"name": "events", "description": "What happened, as it happens."},
    {"name": "federation", "description": "Who takes part."},
    {"name": "service", "description": "The gateway itself."},
)
REF = "#/components/schemas/{model}"
ALWAYS: tuple[type[FedplccError], ...] = (Internal,)
"""Problems that any operation may have."""
OF_AGGREGATOR: tuple[type[FedplccError], ...] = (MalformedRequest, AggregatorUnavailable, StoreUnavailable)
"""Problems of operations that ask the aggregator."""
EXAMPLE = {
    "run": {"name": "digits", "method": "fedplcc", "rounds": 30, "seed": 0, "clients": ["mnist", "optdigits"]},
    "method": {"lambda1": 100.0},
    "model": {"name": "resnet10"},
    "data": {"classes": ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"], "image_size": 32},
    "training": {"local_steps": 10, "batch_size": 32},
}

JSON_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": REF.format(model="RunConfiguration")}, "example": EXAMPLE}},
    }
}
"""The body that starts a run."""

MODEL_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
"""The body that is a model."""

CHECK_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        # Any object: what is wrong with it is the answer, not a refusal.
        "content": {"application/json": {"schema": {"type": "object"}, "example": EXAMPLE}},
    }
}
"""The body that would start a run."""

CREATED: dict[int | str, Any] = {
    202: {
        "description": "The run, created now or by an earlier request with the same key.",
        "headers": {"Location": {"description": "Where the run is.", "schema": {"type": "string"}}},
    }
}
_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_ENTITY = {
    "ETag": {"description": "SHA-256 of the whole file, in quotes.", "schema": {"type": "string"}},
    "Content-Disposition": {"description": "A name for the file.", "schema": {"type": "string"}},
}
FILE: dict[int | str, Any] = {
    200: {"description": "The whole file.", "content": _BINARY, "headers": _ENTITY},
    206: {
        "description": "The file from the byte that `Range: bytes=N-` names.",
        "content": _BINARY,
        "headers": _ENTITY,
    },
    304: {"description": "The file is the one that `If-None-Match` names."},
}
LINES: dict[int | str, Any] = {
    200: {
        "description": "JSON objects, one a line.",
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
}
MANIFEST: dict[int | str, Any] = {
    200: {"description": "The content of run.json.", "content": {"application/json": {"schema": {"type": "object"}}}}
}
_FRAME = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "id": {"type": "string", "description": "Sequence of the event; `Last-Event-ID` resumes after it."},
        "event": {
            "type": "string",
            "description": "The event's type; `end` and `problem` are the last frame of a stream.",
        },
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"oneOf": [{"$ref": REF.format(model=name)} for name in ("Event", "Run", "Problem")]},
        },
    },
}
EVENTS: dict[int | str, Any] = {
    200: {
        "description": "Server-sent events, or a page.",
        "content": {
            "text/event-stream": {"itemSchema": _FRAME},
            "application/json": {"schema": {"$ref": REF.format(model="EventPage")}},
        },
    }
}
METRICS: dict[int | str, Any] = {
    200: {"description": "Prometheus text.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


def problem_responses(kinds: Iterable[problem.Kind]) -> dict[int | str, Any]:
    """Documentation of an operation's problems, by status; `default` covers what HTTP itself refuses."""
    by_status: dict[int, list[problem.Kind]] = {}
    for kind in kinds:
        by_status.setdefault(kind.status, []).append(kind)
    responses: dict[int | str, Any] = {
        status: _documented(" ".join(f"{kind.code}: {kind.description}" for kind in found))
        for status, found in sorted(by_status.items())
    }
    return responses | {"default": _documented("Any other problem.")}


def describe(app: FastAPI) -> Mapping[str, Any]:
    """The OpenAPI document of the application, made once."""
    if not app.openapi_schema:
        document = get_openapi(
            title=TITLE,
            version=VERSION,
            summary=SUMMARY,
            description=DESCRIPTION.strip(),
            routes=app.routes,
            tags=list(TAGS),
        )
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        _, extra = models_json_schema(
            [(model, "serialization") for model in (Problem, FieldProblem, EventPage)], ref_template=REF
        )
        schemas.update(extra["$defs"] | {"RunConfiguration": run_configuration_schema(schemas)})
        app.openapi_schema = document
    return app.openapi_schema


def run_configuration_schema(schemas: dict[str, Any]) -> Mapping[str, Any]:
    """The schema of a run's configuration as a person writes it; the sections' own schemas are added to `schemas`."""
    schema = RunConfig.model_json_schema(ref_template=REF)
    sections = schema.pop("$defs")
    for _, kind in section_kinds():
        described(sections[kind.__name__], kind)
    schemas.update(sections)
    method = {"type": "object", "description": "The method's hyper-parameters; defaults from its paper."}
    schema["properties"]["method"] = method
    schema["required"] = ["run", "data"]
    return {**schema, "title": "RunConfiguration"}


def _documented(text: str) -> dict[str, Any]:
    schema = {"$ref": REF.format(model="Problem")}
    return {"description": text, "content": {problem.MEDIA_TYPE: {"schema": schema}}}
