"""The OpenAPI document: the operations, and the schemas that the framework does not derive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from fedplcc.gateway.http.described.examples import add_examples
from fedplcc.gateway.http.described.operations import SCHEMA, problem_response
from fedplcc.gateway.http.guards.key_guard import CONSOLE_HEADER, cookie_name, is_open
from fedplcc.gateway.http.problem import kind_of
from fedplcc.gateway.run_configuration import described, section_kinds
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.documents import EventPage, FieldProblem, Problem
from fedplcc.shared.errors import KeyInvalid, ScopeMissing
from fedplcc.shared.identity.api_keys import Scope
from fedplcc.shared.version import VERSION

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
    {"name": "messages", "description": "Messages to people about what happens."},
    {"name": "callers", "description": "Who calls, and sessions of the console."},
    {"name": "service", "description": "The gateway itself."},
)


SCOPE_OF: Mapping[str, Scope | None] = {
    **dict.fromkeys(("get_model", "get_prototypes", "get_archive", "get_prototype_map"), Scope.RESULTS),
    "list_audit": Scope.ADMIN,
    "test_message_receiver": Scope.ADMIN,
    "get_client_log": Scope.RUN,
    "get_metrics": Scope.METRICS,
    "get_caller": None,
    "end_session": None,
    "check_run_configuration": Scope.READ,
}
"""Scope that a key needs, by operation; None for any key. Of all others it is read for GET and run for changes. The
aggregator decides; a test asks it about every operation."""


def describe(app: FastAPI) -> Mapping[str, Any]:
    """Return the OpenAPI document of the application; it is built once for each federation that the gateway joins."""
    services = app.state.services
    described_for = (services.asks_keys, services.federation)
    if not app.openapi_schema or getattr(app.state, "described_for", None) != described_for:
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
        if services.asks_keys:
            _add_security(document, services.federation)
        add_examples(document)
        app.openapi_schema, app.state.described_for = document, described_for
    return app.openapi_schema


def _add_security(document: dict[str, Any], federation: str) -> None:
    """Describe the keys that this gateway's aggregator asks for, and the refusals of every operation that needs one."""
    document["components"]["securitySchemes"] = {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "description": "A key of `fedplcc key create`: fedpk_ID_SECRET_CRC. Operations name the scope that they need.",
        },
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": cookie_name(federation, is_secure=False),
            "description": "A session of the console, over HTTPS with `__Host-` before its name; "
            f"changes need the header {CONSOLE_HEADER} as well.",
        },
    }
    for path, operations in document["paths"].items():
        if is_open(path):
            continue
        for method, operation in operations.items():
            scope = SCOPE_OF.get(operation["operationId"], Scope.READ if method == "get" else Scope.RUN)
            scopes = [] if scope is None else [scope.value]
            operation["security"] = [{"key": scopes}, {"session": scopes}]
            for error in (KeyInvalid, ScopeMissing):
                kind = kind_of(error)
                text = f"{kind.code}: {kind.description}"
                known = operation["responses"].setdefault(str(kind.status), problem_response(text))
                if kind.code not in known["description"]:
                    known["description"] += f" {text}"


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
