"""Values of a run's rounds, from the lines of its files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from fedplcc.runs.plots import SUMMARIES
from fedplcc.shared.config.tables.evaluation import Attack
from fedplcc.shared.scoring.class_scores import pooled
from fedplcc.shared.scoring.scores import BALANCED, balanced_accuracy
from fedplcc.shared.types import (
    ALONE_MODEL,
    BALANCED_SET,
    GLOBAL_MODEL,
    LOCAL_MODEL,
    POOLED_MODEL,
    TEST_SET,
    VALIDATION_SET,
    own_set,
)


def under(model: str, attack: str) -> str:
    """Return the name under which accuracies of a model under an attack, or on other images, stand beside the models'."""
    return f"{model}/{attack}"


BALANCED_MODELS = tuple(under(model, "balanced") for model in (GLOBAL_MODEL, LOCAL_MODEL))
"""Names of the models beside which balanced accuracies stand."""
PLAIN_MODELS = tuple(under(model, "accuracy") for model in (GLOBAL_MODEL, LOCAL_MODEL))
"""Names of the models beside which accuracies stand where balanced ones are the run's score."""
DETAILED_MODELS = tuple(under(model, name) for name in ("macro_f1", "auc") for model in (GLOBAL_MODEL, LOCAL_MODEL))
"""Names of the models beside which macro F1 and areas under ROC curves stand."""
ATTACKED_MODELS = tuple(under(model, attack) for attack in get_args(Attack) for model in (GLOBAL_MODEL, LOCAL_MODEL))
"""Names of the attacked models, in the order of a report's tables."""
VALIDATED_MODELS = tuple(under(model, VALIDATION_SET) for model in (GLOBAL_MODEL, LOCAL_MODEL))
"""Names of the models on validation images."""
STAGE_MEASURES = {
    "average_accuracy": "A",
    "forgetting": "F",
    "backward_transfer": "BWT",
    "accuracy_minority": "rarest half of the classes",
    "accuracy_majority": "other classes",
}
"""Measures of a run with stages in a line of metrics.jsonl, with the heads of their columns."""
OF_STAGES = "stages."
"""Beginning of their names among a round's computed values."""
OF_TEST = (OF_STAGES, "calibration_error.")
"""Beginnings of the names of all computed values that follow from test images."""
OWN, WHOLE, OWN_OF_WHOLE = "own", BALANCED_SET, own_set(BALANCED_SET)
"""Choice among the client's own classes, a part of the whole test set that is dealt, and the choice on that."""
STREAM_MODELS = tuple(
    under(model, which) for which in (WHOLE, OWN, OWN_OF_WHOLE) for model in (GLOBAL_MODEL, LOCAL_MODEL)
)
"""Names of the models on the further sets of runs whose data are dealt in stages, or that choose among own classes."""
Counts = tuple[int, int]
"""Correct and total predictions."""
Classes = Mapping[tuple[str, str], Sequence[Counts]]
"""Correct and total test predictions of each class, by domain and model; summed over a domain's clients."""

Confusion = Mapping[tuple[str, str], Sequence[int]]
"""Confusion matrices of test images, `[M * M]` by rows, by domain and model; summed over a domain's clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundValues:
    """One committed round.

    Attributes:
        number: Its number, from 1.
        accuracy: By model (GLOBAL_MODEL; LOCAL_MODEL, ALONE_MODEL and POOLED_MODEL where there are; and `under` an
            attack), then domain: fraction of correct predictions on the domain's test samples, or validation samples; None
            where nobody reported. Empty if the round was not evaluated.
        counts: The numbers of predictions behind them, where they are known.
        computed: Losses, numbers of prototypes and the like, by name; equal on every run.
        measured: Seconds and bytes, by name.
        classes: The numbers of predictions of each class, of unchanged test images; empty where they are not known.
        pass_number: Pass of a run with stages, from 1; None without stages.
        confusion: Confusion matrices of unchanged test images; empty where they are not known.
        scored: What `accuracy` has, of balanced accuracy, of the models for which it is the run's score.
    """

    number: int
    accuracy: Mapping[str, Mapping[str, float | None]]
    counts: Mapping[tuple[str, str], Counts]
    computed: Mapping[str, float]
    measured: Mapping[str, float]
    classes: Classes = field(default_factory=dict)
    pass_number: int | None = None
    scored: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    confusion: Confusion = field(default_factory=dict)

    @property
    def values(self) -> Mapping[str, Mapping[str, float | None]]:
        """The run's score by model, then domain; accuracies of models with another score stand as `PLAIN_MODELS`."""
        plain = {under(model, "accuracy"): self.accuracy[model] for model in self.scored if model in self.accuracy}
        return {**self.accuracy, **{name: plain[name] for name in PLAIN_MODELS if name in plain}, **self.scored}


