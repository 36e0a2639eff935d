"""Lines of metrics.jsonl and records of runs, as small as they can be."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from fedplcc.runs.artifacts import RunRecord
from fedplcc.shared import run_lists
from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.convert.runs import RunView
from fedplcc.shared.documents import Run, RunSummary
from fedplcc.shared.tensors import blob_ref
from fedplcc.shared.types import RunStatus
from tests.support.records.builders import a_run

MODEL = b"the model"
PROTOTYPES = b"the prototypes"


def a_line(number: int, **accuracy: float | None) -> dict[str, Any]:
    known = [value for value in accuracy.values() if value is not None]
    return {
        "round": number,
        "accuracy": {**accuracy, "mean": sum(known) / len(known) if known else None, "worst": min(known, default=None)},
        "loss": {"ce": 1.0 / number},
        "prototypes": {"local": 8, "global": 4},
        "model_sha256": blob_ref("model", MODEL).sha256,
        "prototypes_sha256": blob_ref("prototypes", PROTOTYPES).sha256,
    }


def a_local_line(number: int, *, is_alone: bool = False, **accuracy: float | None) -> dict[str, Any]:
    """A round whose clients have models of their own: beside the global one, or in its place."""
    local = a_line(number, **accuracy)["accuracy"]
    if is_alone:
        return {**a_line(number), "accuracy": local, "accuracy_local": local, "accuracy_of": "local"}
    return {**a_line(number, **dict.fromkeys(accuracy, 0.25)), "accuracy_local": local}


def an_unevaluated_line(number: int, **more: Any) -> dict[str, Any]:
    """A round on which nobody was asked for a report."""
    return {**a_line(number), "accuracy": None, **more}


def a_record(*lines: dict[str, Any], status: str = "completed", reason: str = "") -> RunRecord:
    lines = lines or (a_line(1, north=0.25, south=0.5), a_line(2, north=0.5, south=0.75))
    return RunRecord(
        manifest={"run_id": "digits-1", "name": "digits", "method": "fedplcc", "seed": 3, "total_rounds": 2},
        status=status,
        reason=reason,
        metrics_lines=[canonical_json(line) for line in lines],
        timings_lines=[canonical_json({"round": line["round"]}) for line in lines],
        model=blob_ref("model", MODEL),
        prototypes=blob_ref("prototypes", PROTOTYPES),
    )


def a_run_document(status: RunStatus = RunStatus.COMPLETED) -> Run:
    """A run as the gateway shows it."""
    return Run.of(RunView(run=a_run(status), config=json.loads(a_run(status).config_json)))


def a_run_summary(status: RunStatus = RunStatus.COMPLETED, **changes: Any) -> RunSummary:
    """A run as a list of the gateway shows it."""
    run = a_run(status)
    summary = run_lists.RunSummary(
        run_id=run.run_id,
        name=run.name,
        status=run.status,
        method=run.method,
        round=run.round_number,
        total_rounds=run.total_rounds,
        phase=None,
        num_clients=len(run.roster),
        is_pause_requested=False,
        reason=None,
        created_at=run.created_at,
        updated_at=run.updated_at,
        config_hash=run.config_hash,
    )
    return RunSummary.of(replace(summary, **changes))
