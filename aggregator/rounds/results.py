"""Results of rounds: the lines of metrics.jsonl and timings.jsonl, and the content of run.json. Pure.

metrics.jsonl holds computed values only, so equal federations give equal bytes; seconds, bytes and retries go to
timings.jsonl, outside every hash.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import metadata
from typing import Any

from fedplcc.aggregator.rounds.class_results import (
    SUMMARIES,
    detail_entries,
    detail_intervals,
    summarised,
    with_summaries,
)
from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.shared.config.tables.stream import Place
from fedplcc.shared.methods import METHODS
from fedplcc.shared.reasons import sentence_of
from fedplcc.shared.scoring.intervals import CONFIDENCE, accuracy_interval, balanced_interval
from fedplcc.shared.scoring.scores import BALANCED, balanced_accuracy, is_uneven, score_of, summed, unfound, values_of
from fedplcc.shared.stage_measures import Row, average_accuracy, backward_transfer, forgetting, rarest_classes
from fedplcc.shared.types import (
    ALONE_MODEL,
    GLOBAL_MODEL,
    LOCAL_MODEL,
    TEST_SET,
    VALIDATION_SET,
    Client,
    Evaluation,
    EvaluationCounts,
    Event,
    Round,
    RoundPhase,
    Run,
    Update,
    attacked_set,
    stage_set,
)
from fedplcc.shared.version import VERSION

PACKAGES = ("numpy", "scipy", "grpcio", "protobuf", "safetensors", "SQLAlchemy")


def accuracy_by_domain(
    evaluations: Sequence[Evaluation], domains: Sequence[str], model: str = GLOBAL_MODEL, set_name: str = TEST_SET
) -> dict[str, float | None]:
    """Accuracy on the test set, or another set, of each domain, "mean" over domains and "worst" domain; fractions.

    The accuracy is that of the global model or of the clients' own models, each on its client's test set. Correct and total
    predictions of a domain are summed over its clients. A domain without a report or without test samples is None and does
    not count in mean and worst, which are None if every domain is.
    """
    found = _by_domain(evaluations, domains, model, set_name)
    return summarised(
        {domain: sum(correct) / sum(total) if any(total) else None for domain, (correct, total) in found.items()}
    )


def balanced_by_domain(
    evaluations: Sequence[Evaluation], domains: Sequence[str], model: str = GLOBAL_MODEL, set_name: str = TEST_SET
) -> dict[str, float | None]:
    """As `accuracy_by_domain`, of the balanced accuracy: the mean recall of the classes that a domain has images of."""
    found = _by_domain(evaluations, domains, model, set_name)
    return summarised({domain: balanced_accuracy(*counts) for domain, counts in found.items()})


def score_intervals(current: Round, line: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the interval of a round's score, low and high, of each domain, of "mean" and of "worst", the worst domain.

    Args:
        line: Its line of metrics.jsonl. Without values of its score there is nothing.
    """
    values, is_balanced = values_of(line), score_of(line) == BALANCED
    if values is None:
        return {}
    names = [name for name in values if name not in SUMMARIES]
    found = _by_domain(_in_order(current.evaluations), names, line.get("accuracy_of", GLOBAL_MODEL), TEST_SET)
    interval = balanced_interval if is_balanced else accuracy_interval
    known = {name: each for name in names if (each := interval(*found[name])) is not None and values[name] is not None}
    return with_summaries(known, values) if known else {}


