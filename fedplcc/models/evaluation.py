"""Evaluation of a model on labelled images: accuracy, overall and per class, and the confusion matrix.

It runs the same code as the run's own evaluation, so a client's own data give the same accuracy.

Shape legend: N images, M classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedplcc.models.confusion_matrix import confusion_matrix
from fedplcc.models.trained_model import TrainedModel
from fedplcc.runs.artifacts import RELIABILITY
from fedplcc.runs.atomic_file import atomic_file, write_text
from fedplcc.runs.reliability import reliability_diagram
from fedplcc.shared.bounds import MAX_CONFUSED_CLASSES
from fedplcc.shared.config.settings import weights_folder
from fedplcc.shared.errors import InvalidData
from fedplcc.shared.scoring.class_scores import ClassScores, class_scores
from fedplcc.shared.scoring.histograms import areas, calibration_error, histograms_of, macro_area, reliability
from fedplcc.shared.scoring.intervals import (
    Interval,
    accuracy_interval,
    area_intervals,
    balanced_interval,
    macro_area_interval,
    macro_f1_interval,
    share_interval,
)
from fedplcc.shared.scoring.scores import balanced_accuracy
from fedplcc.shared.tensors import sha256_hex
from fedplcc.shared.types import IntArray, ScoreHistograms
from fedplcc.terminal.numbers import percent
from fedplcc.trainer.data import Split, load_split
from fedplcc.trainer.data.images.store import IMAGES, ImageStore
from fedplcc.trainer.data.reading import Reader
from fedplcc.trainer.data.specs import open_source
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.evaluation import predicted_classes

REPORT, PICTURE = "evaluation.json", "confusion.png"
EVALUATIONS = "evaluations"
"""Folder of evaluations in a run's folder, where no other place is named."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelEvaluation:
    """Results of a model on labelled images.

    Attributes:
        confusion_MM: How many images of class i were given class j. An image that was given no class, because its logits
            were not finite, is in no column.
        histograms: Numbers of images by their probabilities; None of more than 64 classes, and where some have none.
        unreadable: Images that could not be read and count nowhere.
        window: What data.window = "auto" is of this data set; None where the run has another, or the pictures need none.
    """

    title: str
    facts: Mapping[str, Any]
    data: str
    split: Split
    classes: tuple[str, ...]
    total_M: IntArray
    confusion_MM: IntArray
    histograms: ScoreHistograms | None
    unreadable: tuple[str, ...]
    window: tuple[float, float] | None = None

    @property
    def num_examples(self) -> int:
        """Number of images."""
        return int(self.total_M.sum())

    @property
    def num_correct(self) -> int:
        """Number of images with the right class."""
        return int(self.confusion_MM.trace())

    @property
    def accuracy(self) -> float:
        """Fraction of images with the right class."""
        return self.num_correct / self.num_examples

    @property
    def scores(self) -> ClassScores:
        """Precision, specificity and F1 of each class; its recall is its accuracy."""
        return class_scores(self.total_M.tolist(), self.confusion_MM.ravel().tolist())

    @property
    def _macro_f1_interval(self) -> Interval | None:
        return macro_f1_interval(self.total_M.tolist(), self.confusion_MM.ravel().tolist())

    def as_json(self) -> dict[str, Any]:
        """The content of evaluation.json and `--json`."""
        right_M, total_M = self.confusion_MM.diagonal().tolist(), self.total_M.tolist()
        return {
            **self.facts,
            "data": self.data,
            "split": self.split,
            "num_examples": self.num_examples,
            "num_correct": self.num_correct,
            "num_unreadable": len(self.unreadable),
            "accuracy": self.accuracy,
            "accuracy_interval": _bounds(accuracy_interval(right_M, total_M)),
            "balanced_accuracy": balanced_accuracy(right_M, total_M),
            "balanced_accuracy_interval": _bounds(balanced_interval(right_M, total_M)),
            "macro_f1": self.scores.macro_f1,
            "macro_f1_interval": _bounds(self._macro_f1_interval),
            **({} if self.histograms is None else _calibration(self.histograms)),
            "classes": [
                {
                    "class": name,
                    "num_examples": total,
                    "num_correct": correct,
                    "accuracy": _ratio(correct, total),
                    "accuracy_interval": _bounds(share_interval(correct, total)),
                    "precision": self.scores.precision[index],
                    "specificity": self.scores.specificity[index],
                    "f1": self.scores.f1[index],
                }
                for index, (name, total, correct) in enumerate(self._per_class())
            ],
            "confusion": self.confusion_MM.tolist(),
        }

    def lines(self) -> Iterator[str]:
        """Lines of text: the accuracy, and each class with its commonest mistake."""
        part = {"all": "images", "test": "test images", "train": "training images"}[self.split]
        yield f"{self.title}: {self.num_examples} {part} of {self.data}"
        if self.window is not None:
            low, high = self.window
            yield f'data.window = "auto" is {low:g} to {high:g} here, and may have been another where the model was trained'
        scores = self.scores
        counts = self.confusion_MM.diagonal().tolist(), self.total_M.tolist()
        yield (
            f"accuracy {100 * self.accuracy:.1f}%{_range(accuracy_interval(*counts))} ({self.num_correct} of "
            f"{self.num_examples}), balanced accuracy {percent(balanced_accuracy(*counts))}"
            f"{_range(balanced_interval(*counts))}, macro F1 {percent(scores.macro_f1)}"
            f"{_range(self._macro_f1_interval)}"
        )
        if self.histograms is not None:
            error = calibration_error(reliability(self.histograms))
            area = macro_area(self.histograms)
            known = _range(macro_area_interval(self.histograms))
            yield f"area under the ROC curve {percent(area)}{known}, mean of the classes; calibration error {percent(error)}"
        if classless := self.num_examples - int(self.confusion_MM.sum()):
            yield f"{classless} of the images get no class and count as wrong: the model's logits are not finite there"
        names = [_short(name) for name in self.classes]
        width = max(len("class"), *map(len, names))
        yield (
            f"{'class':<{width}}  {'images':>7}  {'recall':>6}  {'precision':>9}  {'specificity':>11}  most often taken for"
        )
        for index, (_, total, _correct) in enumerate(self._per_class()):
            recall, precision, specificity = (
                percent(each[index]) for each in (scores.recall, scores.precision, scores.specificity)
            )
            mistakes = self.confusion_MM[index].copy()
            mistakes[index] = 0
            worst = int(mistakes.argmax())
            taken_for = f"{names[worst]} ({mistakes[worst]})" if mistakes[worst] else ""
            shares = f"{recall:>6}  {precision:>9}  {specificity:>11}"
            yield f"{names[index]:<{width}}  {total:>7}  {shares}  {taken_for}".rstrip()

    def _per_class(self) -> Iterator[tuple[str, int, int]]:
        return zip(self.classes, self.total_M.tolist(), self.confusion_MM.diagonal().tolist(), strict=True)


