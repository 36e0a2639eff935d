"""Examples of the answers in the OpenAPI document, built from their schemas and one table of values. Pure.

All are of one federation: two clients, and a run of FedPLCC in round 12. An example of a problem is that of the first kind
that the answer may have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedplcc.gateway.http.problem import KINDS, MEDIA_TYPE

Schema = Mapping[str, Any]
REF = "#/components/schemas/"
RUN, TIME = "scans-97f12353", "2026-11-23T08:00:00Z"
MODEL = "5d3c1a0f7be64e1f9a2b8c7d6e5f40312a1b0c9d8e7f60514233241506f7e8d9"
PROTOTYPES = "0b1c2d3e4f5061728394a5b6c7d8e9fa0b1c2d3e4f5061728394a5b6c7d8e9fa"
BY_DOMAIN = {"scanner-a": 0.931, "scanner-b": 0.874, "mean": 0.9025, "worst": 0.874}
CONFIG = {"run": {"name": "scans", "method": "fedplcc", "rounds": 30, "clients": ["north", "south"]}}
BINARY = "binary"

VALUES: Mapping[str, Any] = {
    **dict.fromkeys(
        ("accuracy_alone", "accuracy_attacked", "accuracy_local", "accuracy_validation", "auc", "best_round")
    ),
    **dict.fromkeys(
        ("balanced_accuracy", "balanced_accuracy_validation", "calibration", "calibration_error", "confusion")
    ),
    **dict.fromkeys(("expires_at", "joining", "macro_f1", "nearest", "next_page_token", "problem", "scores")),
    "accuracy": BY_DOMAIN,
    "accuracy_of": "global",
    "address": "192.0.2.20",
    "aligned_from": 11,
    "caller": "key:4f1a",
    "at_sites": {"min_cluster_size": 2},
    "check": "norm",
    "checks": {"aggregator": "ready"},
    "class_counts": {"healthy": 620, "ill": 380},
    "class_id": 1,
    "client": 0,
    "client_id": "north",
    "code": "RUN_NOT_FOUND",
    "cohort": ["north", "south"],
    "comparison": "cosine",
    "completed": 4,
    "config": CONFIG,
    "config_hash": "97f1235340b2d7c5e1a8f60394b7d2c8e5f1a60b93d4c7e2f8a1b5c6d9e0f3a7",
    "correct": [119, 71],
    "count": 1,
    "cpu": "x86_64, 2 cores",
    "credential": "4f1a",
    "data": {"participants": ["north", "south"]},
    "defaults": {"training": {"batch_size": 32}},
    "description": "The run does not exist.",
    "detail": "there is no run 'scans-97f12354'",
    "ClientLog.left_out": 0,
    "ClientLogLine.event": "task_failed",
    "ClientLogLine.facts": {"reason": "INVALID_DATA", "task": "train"},
    "ClientProblem.detail": "the folder /data/images holds no class of the run",
    "device": "cuda:0",
    "display_name": "Klinik Köln, Haus 3",
    "model_kind": "",
    "domain": "scanner-a",
    "done_clients": ["north"],
    "dropped": [],
    "environment": {"packages": {"torch": "2.11.0"}, "cpu": "x86_64, 2 cores", "device": "cuda:0", "platform": "Linux"},
    "errors": [],
    "explained": 0.71,
    "failed": 0,
    "federation": "3f9c2a7d51e84b60",
    "first": 1,
    "form": "timm:NAME",
    "freed_bytes": 41_943_040,
    "global": 4,
    "handle": "bZ0Yk3v4sW1xq8JtQ7mH2nR5uC6aLdEoPfGiTjKyVwM",
    "hash": MODEL,
    "held_bytes": 0,
    "hint": "check this trainer's --data against the run's classes and image size",
    "instance": f"/v1/runs/{RUN}",
    "initial_model": f"sha256:{MODEL}",
    "interval_s": 5.0,
    "is_connected": True,
    "is_revoked": False,
    "is_kept": True,
    "key": "",
    "keys": ["training.clip_norm", "training.learning_rate"],
    "label": "notebook of the study",
    "last": 12,
    "last_at": TIME,
    "last_seen_at": TIME,
    "last_sequence": 57,
    "left_out_global": 0,
    "left_out_local": 0,
    "local": 11,
    "location": "training.batch_size",
    "loss": {"ce": 0.21, "contra": 1.4, "corr": -0.8},
    "mean_accuracy": 0.9025,
    "metadata": {"run_id": RUN},
    "method": "fedplcc",
    "AuditEntry.method": "CreateRun",
    "Round.model": {"sha256": MODEL, "size_bytes": 19_630_112},
    "EvaluationCounts.model": "global",
    "model_sha256": MODEL,
    "name": "scans",
    "MessageReceiver.name": "operators",
    "MessageReceiver.host": "hooks.example.org",
    "MessageReceiver.events": ["run_failed", "approval_wanted"],
    "MessageReceiver.runs": ["scans-*"],
    "MessageReceiver.clients": ["*"],
    "MessageTest.is_delivered": True,
    "last_kind": "run_failed",
    "failure": "",
    "MethodChoice.name": "fedplcc",
    "ModelChoice.name": "resnet18",
    "SignOnOffer.name": "University login",
    "TerminalSignOn.expires_at": TIME,
    "notes": "second scanner at north since May",
    "num_classes": 2,
    "num_clients": 2,
    "num_examples": 1000,
    "number": 12,
    "of_others": {"balance": 0.5},
    "outcome": "done",
    "packages": {"torch": "2.11.0"},
    "paper": "arXiv 2409.18578, https://arxiv.org/abs/2409.18578",
    "platform": "Linux",
    "progress": 0.4,
    "Round.prototypes": {"sha256": PROTOTYPES, "size_bytes": 8_480},
    "RoundMetrics.prototypes": {"local": 11, "global": 4},
    "prototypes_sha256": PROTOTYPES,
    "quarantined": [],
    "readings": {"examples_per_second": 812.0},
    "reason": "",
    "ClientProblem.reason": "INVALID_DATA",
    "RunSummary.reason": "",
    "rejections": [],
    "retired": [],
    "request_id": "7c0b5d1e9f2a4b6c8d0e1f2a3b4c5d6e",
    "roster": ["north", "south"],
    "round": 12,
    "smallest_side": 512,
    "total_rounds": 30,
    "run_id": RUN,
    "running": 1,
    "paused": 0,
    "pending": 0,
    "stopped": 1,
    "scopes": ["read", "results", "run"],
    "sections": {"training": {"type": "object"}},
    "sentence": "accuracy has been at chance for ten rounds; set training.clip_norm = 40 in a new run",
    "sequence": 57,
    "server_state": {"m": 19_630_112},
    "service": "gateway",
    "set_name": "test",
    "settings": {"type": "object"},
    "sha256": MODEL,
    "share": 0.25,
    "size_bytes": 19_630_112,
    "status": "ready",
    "RunSummary.status": "running",
    "Run.status": "running",
    "Problem.status": 404,
    "ProblemKind.status": 404,
    "Health.status": "alive",
    "stems": ["imagenet7x7", "cifar3x3"],
    "summary": "Weighted cluster centres of every client, merged by clusters.",
    "score": "accuracy",
    "Run.round_bytes": {
        "clients": 2,
        "up": 19_630_112,
        "down": 19_630_112,
        "first_down": 39_260_224,
        "prototypes_up": 24_000,
        "prototypes_down": 47_000,
        "all_up": 39_300_000,
        "all_down": 39_354_224,
        "is_bound": True,
    },
    "Run.score": {
        "name": "accuracy",
        "round": 12,
        "mean": {"value": 0.9025, "low": 0.884, "high": 0.9187},
        "worst": {"value": 0.874, "low": 0.8418, "high": 0.9006},
    },
    "tags": ["pilot"],
    "target": RUN,
    "timm_options": {"type": "object"},
    "title": "Run not found",
    "MethodChoice.title": "FedPLCC",
    "toml": '[run]\nname = "scans"\n',
    "total": 6,
    "EvaluationCounts.total": [125, 80],
    "transport": "https",
    "type": "round_committed",
    "Problem.type": "/v1/problems/RUN_NOT_FOUND",
    "ProblemKind.type": "/v1/problems/RUN_NOT_FOUND",
    "unfound": [],
    "url": "https://login.example.org/device",
    "user_code": "WDJB-MJHT",
    "version": "0.2.0",
    "warnings": [],
    "weight": 0.6,
    "worst_accuracy": 0.874,
    "worst_domain": "scanner-b",
    "x": 0.42,
    "y": -1.3,
}
"""Value of a field by its name, or by the document's and its own."""
TEXTS: Mapping[str, str] = {
    "/metrics": "fedplcc_build_info 1.0\n",
    "/v1/runs/{run_id}/metrics.jsonl": f'{{"round": 1, "model_sha256": "{MODEL}"}}\n',
    "/v1/runs/{run_id}/timings.jsonl": '{"round": 1, "seconds": {"total": 41.2}}\n',
    "/v1/runs/{run_id}/events": f'id: 57\nevent: round_committed\ndata: {{"sequence": 57, "run_id": "{RUN}"}}\n\n',
}
"""Answers that are lines of text, by path."""
MANIFEST = {"run_id": RUN, "name": "scans", "method": "fedplcc", "seed": 0, "total_rounds": 30, "config": CONFIG}