def intervals_beside(current: Round, line: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Return the intervals of a round's macro F1 and AUC, where its line has them; see `detail_intervals`."""
    return detail_intervals(_in_order(current.evaluations), line, line.get("accuracy_of", GLOBAL_MODEL))


def _by_domain(
    evaluations: Sequence[Evaluation], domains: Sequence[str], model: str, set_name: str
) -> dict[str, tuple[list[int], list[int]]]:
    """Return correct and total predictions by class of each domain; of one without a report both are empty."""
    known: dict[str, list[EvaluationCounts]] = {domain: [] for domain in sorted(domains)}
    for evaluation in evaluations:
        for counts in evaluation.counts:
            if (counts.set_name, counts.model) == (set_name, model):
                known.setdefault(evaluation.domain, []).append(counts)
    sizes = {domain: len(counts[0].total) if counts else 0 for domain, counts in known.items()}
    return {
        domain: (
            summed((each.correct for each in counts), sizes[domain]),
            summed((each.total for each in counts), sizes[domain]),
        )
        for domain, counts in known.items()
    }


def joining_by_client(evaluations: Sequence[Evaluation], *, is_balanced: bool = False) -> dict[str, float]:
    """Return what joining is worth to each client that can say it: a difference of two fractions.

    The score of its own model minus that of the model of its images alone, on its test set.

    Args:
        is_balanced: Whether the run's score is balanced accuracy; else it is accuracy.
    """
    gains = {}
    for evaluation in evaluations:
        on_test = {each.model: each for each in evaluation.counts if each.set_name == TEST_SET}
        own, alone = on_test.get(LOCAL_MODEL), on_test.get(ALONE_MODEL)
        if own is not None and alone is not None and any(own.total):
            gains[evaluation.client_id] = _gain(own, alone, is_balanced=is_balanced)
    return gains


def _gain(own: EvaluationCounts, alone: EvaluationCounts, *, is_balanced: bool) -> float:
    """Return how much better one model is than another on the same images, of which there are some."""
    if not is_balanced:
        return (sum(own.correct) - sum(alone.correct)) / sum(own.total)
    with_others, without = (balanced_accuracy(each.correct, each.total) for each in (own, alone))
    return (with_others or 0.0) - (without or 0.0)


def _score_entries(
    reports: Sequence[Evaluation], names: Sequence[str], model: str, score: str, *, has_validation: bool
) -> dict[str, Any]:
    """Return what a round's line has where its score is not accuracy, and the classes that are never found, if any are."""
    found = _by_domain(reports, names, model, TEST_SET)
    known = [counts for counts in found.values() if counts[1]]
    sides = [summed((counts[side] for counts in known), len(known[0][1]) if known else 0) for side in (0, 1)]
    missed = {"unfound": labels} if (labels := unfound(*sides)) else {}
    if score != BALANCED and not (score == "auto" and any(is_uneven(total) for _, total in known)):
        return missed
    entries: dict[str, Any] = {BALANCED: balanced_by_domain(reports, names, model)}
    if has_validation:
        entries[f"{BALANCED}_validation"] = balanced_by_domain(reports, names, model, VALIDATION_SET)
    return entries | missed


def mean_losses(updates: Sequence[Update]) -> dict[str, float]:
    """Mean training loss by term over the cohort, weighted by number of samples, summed in the order given.

    A sum beyond the range of float64 is computed again without rounding: a mean of finite losses is finite.
    """
    names = sorted({name for update in updates for name in update.losses})
    means = {}
    for name in names:
        having = [update for update in updates if name in update.losses]
        weight = sum(update.num_examples for update in having)
        means[name] = sum(update.losses[name] * update.num_examples for update in having) / max(weight, 1)
        if not math.isfinite(means[name]):
            total = sum((Fraction(update.losses[name]) * update.num_examples for update in having), Fraction())
            means[name] = float(total / max(weight, 1))
    return means


def metrics_line(
    current: Round,
    *,
    domains: Mapping[str, str],
    num_global_prototypes: int,
    evaluated: Sequence[str] = (GLOBAL_MODEL,),
    is_evaluated: bool = True,
    attacks: Sequence[str] = (),
    is_validated: bool = False,
    is_alone: bool = False,
    score: str = "auto",
    stage: StageContext | None = None,
) -> dict[str, Any]:
    """The round's line of metrics.jsonl.

    Losses and counts cover the clients that committed an update. The line names dropped clients, if there are any.

    Args:
        domains: The domain of each client of the cohort.
        evaluated: The models that clients report on; see `Method.evaluated_models`. `accuracy` is that of the first; if
            that is not the global model (a run may train none), `accuracy_of` names it. `accuracy_local` is the accuracy
            of the clients' own models, `accuracy_alone` that of the models of their own images alone; `joining` is then
            each client's gain, of the first over the second.
        is_evaluated: Whether clients were asked for reports; if not, each accuracy is None as a whole.
        attacks: Attacks under which clients evaluate too. `accuracy_attacked` has, by attack, what `accuracy` has without.
        is_validated: Whether the run sets validation images aside. `accuracy_validation` is the accuracy on these; in
            another run on those of the clients' own accord, if each client that reports has some and at least two report.
        is_alone: Whether the run has one client alone, whose report on its own validation images then does.
        score: `evaluation.score` of the configuration. Where it is balanced accuracy, the line has `balanced_accuracy` and,
            with validation images, `balanced_accuracy_validation`. `unfound` names the classes of which no test image was
            found, if there are any.
        stage: In a run with stages, what the line needs of earlier rounds; see `stage_entries`.
    """
    updates = _in_order(current.updates)
    assert current.model is not None
    assert current.prototypes is not None
    dropped = {"dropped": sorted(current.dropped)} if current.dropped else {}
    reports, names = _in_order(current.evaluations), sorted(set(domains.values()))
    accuracy = {model: accuracy_by_domain(reports, names, model) if is_evaluated else None for model in evaluated}
    other = {} if evaluated[0] == GLOBAL_MODEL else {"accuracy_of": evaluated[0]}
    local: dict[str, Any] = {
        f"accuracy_{name}": accuracy[name] for name in (LOCAL_MODEL, ALONE_MODEL) if name in accuracy
    }
    under = {attack: accuracy_by_domain(reports, names, evaluated[0], attacked_set(attack)) for attack in attacks}
    attacked = {"accuracy_attacked": under if is_evaluated else None} if attacks else {}
    needed = 1 if is_alone else 2
    trained = [report for report in reports if report.client_id in current.cohort]
    has_validation = is_validated or (len(trained) >= needed and all(map(_has_validation, trained)))
    on_validation = accuracy_by_domain(reports, names, evaluated[0], VALIDATION_SET) if is_evaluated else None
    validation = {"accuracy_validation": on_validation} if has_validation else {}
    has_balanced = has_validation and is_evaluated
    scored = _score_entries(reports, names, evaluated[0], score, has_validation=has_balanced) if is_evaluated else {}
    if ALONE_MODEL in accuracy:
        is_balanced = BALANCED in scored
        local["joining"] = joining_by_client(reports, is_balanced=is_balanced) if is_evaluated else None
    details = detail_entries(reports, names, evaluated[0]) if is_evaluated else {}
    return {
        "round": current.number,
        "accuracy": accuracy[evaluated[0]],
        **other,
        **local,
        **attacked,
        **validation,
        **scored,
        **details,
        **({} if stage is None else stage_entries(current, stage, evaluated[0], is_evaluated=is_evaluated)),
        "loss": mean_losses(updates),
        "prototypes": {"local": sum(update.num_prototypes for update in updates), "global": num_global_prototypes},
        "num_examples": sum(update.num_examples for update in updates),
        "num_excluded": sum(update.num_excluded for update in updates),
        "cohort": list(current.cohort),
        **dropped,
        "model_sha256": current.model.sha256,
        "prototypes_sha256": current.prototypes.sha256,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class StageContext:
    """What the line of a round in a run with stages needs of earlier rounds.

    Attributes:
        num_seen: Stages whose test images are reported.
        rows: Accuracy by stage at the end of each earlier stage of the pass.
        class_counts: Samples of each class in all committed updates of earlier rounds, added up.
    """

    place: Place
    num_seen: int
    rows: Sequence[Row]
    class_counts: Sequence[int]


def stage_entries(current: Round, stage: StageContext, model: str, *, is_evaluated: bool) -> dict[str, Any]:
    """Return what a round's line says of its stage.

    `accuracy_by_stage` has the accuracy on the test images of each stage seen so far, pooled over the clients that reported;
    `average_accuracy`, `forgetting` and `backward_transfer` are those of shared/stage_measures.py, up to this stage of this
    pass. `accuracy_minority` is that on the half of all classes with the fewest samples in `class_counts`, which adds up the
    samples of all updates, and `accuracy_majority` that on the others. They are None where nothing was evaluated.
    """
    counts = [sum(each) for each in zip(stage.class_counts, *_class_counts(current), strict=True)]
    entries: dict[str, Any] = {"pass": stage.place.number, "stage": stage.place.stage, "class_counts": counts}
    names = (
        *("accuracy_by_stage", "average_accuracy", "forgetting", "backward_transfer"),
        *("accuracy_minority", "accuracy_majority"),
    )
    if not is_evaluated:
        return {**entries, **dict.fromkeys(names)}
    reports = _in_order(current.evaluations)
    row = [_pooled(reports, model, stage_set(number)) for number in range(1, stage.num_seen + 1)]
    rows = [*stage.rows, row[: stage.place.stage]]
    rare = set(rarest_classes(counts))
    values = (
        row,
        average_accuracy(rows),
        forgetting(rows),
        backward_transfer(rows),
        _pooled(reports, model, TEST_SET, rare),
        _pooled(reports, model, TEST_SET, set(range(len(counts))) - rare),
    )
    return {**entries, **dict(zip(names, values, strict=True))}


def _has_validation(report: Evaluation) -> bool:
    """Whether a client reports on validation images."""
    return any(counts.set_name == VALIDATION_SET and any(counts.total) for counts in report.counts)


def _class_counts(current: Round) -> list[Sequence[int]]:
    return [update.class_counts for update in _in_order(current.updates)]


def _pooled(
    reports: Sequence[Evaluation], model: str, set_name: str, classes: Collection[int] | None = None
) -> float | None:
    """Return the accuracy on a set over all clients together, on some classes or on all; None without samples."""
    correct = total = 0
    for report in reports:
        for counts in report.counts:
            if (counts.set_name, counts.model) == (set_name, model):
                labels = range(len(counts.total)) if classes is None else classes
                correct += sum(counts.correct[label] for label in labels)
                total += sum(counts.total[label] for label in labels)
    return correct / total if total else None


def timings_line(current: Round, *, now: float, interrupted: Collection[str] = ()) -> dict[str, Any]:
    """The round's line of timings.jsonl: seconds of each phase, and each client's own measurements.

    Args:
        now: Time in seconds since the epoch.
        interrupted: Phases in which the aggregator was started anew. Their seconds and the total are None: two processes
            measured them, and the wall clock between the two may have jumped.
    """
    phases = [phase for phase in RoundPhase if phase.value in current.phase_started_at]
    starts = [current.phase_started_at[phase.value] for phase in phases] + [now]
    seconds = {
        phase.value: None if phase.value in interrupted else starts[index + 1] - starts[index]
        for index, phase in enumerate(phases)
    }
    known = [value for value in seconds.values() if value is not None]
    return {
        "round": current.number,
        "seconds": {**seconds, "total": sum(known) if len(known) == len(seconds) else None},
        "bytes_received": sum(blob.size_bytes for update in current.updates.values() for blob in update.payload.moved),
        "clients": {
            client_id: dict(current.updates[client_id].timings if client_id in current.updates else {})
            | {f"evaluation_{name}": value for name, value in _evaluation_timings(current, client_id).items()}
            for client_id in sorted({*current.updates, *current.evaluations})
        },
    }


def manifest(run: Run, config: Mapping[str, Any], events: Sequence[Event]) -> dict[str, Any]:
    """The content of run.json: configuration, seed, versions and machine types; of a run that ended early, why.

    Args:
        events: Its events that name the initial model and the admitted clients with their environments, and that of its last
            committed round.
    """
    clients = {name: entry for event in events for name, entry in event.data.get("clients", {}).items()}
    beginnings = [event.data.get("initial_model") for event in events if event.type == "run_created"]
    return {
        "run_id": run.run_id,
        "name": run.name,
        "method": run.method,
        "paper": METHODS[run.method].paper if run.method in METHODS else None,
        "seed": run.seed,
        "total_rounds": run.total_rounds,
        "created_at": run.created_at,
        "config": dict(config),
        "config_hash": run.config_hash,
        "initial_model": next(iter(beginnings), None),
        **({"privacy": config_of(run).privacy.told(config_of(run).run.rounds)} if "privacy" in config else {}),
        "clients": dict(sorted(clients.items())),
        "aggregator": dict(aggregator_environment()),
        **_scored(events),
        **_ending(run),
    }


def _scored(events: Sequence[Event]) -> dict[str, Any]:
    """Return the last evaluated round's score with its intervals by the number of test images; nothing without one."""
    for event in events:
        if event.type == "round_committed" and event.data.get("intervals"):
            line = event.data["metrics"]
            found = {
                name: {"value": (values_of(line) or {})[name], "low": low, "high": high}
                for name, (low, high) in event.data["intervals"].items()
            }
            beside = {
                score: {
                    name: {"value": line[score][name], "low": low, "high": high} for name, (low, high) in bounds.items()
                }
                for score, bounds in event.data.get("intervals_beside", {}).items()
            }
            score = {"name": score_of(line), "round": event.round, "confidence": CONFIDENCE, "values": found}
            return {"score": {**score, **({"beside": beside} if beside else {})}}
    return {}


def _ending(run: Run) -> dict[str, str]:
    # Absent of a run that completed with its last round.
    if not run.status.is_final or run.reason is None:
        return {}
    return {"status": run.status.value, "reason": sentence_of(run.reason)}


def roster_entry(client: Client) -> dict[str, Any]:
    """The entry of a client in run.json: domain, counts, machine type, and its own kind of model if it has one."""
    return {
        "domain": client.domain,
        **({"model_kind": client.model_kind} if client.model_kind else {}),
        "num_examples": client.num_examples,
        "class_counts": dict(client.class_counts),
        "environment": {
            "packages": dict(sorted(client.environment.packages.items())),
            "cpu": client.environment.cpu,
            "device": client.environment.device,
            "platform": client.environment.platform,
        },
    }


@cache
def aggregator_environment() -> Mapping[str, Any]:
    """Versions and machine of this aggregator."""
    packages = {name: metadata.version(name) for name in PACKAGES}
    return {
        "fedplcc": VERSION,
        "python": platform.python_version(),
        "packages": packages,
        "cpu": platform.machine(),
        "platform": f"{platform.system()} {platform.release()}",
    }


def _in_order(records: Mapping[str, Any]) -> list[Any]:
    return [records[client_id] for client_id in sorted(records)]


def _evaluation_timings(current: Round, client_id: str) -> Mapping[str, float]:
    evaluation = current.evaluations.get(client_id)
    return {} if evaluation is None else evaluation.timings