def mean_of(accuracy: Mapping[str, float | None]) -> float | None:
    """Return the mean over the domains that have an accuracy, as in metrics.jsonl."""
    known = [value for value in accuracy.values() if value is not None]
    return sum(known) / len(known) if known else None


def worst_of(accuracy: Mapping[str, float | None]) -> float | None:
    """Return the lowest accuracy of a domain."""
    return min((value for value in accuracy.values() if value is not None), default=None)


def round_values(
    line: Mapping[str, Any],
    measured: Mapping[str, float],
    counts: Mapping[tuple[str, str], Counts],
    classes: Classes,
    confusion: Confusion | None = None,
) -> RoundValues:
    """Return the values of a line of metrics.jsonl, with the measurements and counts of its round."""
    # A round that was not evaluated has none.
    accuracy = {} if line["accuracy"] is None else _accuracy(line, counts, classes)
    return RoundValues(
        number=line["round"],
        accuracy={
            model: {domain: value for domain, value in values.items() if domain not in SUMMARIES}
            for model, values in accuracy.items()
        },
        counts=counts,
        classes=classes,
        pass_number=line.get("pass"),
        scored=_scored(line, classes),
        confusion=confusion or {},
        computed={
            **{f"loss.{term}": value for term, value in sorted(line["loss"].items())},
            **{f"prototypes.{which}": count for which, count in sorted(line["prototypes"].items())},
            **{name: line[name] for name in ("num_examples", "num_excluded") if name in line},
            **{
                f"calibration_error.{domain}": value
                for domain, value in (line.get("calibration_error") or {}).items()
                if value is not None
            },
            **{f"{OF_STAGES}{name}": line[name] for name in STAGE_MEASURES if line.get(name) is not None},
        },
        measured=measured,
    )


def _accuracy(
    line: Mapping[str, Any], counts: Mapping[tuple[str, str], Counts], classes: Classes
) -> dict[str, dict[str, float | None]]:
    """Return the accuracies of an evaluated round by model and domain, as `RoundValues` has them, with their summaries."""
    own = line.get("accuracy_of", GLOBAL_MODEL)
    accuracy = {own: line["accuracy"]}
    if "accuracy_local" in line:
        accuracy[LOCAL_MODEL] = line["accuracy_local"]
    for model in (ALONE_MODEL, POOLED_MODEL):
        if line.get(f"accuracy_{model}"):
            accuracy[model] = line[f"accuracy_{model}"]
    for attack, values in (line.get("accuracy_attacked") or {}).items():
        accuracy[under(own, attack)] = values
    from_reports = {*ATTACKED_MODELS, *STREAM_MODELS}
    if line.get("accuracy_validation"):  # without it some clients at most, or one alone, report on validation images
        accuracy[under(own, VALIDATION_SET)] = line["accuracy_validation"]
        from_reports |= {*VALIDATED_MODELS}
    for (domain, model), (correct, total) in counts.items():
        # A line has these accuracies of one model; reports have those of the other too.
        if model in from_reports and total:
            accuracy.setdefault(model, {}).setdefault(domain, correct / total)
    for model, shares in balanced(classes).items():
        accuracy[under(model, "balanced")] = shares
    for name in ("macro_f1", "auc"):
        if line.get(name):
            accuracy[under(own, name)] = line[name]
    return accuracy


def _scored(line: Mapping[str, Any], classes: Classes) -> dict[str, dict[str, float | None]]:
    """Return the balanced accuracies by model and domain of a round whose score they are; nothing of another."""
    if line.get(BALANCED) is None:
        return {}
    own = line.get("accuracy_of", GLOBAL_MODEL)
    found = {**balanced(classes), own: line[BALANCED]}
    if line.get(f"{BALANCED}_validation"):
        found[under(own, VALIDATION_SET)] = line[f"{BALANCED}_validation"]
    return {
        model: {domain: value for domain, value in values.items() if domain not in SUMMARIES}
        for model, values in found.items()
    }


def by_one_score(rounds: Sequence[RoundValues]) -> list[RoundValues]:
    """Return a run's rounds with the score of the last one that was evaluated: values of two scores are never compared.

    It is accuracy too where some round does not say its balanced accuracy.
    """
    evaluated = [current for current in rounds if current.accuracy]
    models = evaluated[-1].scored.keys() if evaluated else ()
    known = [{**balanced(current.classes), **current.scored} for current in evaluated]
    scored = [
        model
        for model in models
        if all(
            model in found
            for found, current in zip(known, evaluated, strict=True)
            if mean_of(current.accuracy.get(model, {})) is not None
        )
    ]
    return [
        replace(
            current,
            scored={
                model: found[model]
                for found in ({**balanced(current.classes), **current.scored},)
                for model in scored
                if model in found
            },
        )
        for current in rounds
    ]