def add_examples(document: Mapping[str, Any]) -> None:
    """Write an example into each answer of the OpenAPI document that has a body, but for those that are bytes."""
    schemas = document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for answer in operation["responses"].values():
                for kind, entry in answer.get("content", {}).items():
                    example = _example(path, kind, entry.get("schema", {}), answer["description"], schemas)
                    if example is not None:
                        entry["example"] = example


def _example(path: str, kind: str, schema: Schema, description: str, schemas: Mapping[str, Schema]) -> Any:
    if kind == MEDIA_TYPE:
        return _problem(path, description)
    if kind != "application/json":
        return None if schema.get("format") == BINARY else TEXTS[path]
    return value_of(schema, schemas, path) if "$ref" in schema else MANIFEST


def _problem(path: str, description: str) -> dict[str, Any]:
    """Return the first kind of problem that an answer's description names; of an answer for all others, INTERNAL."""
    known = KINDS.get(description.partition(":")[0], KINDS["INTERNAL"])
    return {
        "type": known.type,
        "title": known.title,
        "status": known.status,
        "detail": known.description.partition("\n")[0],
        "instance": path.replace("{run_id}", RUN).replace("{client_id}", "north").replace("{sha256}", MODEL),
        "code": known.code,
        "request_id": VALUES["request_id"],
    }


