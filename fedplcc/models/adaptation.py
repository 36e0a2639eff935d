"""A run's model for a site, without training: BatchNorm statistics of the site's images, or a temperature.

Statistics look at no label; a temperature is fitted to labelled validation images (docs/algorithms.md, rule 12.6).
New statistics make a fitted temperature void. It stands in the description beside the model: metadata of the model's file
have no stable order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedplcc.models.description import Description, description_file, write_description
from fedplcc.models.evaluation import name_of
from fedplcc.models.temperature import doubts_about, fitted_temperature
from fedplcc.models.trained_model import TrainedModel
from fedplcc.runs.atomic_file import atomic_file
from fedplcc.runs.run_folder import recorded_clients
from fedplcc.shared.errors import InvalidConfig, InvalidData, InvalidModel
from fedplcc.shared.tensors import prototypes_to_bytes, sha256_hex, to_bytes
from fedplcc.trainer.data import load_dataset, load_training_images
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.evaluation import logits_of
from fedplcc.trainer.learning.site_statistics import take_site_statistics
from fedplcc.trainer.models import counting_layers, state_arrays
from fedplcc.trainer.reproducibility.randomness import derive_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """The part of a data set that a client of the run trained on.

    Attributes:
        client: The client, whose name is part of the draw; empty for data of no client.
        samples_per_class: Size of its class-balanced subset; all training images if None.
        fraction: Share of each class's images, in place of it.
        validation_per_class: Images of a class that it sets aside; those of the run's rule if None.
    """

    client: str
    samples_per_class: int | None
    fraction: float | None
    validation_per_class: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedModel:
    """A model that was adapted to a site.

    Attributes:
        unreadable: Images that could not be read and were left out.
        doubts: Sentences on what little its images say.
    """

    data: bytes
    description: Description
    unreadable: tuple[str, ...]
    doubts: tuple[str, ...] = ()


def as_recorded(subset: Subset, trained: TrainedModel) -> Subset:
    """Return a client's subset, with what it leaves open as the run's folder tells it.

    Raises:
        InvalidConfig: The run has no such client, or federation.json beside the model is wrong.
        StoreUnavailable: That file cannot be read.
    """
    tables = recorded_clients(trained.file.parent)
    known = trained.clients or tuple(tables)
    if known and subset.client not in known:
        raise InvalidConfig(f"--client {subset.client}: the run has no such client; it has {', '.join(sorted(known))}")
    table = tables.get(subset.client)
    if table is not None and subset.samples_per_class is None and subset.fraction is None:
        subset = replace(subset, samples_per_class=table.samples_per_class, fraction=table.fraction)
    if table is not None and subset.validation_per_class is None:
        subset = replace(subset, validation_per_class=table.validation_per_class)
    return subset


def with_statistics(trained: TrainedModel, data: str, subset: Subset | None = None) -> AdaptedModel:
    """Return a model with the statistics of a site's training images, as `evaluation.batch_norm = "site"` has them.

    Args:
        trained: A run's model, or one that was adapted before; its statistics are replaced in place.
        data: Data specification; a `folder:` without class folders is taken whole.
        subset: The part of the data that counts; all training images if None.

    Raises:
        InvalidModel: The model has no BatchNorm layer, or its statistics are not finite.
        InvalidData: The data set cannot be opened, or has no training image.
    """
    config = trained.config
    if not counting_layers(trained.model):
        raise InvalidModel(
            f"the model of {trained.title}, {config.model.name!r}, has no BatchNorm layer with running statistics, so "
            "there is nothing to adapt; use it as it is"
        )
    images, unreadable = load_training_images(
        data,
        contract=config.data,
        samples_per_class=None if subset is None else subset.samples_per_class,
        fraction=None if subset is None else subset.fraction,
        validation_per_class=None if subset is None else subset.validation_per_class,
        seed=0 if subset is None else derive_seed("subset", config.run.seed, subset.client),
    )
    take_site_statistics(trained.model, DeviceImages.put(images, config.data, trained.device), config)
    arrays = state_arrays(trained.model)
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise InvalidModel(f"the statistics of {data} under the model of {trained.title} are not finite")
    return _adapted(trained, to_bytes(arrays), unreadable, calibrated_on=data, num_images=len(images))


def with_temperature(trained: TrainedModel, data: str, subset: Subset | None = None) -> AdaptedModel:
    """Return a model with the temperature that fits the validation images of a data set best.

    Args:
        trained: A run's model, or one that was adapted before, whose statistics stay.
        data: Data specification of labelled images.
        subset: Whose validation images they are; those of the run's rule if None.

    Raises:
        InvalidModel: Its logits are not finite.
        InvalidData: The data set cannot be opened, breaks the run's data contract, or has no validation image.
    """
    config, before = trained.config, trained.description
    loaded = load_dataset(
        data,
        contract=config.data,
        samples_per_class=None if subset is None else subset.samples_per_class,
        fraction=None if subset is None else subset.fraction,
        validation_per_class=None if subset is None else subset.validation_per_class,
        seed=0 if subset is None or not subset.client else derive_seed("subset", config.run.seed, subset.client),
    )
    images = loaded.validation
    if not len(images):
        raise InvalidData(
            f"data {data!r} has no validation images, to which a temperature is fitted; set some aside with "
            "--validation-per-class, or with data.validation_every before a run"
        )
    put = DeviceImages.put(images, config.data, trained.device)
    logits_NM = logits_of(trained.model, put, config).double().numpy()
    if not np.isfinite(logits_NM).all():
        raise InvalidModel(f"the logits of the model of {trained.title} are not finite")
    temperature = fitted_temperature(logits_NM, images.labels_N)
    adapted = _adapted(
        trained,
        to_bytes(state_arrays(trained.model)),
        loaded.unreadable,
        calibrated_on=None if before is None else before.calibrated_on,
        num_images=None if before is None else before.num_images,
        temperature=temperature,
        temperature_of=data,
        temperature_images=len(images),
    )
    return replace(adapted, doubts=doubts_about(temperature, images.labels_N))


def _adapted(trained: TrainedModel, content: bytes, unreadable: tuple[str, ...], **facts: Any) -> AdaptedModel:
    config, before = trained.config, trained.description
    has_prototypes = len(trained.prototypes) > 0
    description = Description(
        run_id=trained.run_id,
        round=trained.round,
        method=config.run.method,
        config=json.loads(config.canonical_json),
        model_sha256=sha256_hex(content),
        run_model_sha256=trained.sha256 if before is None else before.run_model_sha256,
        prototypes_sha256=sha256_hex(prototypes_to_bytes(trained.prototypes)) if has_prototypes else None,
        **facts,
    )
    return AdaptedModel(data=content, description=description, unreadable=unreadable)


def usual_place(trained: TrainedModel, data: str, *, is_temperature: bool) -> Path:
    """Return the file of an adapted model where no other is named: beside the model, one per data set."""
    what = "temperature" if is_temperature else "at"
    return trained.file.with_name(f"{trained.file.stem}-{what}-{name_of(data)}.safetensors")


def check_place(path: Path) -> None:
    """Refuse a place where another file than an adapted model lies.

    Raises:
        InvalidConfig: It is so.
    """
    if path.exists() and not description_file(path).exists():
        raise InvalidConfig(f"{path} is there already and is no adapted model, so it is kept; name another with --out")


def write_adapted(path: Path, adapted: AdaptedModel) -> None:
    """Write an adapted model and its description.

    Raises:
        StoreUnavailable: They cannot be written.
    """
    # First, so that a model without its description never lies there.
    write_description(path, adapted.description)
    with atomic_file(path) as file:
        file.write(adapted.data)
