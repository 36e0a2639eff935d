"""The expected result of a federation of numpy clients, computed directly: no coordinator, no store, no blobs, no blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.methods import METHODS
from fedplcc.shared.tensors import prototypes_to_bytes, sha256_hex, to_bytes
from fedplcc.shared.types import PrototypeSet, Task, TaskKind
from tests.support.federation.numpy_client import NumpyClient

Model = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Expected:
    """SHA-256 of the global model and prototypes after each round, from round 0 on."""

    models: tuple[str, ...]
    prototypes: tuple[str, ...]


def expected(
    config: RunConfig, clients: Sequence[NumpyClient], cohorts: Sequence[Sequence[str]] | None = None
) -> Expected:
    """Every round's result; `cohorts` are those of round 1, 2 and so on where not everybody takes part."""
    method = METHODS[config.run.method]
    by_name = {client.client_id: client for client in clients}
    model = by_name[min(by_name)].first_model()
    models, prototypes = [model], [PrototypeSet.empty()]
    for number in range(1, config.run.rounds + 1):
        task = Task(kind=TaskKind.TRAIN, round=number)
        names = sorted(by_name) if cohorts is None else sorted(cohorts[number - 1])
        cohort = [by_name[name] for name in names]
        if method.shares_model(config.method):
            model = mean_model(
                [client.trained(task, model) for client in cohort], [sum(client.counts) for client in cohort]
            )
        models.append(model)
        sets = [client.prototypes(task, method.prototype_kind) for client in cohort] if method.has_prototypes else []
        prototypes.append(method.global_prototypes(sets, prototypes[-1], len(config.data.classes), config.method))
    return Expected(
        tuple(sha256_hex(to_bytes(model)) for model in models),
        tuple(sha256_hex(prototypes_to_bytes(pooled)) for pooled in prototypes),
    )


def mean_model(models: Sequence[Model], counts: Sequence[int]) -> Model:
    """The mean of models weighted by their sample counts, in this order; of integers the greatest."""

    def mean(name: str) -> npt.NDArray[Any]:
        values = [model[name] for model in models]
        if values[0].dtype == np.int64:
            return np.asarray(np.max(values, axis=0))
        total = sum(np.float64(count) * value.astype(np.float64) for value, count in zip(values, counts, strict=True))
        return np.asarray(total / sum(counts), dtype=np.float32)

    return {name: mean(name) for name in models[0]}