def value_of(schema: Schema, schemas: Mapping[str, Schema], path: str, field: str = "", owner: str = "") -> Any:
    """Return the example of a schema.

    Args:
        path: The operation's path, for links.
        field: Name of the field whose value it is; empty for the whole.
        owner: Name of the document that has the field.

    Raises:
        KeyError: `VALUES` lacks a field; the document's tests find it.
    """
    if owner == "RunLinks":
        return f"/v1/runs/{RUN}" + ("" if field == "self" else f"/{LINKS.get(field, field)}")
    for name in (f"{owner}.{field}", field):
        if name in VALUES:
            return VALUES[name]
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix(REF)
        found = schemas[name]
        if "enum" in found:
            return found["enum"][0]
        return {key: value_of(each, schemas, path, key, name) for key, each in found.get("properties", {}).items()}
    for each in schema.get("anyOf", schema.get("allOf", ())):
        if each.get("type") != "null":
            return value_of(each, schemas, path, field, owner)
    if schema.get("type") == "array":
        return [value_of(schema["items"], schemas, path, "", owner)]
    if schema.get("type") == "boolean":
        return False
    if schema.get("format") == "date-time":
        return TIME
    if "enum" in schema:
        return schema["enum"][0]
    raise KeyError(f"{owner}.{field}")


LINKS: Mapping[str, str] = {"metrics": "metrics.jsonl", "timings": "timings.jsonl", "prototype_map": "prototype-map"}
"""Last parts of links that are no names of fields."""