def evaluate_model(trained: TrainedModel, data: str, split: Split = "test") -> ModelEvaluation:
    """Classify every image of one part of a data set.

    Images that memory would not hold lie decoded where this host's trainers have theirs (docs/data.md).

    Raises:
        InvalidData: The data set cannot be opened, breaks the run's data contract, or has no image in that part.
        DiskFull, StoreUnavailable: Images do not fit into memory and cannot be written.
    """
    contract = trained.config.data
    reader = Reader(store=ImageStore(weights_folder() / IMAGES))
    source = open_source(data, contract.test_every)
    images, unreadable = load_split(data, contract=contract, split=split, reader=reader, opened=source)
    if not len(images):
        skipped = f", and {len(unreadable)} files could not be read" if unreadable else ""
        kind = {"test": "test image", "train": "training image", "all": "image"}[split]
        hint = "" if split == "all" else "; --split all takes every image there is"
        raise InvalidData(f"data {data!r} has no {kind}{skipped}{hint}")
    num_classes = len(contract.classes)
    has_bins = num_classes <= MAX_CONFUSED_CLASSES
    predicted_N, *bins_MN = predicted_classes(
        trained.model,
        DeviceImages.put(images, contract, trained.device),
        trained.config,
        has_bins=has_bins,
        temperature=trained.temperature,
    )
    is_named_N = predicted_N >= 0
    histograms = (
        histograms_of(np.stack(bins_MN, axis=1), images.labels_N, predicted_N, num_classes)
        if bins_MN and is_named_N.all()
        else None
    )
    cells_N = images.labels_N[is_named_N] * num_classes + predicted_N[is_named_N]
    return ModelEvaluation(
        title=trained.title,
        facts=trained.facts,
        data=data,
        split=split,
        classes=contract.classes,
        total_M=np.bincount(images.labels_N, minlength=num_classes),
        confusion_MM=np.bincount(cells_N, minlength=num_classes**2).reshape(num_classes, num_classes),
        histograms=histograms,
        unreadable=unreadable,
        window=source.test.auto() if contract.window == "auto" and source.test.auto is not None else None,
    )


