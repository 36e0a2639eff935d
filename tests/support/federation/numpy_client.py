"""A federation's client in plain numpy. What it sends is a function of (task, client id), so every run has one right end.

It is a real part for tests of rounds, faults and load: it speaks the whole contract, through the coordinator or over gRPC,
and only its "training" is arithmetic.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from fedplcc.shared.config.declared_arrays import declared_uploads
from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.config.tables.stream import PASS, STAGE
from fedplcc.shared.methods.arrays import ArrayGroup, GroupSchema
from fedplcc.shared.methods.parts.arrays import ServerArrays
from fedplcc.shared.methods.parts.part import BeforeTraining
from fedplcc.shared.tensors import blob_ref, from_bytes, prototypes_to_bytes, read_header, to_bytes
from fedplcc.shared.types import (
    ALONE_MODEL,
    BATCH_NORM,
    CLASS_MEAN,
    HEAD,
    LOCAL_CLUSTER,
    LOCAL_MODEL,
    MODEL,
    PARAMETERS,
    PUBLIC_DATA,
    STAGE_DATA,
    STREAM_PLACE,
    TEST_SET,
    BlobRef,
    Client,
    Environment,
    Evaluation,
    EvaluationCounts,
    Payload,
    PrototypeSet,
    Task,
    TaskKind,
    Update,
    stage_set,
)
from tests.support.records.method_settings import public_of

FEATURE_DIM = 6
CLASSES = ("a", "b", "c")


def a_document(method: str = "fedavg", clients: tuple[str, ...] = ("ann", "bob"), **sections: Any) -> dict[str, Any]:
    """A run configuration as a person writes it; keyword arguments are merged into its sections."""
    document: dict[str, Any] = {
        "run": {"name": "test", "method": method, "rounds": 2, "clients": list(clients)},
        "data": {"classes": list(CLASSES)},
    }
    for name, values in sections.items():
        document[name] = {**document.get(name, {}), **values}
    return {**public_of(method, document.get("method", {})), **document}


def a_config(**sections: Any) -> RunConfig:
    return parse_run_config(a_document(**sections))


@dataclass
class NumpyClient:
    """everything a client computes; moving bytes is left to whoever drives it."""

    client_id: str
    domain: str = ""
    counts: tuple[int, ...] = (5, 3, 4)
    size: int = 10
    token: str = field(default="")
    has_linear_head: bool | None = None
    """Whether its first model has one; None for as the run's method needs it."""
    public_digest: tuple[int, ...] = tuple(range(32))
    """SHA-256 of its public images."""
    arrays: Mapping[str, bytes] = field(default_factory=dict)
    """Those of the server that came with its present task, by group."""

    def __post_init__(self) -> None:
        self.domain = self.domain or f"{self.client_id}-domain"
        self.token = self.token or f"{self.client_id}-instance-token-0123456789"

    @property
    def record(self) -> Client:
        return Client(
            client_id=self.client_id,
            domain=self.domain,
            num_examples=sum(self.counts),
            class_counts=dict(zip(CLASSES, self.counts, strict=True)),
            environment=Environment(packages={"numpy": np.__version__}, cpu="any", device="cpu", platform="any"),
        )

    def first_model(self, seed: int = 0) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        model: dict[str, np.ndarray] = {
            "base.weight": rng.normal(size=(self.size, FEATURE_DIM)).astype(np.float32),
            "head.weight": rng.normal(size=(len(CLASSES), FEATURE_DIM)).astype(np.float32),
            "head.steps": np.zeros((), np.int64),
        }
        return with_linear_head(model) if self.has_linear_head else model

    def trained(self, task: Task, model: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The local model: the global one plus noise that only (round, client) decide."""
        rng = self._rng(task)
        return {
            name: value + 1 if value.dtype == np.int64 else (value + rng.normal(size=value.shape)).astype(np.float32)
            for name, value in model.items()
        }

    def prototypes(self, task: Task, kind: str | None = LOCAL_CLUSTER) -> PrototypeSet:
        """Two prototypes for each class of two samples or more, one for a class of one; of class means, one each."""
        rng = self._rng(task)
        rows, ids, weights = [], [], []
        for class_id, count in enumerate(self.counts):
            parts = [count] if count == 1 or kind == CLASS_MEAN else [1, count - 1]
            for part in parts if count else ():
                rows.append(rng.random(FEATURE_DIM) + class_id)
                ids.append(class_id)
                weights.append(part)
        return PrototypeSet.of(np.array(rows).reshape(-1, FEATURE_DIM), ids, weights)

    def uploads(self, task: Task, model: bytes) -> dict[BlobRef, bytes]:
        """What the update has beside its model, of features and numbers that only (round, client) decide."""
        config = _config_of(task)
        of_method = config.algorithm.uploads(config.method, len(CLASSES), FEATURE_DIM)
        declared = declared_uploads(config, FEATURE_DIM)
        groups: dict[str, ArrayGroup] = {
            name: self._arrays(task, schema) for name, schema in declared.items() if name not in of_method
        }
        if of_method:
            groups.update(self._of_features(config, task, model))
        made = {name: to_bytes(groups[name]) for name in sorted(groups)}
        return {blob_ref(name, data): data for name, data in made.items()}

    def _of_features(self, config: RunConfig, task: Task, model: bytes) -> Mapping[str, ArrayGroup]:
        labels_N = np.repeat(np.arange(len(CLASSES)), self.counts)
        before = BeforeTraining(
            features_ND=self._rng(task).random((len(labels_N), FEATURE_DIM)).astype(np.float32),
            labels_N=labels_N,
            num_classes=len(CLASSES),
            head={name: array for name, array in from_bytes(model).items() if name.startswith("head.")},
            received={name: from_bytes(data) for name, data in self.arrays.items()},
            round=task.round,
        )
        return config.algorithm.before_training(before, config.method)

    def _arrays(self, task: Task, schema: GroupSchema) -> dict[str, np.ndarray]:
        """Arrays of a group whose sizes are all given, of numbers that only (round, client) decide."""
        rng = self._rng(task)
        return {
            name: rng.random([size or 0 for size in shape]).astype(np.float32) for name, (_, shape) in schema.items()
        }

    def public_lists(self, task: Task) -> dict[str, tuple[int, ...]]:
        """Which public images it has, in a run that uses some."""
        if task.run is None or task.run.config_json == "{}":
            return {}
        config = _config_of(task)
        return {PUBLIC_DATA: self.public_digest} if config.algorithm.uses_public(config.method) else {}

    def work(self, task: Task, model: bytes | None) -> tuple[Update, dict[BlobRef, bytes]]:
        """The update that a task asks for, and its blobs."""
        if task.kind is TaskKind.INIT:
            made = self.first_model() if model is None else from_bytes(model)
            classes = _config_of(task).initial_class_map if model is not None else None
            if classes is not None:
                made = with_rows(made, self.first_model(), classes.rows)
            if model is None and self.has_linear_head is None and _needs_linear_head(_config_of(task)):
                made = with_linear_head(made)
            data = to_bytes(made)
            group = blob_ref(MODEL, data)
            lists = {"feature_dim": (FEATURE_DIM,), **tensor_lists(data), **self.public_lists(task)}
            payload = Payload(tensor_groups=(group,), int_lists=lists)
            return Update(client_id=self.client_id, payload=payload, num_examples=0), {group: data}
        assert task.kind is TaskKind.TRAIN
        assert task.run is not None
        assert model is not None
        config = _config_of(task)
        blobs = {}
        if config.algorithm.shares_model(config.method):
            withheld = "head." if config.algorithm.withheld_part(config.method) == HEAD else "no tensor's name"
            trained = self.trained(task, from_bytes(model))
            data = to_bytes({name: array for name, array in trained.items() if not name.startswith(withheld)})
            blobs[blob_ref(MODEL, data)] = data
        blobs.update(self.uploads(task, model))
        payload = Payload(tensor_groups=tuple(blobs), int_lists={**self.public_lists(task), **_stage_lists(task)})
        if config.algorithm.prototype_kind is not None:
            vectors = prototypes_to_bytes(self.prototypes(task, config.algorithm.prototype_kind))
            prototypes = blob_ref(config.algorithm.prototype_kind, vectors)
            payload = replace(payload, prototype_sets=(prototypes,))
            blobs[prototypes] = vectors
        update = Update(
            client_id=self.client_id,
            payload=payload,
            num_examples=sum(self.counts),
            class_counts=self.counts,
            losses={"ce": 1.0 / task.round},
            timings={"train_seconds": 0.01},
        )
        return update, blobs

    def evaluation(self, task: Task, model: bytes) -> Evaluation:
        """Counts that only the model's bytes and the client decide, and for its own model only the round and the client."""
        config = _config_of(task)
        total, counts = tuple(10 for _ in CLASSES), []
        for name in config.evaluated_models:
            of_own = {LOCAL_MODEL: b"%d" % task.round, ALONE_MODEL: b"alone"}
            judged = of_own.get(name, model)
            digest = hashlib.sha256(judged + self.client_id.encode()).digest()
            correct = tuple(digest[index % len(digest)] % 11 for index in range(len(CLASSES)))
            confusion = _confusion(correct, total) if config.evaluation.confusion else ()
            stages = range(1, int(task.payload.scalars.get(STAGE, 0)) + 1)
            for set_name in (TEST_SET, *map(stage_set, stages)):
                counts.append(EvaluationCounts(set_name, name, correct, total, confusion))
        return Evaluation(client_id=self.client_id, domain=self.domain, counts=tuple(counts))

    def _rng(self, task: Task) -> np.random.Generator:
        seed = hashlib.sha256(f"{self.client_id}/{task.round}".encode()).digest()
        return np.random.default_rng(list(seed))


def _stage_lists(task: Task) -> dict[str, tuple[int, ...]]:
    """What an update in a run with stages says of its data."""
    scalars = task.payload.scalars
    if STAGE not in scalars:
        return {}
    return {STREAM_PLACE: (int(scalars[PASS]), int(scalars[STAGE])), STAGE_DATA: (int(scalars[STAGE]),) * 32}


def with_linear_head(model: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The model with a bias where its head has steps."""
    return {
        **{name: array for name, array in model.items() if name != "head.steps"},
        "head.bias": np.zeros(len(CLASSES), np.float32),
    }


def with_rows(
    model: Mapping[str, np.ndarray], fresh: Mapping[str, np.ndarray], rows: tuple[int | None, ...]
) -> dict[str, np.ndarray]:
    """The model with these rows in its head, and those of `fresh` for None."""
    return {
        name: np.stack([fresh[name][place] if row is None else array[row] for place, row in enumerate(rows)])
        if name.startswith("head.")
        else array
        for name, array in model.items()
    }


def tensor_lists(model: bytes) -> dict[str, tuple[int, ...]]:
    """What round 0 says of the tensors of a model: floats are trained, and the head's are named so."""
    entries = read_header(io.BytesIO(model)).entries
    trained = tuple(place for place, entry in enumerate(entries) if entry.dtype == "F32")
    head = tuple(place for place, entry in enumerate(entries) if entry.name.startswith("head."))
    return {PARAMETERS: trained, HEAD: head, BATCH_NORM: ()}


def _needs_linear_head(config: RunConfig) -> bool:
    arrays = config.algorithm.part(ServerArrays)
    return arrays is not None and arrays.needs_linear_head


def _config_of(task: Task) -> RunConfig:
    assert task.run is not None
    return _parsed(task.run.config_json)


@lru_cache(maxsize=64)
def _parsed(config_json: str) -> RunConfig:
    return parse_run_config(json.loads(config_json))


def _confusion(correct: tuple[int, ...], total: tuple[int, ...]) -> tuple[int, ...]:
    """Every wrong prediction of a class is the class after it."""
    cells = np.diag(correct)
    for index, count in enumerate(total):
        cells[index, (index + 1) % len(total)] = count - correct[index]
    return tuple(cells.ravel().tolist())
