"""Scores of an evaluation beside its accuracy: recall, balanced accuracy, classes that are never found. Pure.

Where most images are of one class, a model that always says that class has a high accuracy and finds nothing. A run's score
is therefore the balanced accuracy, the mean over the classes of their recalls, where test images are that uneven.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from fedplcc.shared.chance import RunWarning, RunWarningKind

Score = Literal["accuracy", "balanced_accuracy"]
"""A score; a line of metrics.jsonl has its values by domain under this key."""
ACCURACY: Score = "accuracy"
BALANCED: Score = "balanced_accuracy"

UNEVEN = 3.0
"""Images of a domain's largest test class in those of its smallest one, beyond which accuracy tells little."""
FEWEST_IMAGES = 5
"""Test images of a class, over all clients, of which a model that learns it finds one."""
FEW_IMAGES = 10
"""Images of a class below which its owner is warned: what a site says of it hangs on single ones."""
MAX_UNFOUND = 64
"""Most classes that a round's line names as never found."""
FIRST_ROUND = 5
"""Round before which classes that are not found yet are the beginning of training."""
MAX_NAMED = 5
"""Classes that a sentence names."""


def recalls(correct_M: Sequence[int], total_M: Sequence[int]) -> list[float | None]:
    """Return the recall of each class, correct / total; None for a class without images."""
    return [right / number if number else None for right, number in zip(correct_M, total_M, strict=True)]


def balanced_accuracy(correct_M: Sequence[int], total_M: Sequence[int]) -> float | None:
    """Return the mean recall of the classes that have images, scikit-learn's balanced_accuracy_score; None without any."""
    known = [value for value in recalls(correct_M, total_M) if value is not None]
    return sum(known) / len(known) if known else None


def is_uneven(total_M: Sequence[int]) -> bool:
    """Whether the largest class has more than `UNEVEN` times the images of the smallest one that has any."""
    present = [number for number in total_M if number]
    return bool(present) and max(present) > UNEVEN * min(present)


def score_is_balanced(score: str, class_counts: Sequence[int]) -> bool:
    """Whether a run's score is balanced accuracy, as far as one client can tell from its own images."""
    return score == BALANCED or (score == "auto" and is_uneven(class_counts))


def unfound(correct_M: Sequence[int], total_M: Sequence[int]) -> list[int]:
    """Return the classes of which no image was found, though there are at least `FEWEST_IMAGES`; the first `MAX_UNFOUND`."""
    pairs = enumerate(zip(correct_M, total_M, strict=True))
    return [label for label, (right, number) in pairs if number >= FEWEST_IMAGES and not right][:MAX_UNFOUND]


def summed(counts: Iterable[Sequence[int]], num_classes: int) -> list[int]:
    """Add up counts by class."""
    return [sum(each) for each in zip([0] * num_classes, *counts, strict=True)]


def score_of(line: Mapping[str, Any]) -> Score:
    """Return the score by which a line of metrics.jsonl is to be read."""
    return BALANCED if line.get(BALANCED) is not None else ACCURACY


def values_of(line: Mapping[str, Any]) -> Mapping[str, float | None] | None:
    """Return the values of a line's score by domain, with "mean" and "worst"; None of a round that was not evaluated."""
    found: Mapping[str, float | None] | None = line.get(score_of(line))
    return found


def known_domains(values: Mapping[str, float | None]) -> set[str]:
    """Return the domains that have a score, of scores by domain with "mean" and "worst" or without."""
    return {name for name, value in values.items() if value is not None} - {"mean", "worst"}


def is_better(values: Mapping[str, float | None], known: Mapping[str, float | None]) -> bool:
    """Whether the mean score is higher over the domains that both have; not where there are none."""
    common = sorted(known_domains(values) & known_domains(known))
    new, old = (sum(of[name] or 0.0 for name in common) / max(len(common), 1) for of in (values, known))
    return new > old


def unfound_warning(line: Mapping[str, Any], classes: Sequence[str], total_rounds: int) -> RunWarning | None:
    """Return the warning about classes that a round's model never finds; None where it finds each, or has just begun."""
    trained = line.get("class_counts")  # of a run with stages: what is still to come cannot be found
    found = [label for label in line.get("unfound") or () if label < len(classes)]
    labels = [label for label in found if trained is None or trained[label]]
    if not labels or line["round"] < min(FIRST_ROUND, total_rounds):
        return None
    names = [f"{classes[label]!r}" for label in labels[:MAX_NAMED]]
    more = [f"{len(labels) - MAX_NAMED} more"] if len(labels) > MAX_NAMED else []
    listed = " and ".join(filter(None, (", ".join([*names, *more][:-1]), [*names, *more][-1])))
    which, whose = (f"class {listed} is", "its") if len(labels) == 1 else (f"classes {listed} are", "their")
    model = "the clients' own models give" if line.get("accuracy_of") else "the global model gives"
    return RunWarning(
        RunWarningKind.CLASSES_UNFOUND,
        line["round"],
        f"{which} never found: {model} none of {whose} test images the right class in round {line['round']}; "
        "train longer, or give sites equal numbers of each class (--samples-per-class)",
    )
