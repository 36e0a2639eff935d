"""The OpenAPI document: the operations, and the schemas that the framework does not derive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from gateway.http.operations import SCHEMA
from gateway.run_configuration import described, section_kinds
from shared.config.run import RunConfig
from shared.documents import EventPage, FieldProblem, Problem
from shared.version import VERSION

TITLE = "fedplcc gateway"
SUMMARY = "Start, watch and stop federated training runs."
DESCRIPTION = """
Every error is an `application/problem+json` document. Its `code` never changes; its `type` leads to a description.
A request that starts, pauses, resumes or stops a run may be repeated at any time with its `Idempotency-Key`: it counts once.
Without a key, pausing, resuming and stopping may be repeated as long as no other request came in between.
Pages are bounded; a cursor leads to the next page. A run's events come as server-sent events or as pages.
"""
TAGS = (
    {"name": "runs", "description": "Start and steer runs."},
    {"name": "results", "description": "Results of runs."},
    {"name": "events", "description": "Histories of runs, live or as pages."},
    {"name": "federation", "description": "Clients of the federation."},
    {"name": "service", "description": "The gateway itself."},
)


def describe(app: FastAPI) -> Mapping[str, Any]:
    """Return the OpenAPI document of the application; it is built once."""
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
            [(model, "serialization") for model in (Problem, FieldProblem, EventPage)], ref_template=SCHEMA
        )
        schemas.update(extra["$defs"] | {"RunConfiguration": run_configuration_schema(schemas)})
        app.openapi_schema = document
    return app.openapi_schema


def run_configuration_schema(schemas: dict[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a run's configuration, and add the schemas of its sections to `schemas`."""
    schema = RunConfig.model_json_schema(ref_template=SCHEMA)
    sections = schema.pop("$defs")
    for _, kind in section_kinds():
        described(sections[kind.__name__], kind)
    schemas.update(sections)
    method = {"type": "object", "description": "The method's hyper-parameters; defaults from its paper."}
    schema["properties"]["method"] = method
    schema["required"] = ["run", "data"]
    return {**schema, "title": "RunConfiguration"}
