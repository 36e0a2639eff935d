"""Predictions for images without labels: classes with probabilities, and the nearest global prototype.

Shape legend: N images, B batch, S image size, D feature size, M classes, G prototypes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fedplcc.models.trained_model import TrainedModel
from fedplcc.shared.errors import InvalidModel
from fedplcc.terminal.printable import printable
from fedplcc.trainer.data import ImageSet
from fedplcc.trainer.data.images.pixels import read_pixels
from fedplcc.trainer.data.images.scaling import Pixels, Unnamed, Unreadable, Unstated, Window
from fedplcc.trainer.data.sets.walking import Walk
from fedplcc.trainer.data.source import fit_image
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.ops import TorchOps
from fedplcc.trainer.models import FeatureModel
from fedplcc.trainer.models.inference import inference

OnProblem = Callable[[str], None]
"""Told, in a sentence, of something that was named and gives no prediction."""

OF_A_SITE = 'its file states no range, and data.window = "auto" is that of a whole data set, as model evaluate reads it'
OF_FRAMES = "it has several frames; save the one to classify as a file of its own"
MAX_NAME_WIDTH = 20
"""Longest class name in a table of 80 columns; a longer one is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestPrototype:
    """The prototype with the largest cosine to an image's features.

    Attributes:
        class_name: Its class, which need not be the predicted one.
        similarity: The cosine, in [-1, 1].
        weight: Its share of its class's samples (FedPLCC, eq. 11).
    """

    class_name: str
    similarity: float
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The prediction for one image.

    Attributes:
        top: The most probable classes with their probabilities, best first; at least one.
        prototype: None where the run has no prototypes.
        probabilities: That of each class, in the order of the run's classes.
    """

    image: str
    top: tuple[tuple[str, float], ...]
    prototype: NearestPrototype | None
    probabilities: tuple[float, ...]

    def as_json(self) -> dict[str, Any]:
        """The object of `--json`."""
        class_name, probability = self.top[0]
        nearest = self.prototype
        return {
            "image": self.image,
            "class": class_name,
            "probability": probability,
            "top": [{"class": name, "probability": value} for name, value in self.top],
            "prototype": nearest
            and {"class": nearest.class_name, "similarity": nearest.similarity, "weight": nearest.weight},
        }


def csv_lines(
    found: Iterable[Prediction], classes: Sequence[str], *, has_prototypes: bool
) -> Iterator[tuple[str | float, ...]]:
    """Yield a heading and a line for each prediction: image, class, probability, nearest prototype, each probability."""
    nearest = ("prototype_class", "prototype_similarity", "prototype_weight") if has_prototypes else ()
    yield ("image", "class", "probability", *nearest, *(f"probability of {name}" for name in classes))
    for each in found:
        near = each.prototype
        beside = () if near is None else (near.class_name, near.similarity, near.weight)
        yield (each.image, *each.top[0], *beside, *each.probabilities)


def image_files(paths: Iterable[Path], on_problem: OnProblem) -> Iterator[Path]:
    """Yield the named files, and the images in named folders, sorted by path.

    What counts as an image in a folder is as in data that are trained on: see walking.py. Other files are left alone.
    """
    for path in paths:
        if not path.is_dir():
            if path.exists():
                yield path
            else:
                on_problem(f"there is no file {path}")
            continue
        try:
            found = Walk(path, is_class=True).files({"": [""]})[""]
        except OSError as error:
            on_problem(f"cannot read the folder {error.filename}: {error.strerror}")
            continue
        if not found:
            on_problem(f"the folder {path} holds no images")
        yield from (path / name for name in found)


def predictions(
    trained: TrainedModel, files: Iterable[Path], *, top: int = 1, on_problem: OnProblem
) -> Iterator[Prediction]:
    """Yield the prediction for each readable image, in order.

    Images are fitted and normalised as the run's training images were, and held in memory a batch at a time.

    Args:
        top: Number of classes to tell of each image.
        on_problem: Called with a sentence for each file that cannot be read as an image.

    Raises:
        InvalidModel: The model gives an image no probabilities, or cannot be computed deterministically on the device.
    """
    size = trained.config.data.image_size
    images = _read(files, size, trained.config.data.window, on_problem)
    while batch := list(islice(images, trained.config.training.evaluation_batch_size)):
        yield from _batch(trained, [file for file, _ in batch], [pixels for _, pixels in batch], top)


def _read(
    files: Iterable[Path], image_size: int, window: Window, on_problem: OnProblem
) -> Iterator[tuple[Path, Pixels]]:
    for file in files:
        try:
            pixels = read_pixels(file, window)
        except Unreadable as error:
            is_of_site = window == "auto" and isinstance(error, Unstated)
            why = OF_A_SITE if is_of_site else OF_FRAMES if isinstance(error, Unnamed) else error
            on_problem(f"{file} cannot be read as an image: {why}")
        else:
            yield file, fit_image(pixels, image_size)


def _batch(trained: TrainedModel, files: Sequence[Path], pixels: Sequence[Pixels], top: int) -> Iterator[Prediction]:
    classes, contract = trained.config.data.classes, trained.config.data
    images = ImageSet(np.stack(pixels), np.zeros(len(pixels), np.int64))
    model = cast(FeatureModel, trained.model)
    with inference(trained.model, trained.config, trained.device):
        ((x_B3SS, _),) = DeviceImages.put(images, contract, trained.device).in_order(len(images))
        features_BD = model.features(x_B3SS).float()
        probabilities_BM = (model.classifier(features_BD).double() / trained.temperature).softmax(-1)
        best_B = probabilities_BM.topk(min(top, len(classes)), dim=-1)
        nearest_B = _nearest(trained, features_BD)
    for i, file in enumerate(files):
        values, indices = best_B.values[i].tolist(), best_B.indices[i].tolist()
        if not np.isfinite(values).all():
            raise InvalidModel(f"the model of {trained.title} gives {file} no probabilities: its logits are not finite")
        named = tuple((classes[index], value) for index, value in zip(indices, values, strict=True))
        yield Prediction(
            image=str(file), top=named, prototype=nearest_B[i], probabilities=tuple(probabilities_BM[i].tolist())
        )


def _nearest(trained: TrainedModel, features_BD: Tensor) -> Sequence[NearestPrototype | None]:
    prototypes = trained.prototypes
    if not len(prototypes):
        return [None] * len(features_BD)
    vectors_GD = torch.tensor(prototypes.vectors, device=trained.device)
    similarity_BG = TorchOps().cosine(features_BD, vectors_GD)
    best_B = similarity_BG.max(-1)
    return [
        NearestPrototype(
            class_name=trained.config.data.classes[int(prototypes.class_ids[row])],
            similarity=min(1.0, max(-1.0, similarity)),  # rounding may exceed 1 by a last bit
            weight=float(prototypes.weights[row]),
        )
        for row, similarity in zip(best_B.indices.tolist(), best_B.values.tolist(), strict=True)
    ]


class PredictionTable:
    """Predictions as lines of text under a heading. Pure.

    The file comes last, so that every other column has a width that is known before the first image is read.
    """

    def __init__(self, classes: Sequence[str], *, has_prototypes: bool) -> None:
        self._width = max(len("class"), min(max(map(len, classes)), MAX_NAME_WIDTH))
        self._has_prototypes = has_prototypes

    def heading(self) -> str:
        """The names of the columns."""
        columns = ["class".ljust(self._width), "probability"]
        if self._has_prototypes:
            columns += [self._prototype_class("nearest prototype"), "similarity", "weight"]
        return "  ".join([*columns, "image"])

    def lines(self, prediction: Prediction) -> Iterator[str]:
        """The image's line, and a line for each further class."""
        for number, (name, probability) in enumerate(prediction.top):
            columns = [_cut(name, self._width), f"{100 * probability:10.1f}%"]
            if number == 0:
                nearest = prediction.prototype
                if nearest is not None:
                    columns += [
                        self._prototype_class(nearest.class_name),
                        f"{nearest.similarity:10.3f}",
                        f"{nearest.weight:6.3f}",
                    ]
                columns.append(printable(prediction.image))
            yield "  ".join(columns)

    def _prototype_class(self, name: str) -> str:
        return _cut(name, max(self._width, len("nearest prototype")))


def _cut(name: str, width: int) -> str:
    """The name in exactly `width` columns."""
    return (name if len(name) <= width else name[: width - 1] + "…").ljust(width)