def without_test(values: RoundValues) -> RoundValues:
    """Return a round without what test images say of it: accuracies on validation images and training's values stay.

    What stages have taught and made the model forget is measured on test images too.
    """
    return replace(
        values,
        accuracy={model: found for model, found in values.accuracy.items() if model in VALIDATED_MODELS},
        counts={key: found for key, found in values.counts.items() if key[1] in VALIDATED_MODELS},
        scored={model: found for model, found in values.scored.items() if model in VALIDATED_MODELS},
        classes={},
        confusion={},
        computed={name: found for name, found in values.computed.items() if not name.startswith(OF_TEST)},
    )


def measurements_of(timing: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds by phase and the bytes that clients sent and received, to train and to evaluate."""
    seconds = {
        f"seconds.{phase}": value for phase, value in sorted(timing.get("seconds", {}).items()) if value is not None
    }
    clients = list(timing.get("clients", {}).values())
    if not clients:
        return seconds
    return {
        "bytes.sent": sum(client.get("sent_bytes", 0) for client in clients),
        "bytes.received": sum(
            client.get("received_bytes", 0) + client.get("evaluation_received_bytes", 0) for client in clients
        ),
        **seconds,
    }


def counts_by_round(reports: Iterable[Mapping[str, Any]]) -> dict[int, dict[tuple[str, str], Counts]]:
    """Return the correct and total predictions by round, then domain and model, summed over a domain's clients.

    Those of test images under an attack, and of other sets, stand beside those of the model as `under` names them.
    """
    pooled: dict[int, dict[tuple[str, str], Counts]] = {}
    for report in reports:
        of_round = pooled.setdefault(report["round"], {})
        for counts in report["counts"]:
            variant = _variant(counts["set_name"])
            if variant is not None:
                key = (report["domain"], under(counts["model"], variant) if variant else counts["model"])
                correct, total = of_round.get(key, (0, 0))
                of_round[key] = (correct + sum(counts["correct"]), total + sum(counts["total"]))
    return pooled


def _variant(set_name: str) -> str | None:
    """Return what stands beside the model's name for an evaluation set: nothing for test images; None for other sets."""
    of_what, _, how = set_name.partition("/")
    if of_what == TEST_SET:
        return how
    return set_name if set_name in (VALIDATION_SET, WHOLE, OWN_OF_WHOLE) else None


def classes_by_round(reports: Iterable[Mapping[str, Any]]) -> dict[int, dict[tuple[str, str], list[Counts]]]:
    """Return the correct and total test predictions of each class by round, then domain and model."""
    pooled: dict[int, dict[tuple[str, str], list[Counts]]] = {}
    for report in reports:
        of_round = pooled.setdefault(report["round"], {})
        for counts in report["counts"]:
            if counts["set_name"] == TEST_SET:
                pairs = list(zip(counts["correct"], counts["total"], strict=True))
                known = of_round.setdefault((report["domain"], counts["model"]), [(0, 0)] * len(pairs))
                known[:] = [(hits + h, total + t) for (hits, total), (h, t) in zip(known, pairs, strict=True)]
    return pooled


def confusion_by_round(reports: Iterable[Mapping[str, Any]]) -> dict[int, dict[tuple[str, str], list[int]]]:
    """Return the confusion matrices of test images by round, then domain and model, where all of a domain sent one."""
    found: dict[int, dict[tuple[str, str], list[list[int]]]] = {}
    for report in reports:
        for counts in report["counts"]:
            if counts["set_name"] == TEST_SET and any(counts["total"]):
                key = (report["domain"], counts["model"])
                cells = [cell for row in counts.get("confusion") or () for cell in row]
                found.setdefault(report["round"], {}).setdefault(key, []).append(cells)
    return {
        number: {key: matrix for key, each in by_key.items() if (matrix := pooled(each)) is not None}
        for number, by_key in found.items()
    }


def balanced(classes: Classes) -> dict[str, dict[str, float | None]]:
    """Return the balanced accuracies by model and domain: the mean recall of the classes that are tested."""
    found: dict[str, dict[str, float | None]] = {}
    for (domain, model), counts in classes.items():
        share = balanced_accuracy([hits for hits, _ in counts], [total for _, total in counts])
        if share is not None:
            found.setdefault(model, {})[domain] = share
    return found
