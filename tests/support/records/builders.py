"""Records with every field filled in: a test names only what it is about."""

from __future__ import annotations

from typing import Any

from fedplcc.shared.tensors import blob_ref
from fedplcc.shared.types import (
    LOCAL_CLUSTER,
    MODEL,
    BlobRef,
    Client,
    Environment,
    Evaluation,
    EvaluationCounts,
    Payload,
    Round,
    RoundPhase,
    Run,
    RunStatus,
    Update,
)
from tests.support.federation.numpy_client import a_config


def a_blob(content: str = "model", role: str = MODEL) -> BlobRef:
    """The name of a blob of this text."""
    return blob_ref(role, content.encode())


def an_update(client_id: str = "ann", *, content: str = "trained", **changes: Any) -> Update:
    """An update with a model and a prototype set that only `content` decides."""
    payload = Payload(
        tensor_groups=(a_blob(f"{client_id} {content}"),),
        prototype_sets=(a_blob(f"{client_id} {content} prototypes", LOCAL_CLUSTER),),
        scalars={"norm": 0.1},
        int_lists={"steps": (10, 20)},
        metadata={"note": "é"},
    )
    fields: dict[str, Any] = {
        "client_id": client_id,
        "payload": payload,
        "num_examples": 12,
        "num_excluded": 1,
        "class_counts": (5, 3, 4),
        "losses": {"ce": 1 / 3, "contra": 2.0},
        "timings": {"train_seconds": 0.7},
        "num_prototypes": 4,
    }
    return Update(**{**fields, **changes})


def an_evaluation(
    client_id: str = "ann", *, domain: str = "", correct: tuple[int, ...] = (3, 2, 1), **changes: Any
) -> Evaluation:
    """A report on ten test samples of each class."""
    counts = (EvaluationCounts("test", "global", correct, tuple(10 for _ in correct)),)
    fields: dict[str, Any] = {"domain": domain or f"{client_id}-domain", "counts": counts, "timings": {"seconds": 0.2}}
    return Evaluation(client_id=client_id, **{**fields, **changes})


def a_round(number: int = 1, phase: RoundPhase = RoundPhase.COLLECTING, **changes: Any) -> Round:
    """A round of ann and bob; round 0 is ann's."""
    fields: dict[str, Any] = {
        "cohort": ("ann", "bob") if number else ("ann",),
        "phase_started_at": {phase.value: 100.0 + number},
    }
    return Round(number=number, phase=phase, **{**fields, **changes})


def a_run(status: RunStatus = RunStatus.RUNNING, **changes: Any) -> Run:
    """A run of ann and bob, two rounds, with no round open yet."""
    config = a_config()
    fields: dict[str, Any] = {
        "run_id": "test-0000",
        "name": config.run.name,
        "config_json": config.canonical_json,
        "config_hash": config.hash,
        "method": config.run.method,
        "total_rounds": config.run.rounds,
        "seed": config.run.seed,
        "roster": ("ann", "bob"),
        "model": a_blob("global"),
        "prototypes": a_blob("none", "global_cluster"),
        "created_at": 100.0,
        "updated_at": 101.0,
    }
    return Run(status=status, **{**fields, **changes})


def a_client(client_id: str = "ann", **changes: Any) -> Client:
    """A client of twelve samples in three classes."""
    fields: dict[str, Any] = {
        "domain": f"{client_id}-domain",
        "num_examples": 12,
        "class_counts": {"a": 5, "b": 3, "c": 4},
        "environment": Environment(packages={"numpy": "2"}, cpu="x86-64", device="cpu", platform="Linux"),
        "last_seen_at": 99.5,
    }
    return Client(client_id=client_id, **{**fields, **changes})
