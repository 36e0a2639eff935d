"""Small configurations, data and models for tests of the trainer's core."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from fedplcc.shared.config.run import DataSection, RunConfig, parse_run_config
from fedplcc.shared.config.tables.model import ModelSection
from fedplcc.shared.types import PrototypeSet, RunSpec
from fedplcc.trainer.data import ImageSet
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.training import LocalTraining, RoundInputs, TrainingObserver, local_train
from fedplcc.trainer.models import build_model, state_arrays
from fedplcc.trainer.models.cnn import CNN

CPU = torch.device("cpu")
CLASSES = ("cat", "dog", "owl")


def a_config(method: str = "fedavg", /, **sections: Mapping[str, Any]) -> RunConfig:
    """A run over three classes of 16 x 16 images with cnn4: a step takes about a millisecond."""
    document: dict[str, dict[str, Any]] = {
        "run": {"method": method, "clients": ["a", "b"], "seed": 0},
        "model": {"name": "cnn4"},
        "data": {"classes": list(CLASSES), "image_size": 16},
        "training": {"local_steps": 3, "batch_size": 4},
    }
    for name, values in sections.items():
        document[name] = {**document.get(name, {}), **values}
    return parse_run_config(document)


def a_spec(config: RunConfig) -> RunSpec:
    """A run as a task names it."""
    return RunSpec(run_id="run-1", config_json=config.canonical_json, config_hash=config.hash)


def config_of(run: RunSpec) -> RunConfig:
    return parse_run_config(json.loads(run.config_json))


def eighteen_images(folder: Path, brightest: int = 60, step: int = 80) -> str:
    """Write images of three classes, half of them for testing too; a class is brighter by a step than the one before."""
    labels = np.arange(18) % 3
    noise = np.random.default_rng(0).integers(0, brightest, (18, 16, 16, 3))
    images = (noise + step * labels[:, None, None, None]).astype(np.uint8)
    return npz(folder / "images.npz", images, labels, tests=(images[1::2], labels[1::2]))


def npz(
    path: Path, images: Any, labels: Any, classes: Sequence[str] = CLASSES, *, tests: tuple[Any, Any] | None = None
) -> str:
    """Write images and their labels, the same for testing where no others are given; returns the file's specification."""
    x_test, y_test = tests or (images, labels)
    np.savez(path, x_train=images, y_train=labels, x_test=x_test, y_test=y_test, classes=list(classes))
    return f"npz:{path}"


def write_pictures(root: Path, count: int, side: int = 16, classes: Sequence[str] = ("a", "b")) -> Path:
    """Write PNG files of noise into folders of classes by turns, so that each of them has as many."""
    rng = np.random.default_rng(0)
    for number in range(count):
        path = root / classes[number % len(classes)] / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (side, side, 3), np.uint8)).save(path)
    return root


def a_contract(**values: Any) -> DataSection:
    return DataSection(**{"classes": CLASSES, "image_size": 16, **values})


def some_images(num_images: int = 12, image_size: int = 16, num_classes: int = 3, seed: int = 0) -> ImageSet:
    rng = np.random.default_rng(seed)
    images = rng.integers(256, size=(num_images, image_size, image_size, 3), dtype=np.uint8)
    return ImageSet(images, np.arange(num_images, dtype=np.int64) % num_classes)


def some_data(num_images: int = 12, config: RunConfig | None = None, seed: int = 0) -> DeviceImages:
    contract = (config or a_config()).data
    images = some_images(num_images, contract.image_size, len(contract.classes), seed)
    return DeviceImages.put(images, contract, CPU)


def a_model(config: RunConfig | None = None) -> Any:
    """The run's model, loosely typed: tests reach into its layers."""
    config = config or a_config()
    return build_model(config.model, len(config.data.classes), config.data.image_size, config.run.seed)


def train(
    config: RunConfig | None = None, model: Any = None, data: DeviceImages | None = None, **given: Any
) -> tuple[Any, LocalTraining]:
    """Train for a round, a fresh model if none is given; returns the model and what is known of the training.

    Args:
        config: The run; a small one if none is given.
        model: Trained in place.
        data: Images of the client; a few if none are given.
        given: Fields of `RoundInputs` and `TrainingObserver`.
    """
    config = config or a_config()
    model = a_model(config) if model is None else model
    told = {name: given.pop(name) for name in ("should_stop", "on_progress", "on_batch") if name in given}
    inputs = RoundInputs(config=config, **{"method": config.algorithm, "round": 1, "client_id": "a", **given})
    return model, local_train(model, data or some_data(config=config), inputs, TrainingObserver(**told))


def some_prototypes(dim: int = 128, num_prototypes: int = 7, num_classes: int = 3) -> PrototypeSet:
    rng = np.random.default_rng(0)
    class_ids = np.arange(num_prototypes) % num_classes
    weights = rng.uniform(0.1, 1, num_prototypes)
    weights /= np.bincount(class_ids, weights)[class_ids]
    return PrototypeSet.of(np.abs(rng.standard_normal((num_prototypes, dim))), class_ids, weights)


def digest(model: nn.Module) -> str:
    """SHA-256 over the names and bytes of the model's state."""
    content = hashlib.sha256()
    for name, array in state_arrays(model).items():
        content.update(name.encode() + array.tobytes())
    return content.hexdigest()


WITHOUT_NORMS = ModelSection(name=f"{__name__}:a_model_without_norms")
"""A factory's model that has no BatchNorm layer, which only the model itself can say; `Consent.to` allows it."""


def a_model_without_norms(num_classes: int, image_size: int) -> CNN:
    return CNN(num_classes, image_size, maps=(8, 8))