def evaluation_folder(trained: TrainedModel, data: str, split: Split) -> Path:
    """The usual folder of an evaluation: below the model's folder, one per data set and part.

    Evaluations of an adapted model have a folder of its file's name around them.
    """
    name, folder = name_of(data), trained.file.parent / EVALUATIONS
    if trained.description is not None:
        folder /= trained.file.stem
    return folder / (name if split == "test" else f"{name}-{split}")


def name_of(data: str) -> str:
    """Return a name for files about a data specification; one that is no name itself gets a part of its SHA-256."""
    name = re.sub(r"[^A-Za-z0-9._]+", "-", data).strip("-.")[-80:]
    return name if name == data else f"{name}-{sha256_hex(data.encode(errors='surrogateescape'))[:6]}"


def write_evaluation(folder: Path, evaluation: ModelEvaluation) -> Sequence[str]:
    """Write the report and, where matplotlib is installed, the picture; returns the names of the files written.

    Raises:
        StoreUnavailable: The folder cannot be written.
    """
    write_text(folder / REPORT, json.dumps(evaluation.as_json(), indent=2, allow_nan=False) + "\n")
    title = f"{evaluation.data}\n{100 * evaluation.accuracy:.1f} % of {evaluation.num_examples} images right"
    try:
        picture = confusion_matrix(evaluation.confusion_MM, evaluation.classes, title=title)
    except ImportError:
        (folder / PICTURE).unlink(missing_ok=True)
        (folder / RELIABILITY).unlink(missing_ok=True)
        return [REPORT]
    pictures = {PICTURE: picture}
    if evaluation.histograms is not None:
        bins = {"all images": reliability(evaluation.histograms)}
        pictures[RELIABILITY] = reliability_diagram(bins, title=title)
    for name, content in pictures.items():
        with atomic_file(folder / name) as file:
            file.write(content)
    return [REPORT, *pictures]


def _calibration(histograms: ScoreHistograms) -> dict[str, Any]:
    bins = reliability(histograms)
    return {
        "auc": areas(histograms),
        "auc_intervals": [_bounds(each) for each in area_intervals(histograms)],
        "macro_auc": macro_area(histograms),
        "macro_auc_interval": _bounds(macro_area_interval(histograms)),
        "calibration_error": calibration_error(bins),
        "reliability": [asdict(each) for each in bins],
    }


def _bounds(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def _range(interval: Interval | None) -> str:
    return "" if interval is None else f" {interval}"


def _ratio(correct: int, total: int) -> float | None:
    return correct / total if total else None


def _short(name: str) -> str:
    return name if len(name) <= 20 else name[:19] + "…"
