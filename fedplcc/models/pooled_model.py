"""A model of all clients' training images together, beside which a simulated run stands (docs/algorithms.md, rule 1.20)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import nn

from fedplcc.aggregator.rounds.results import accuracy_by_domain
from fedplcc.runs.artifacts import RunRecord
from fedplcc.shared.config.run import RunConfig, canonical_json
from fedplcc.shared.documents import EvaluationCounts as CountsDocument
from fedplcc.shared.types import POOLED_MODEL, TEST_SET, VALIDATION_SET, Evaluation
from fedplcc.trainer.cancellation import ShouldStop
from fedplcc.trainer.learning.alone import train_alone
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.evaluation import evaluate
from fedplcc.trainer.task.job import Loaded


def pooled_evaluations(
    model: nn.Module,
    images: Mapping[str, tuple[str, Loaded]],
    config: RunConfig,
    *,
    should_stop: ShouldStop,
    on_share: Callable[[float], None],
) -> list[Evaluation]:
    """Train a run's first model on all clients' training images together; returns each client's counts under it.

    Args:
        model: The first model; trained in place.
        should_stop: Asked before every mini-batch.
        on_share: Told of the fraction of the training that is done.

    Raises:
        Cancelled: `should_stop()` held.
        TrainingDiverged: A loss or a gradient was not finite.
    """
    together = DeviceImages.joined([loaded.train for _, loaded in images.values() if len(loaded.train)])
    train_alone(model, together, config, POOLED_MODEL, should_stop=should_stop, on_share=on_share)
    return [
        Evaluation(
            client_id=client_id,
            domain=domain,
            counts=tuple(
                evaluate(model, held, config, set_name=name, model_name=POOLED_MODEL, should_stop=should_stop)
                for name, held in ((TEST_SET, loaded.test), (VALIDATION_SET, loaded.validation))
                if len(held)
            ),
        )
        for client_id, (domain, loaded) in images.items()
    ]


def pooled_record(record: RunRecord, evaluations: list[Evaluation]) -> RunRecord:
    """Return a record whose last round has the accuracy of the pooled model, and its counts beside those of the clients."""
    *earlier, last_line = record.metrics_lines
    last = json.loads(last_line)
    domains = sorted({each.domain for each in evaluations})
    last[f"accuracy_{POOLED_MODEL}"] = accuracy_by_domain(evaluations, domains, POOLED_MODEL)
    counts = {each.client_id: each.counts for each in evaluations}
    reports = []
    for line in record.evaluations_lines:
        report = json.loads(line)
        if report["round"] == last["round"]:
            report["counts"] += [
                CountsDocument.of(each).model_dump(mode="json", exclude_none=True)
                for each in counts[report["client_id"]]
            ]
        reports.append(canonical_json(report))
    return replace(record, metrics_lines=[*earlier, canonical_json(last)], evaluations_lines=reports)
