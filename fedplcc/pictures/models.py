"""Features of images under a model, and the prototypes of that model.

Shape legend: N images, D feature size, M classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from fedplcc.models.trained_model import TrainedModel, read_trained_model
from fedplcc.pictures.image_sample import ImageSample
from fedplcc.pictures.points import Points, points
from fedplcc.pictures.shown_clients import ShownClient, reading
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import InvalidConfig, InvalidData, InvalidModel
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange
from fedplcc.shared.tensors import sha256_hex, to_bytes
from fedplcc.shared.types import FloatArray, IntArray, PrototypeSet
from fedplcc.trainer.data import ImageSet, load_split, opened_once
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.evaluation import collect_features
from fedplcc.trainer.models import FeatureModel, build_model, state_arrays
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.reproducibility.randomness import derive_seed

FIRST, NOTHING = "first", "none"
"""Values of `--before` besides a path: the run's initial model, or no panel."""


def first_model(trained: TrainedModel) -> TrainedModel:
    """Return a run's initial model, built again from its specification and seed, as the first client built it.

    On the same type of machine it has the bytes of round 0's blob.

    Raises:
        InvalidModel: The run began with a given model.
    """
    config = trained.config
    if config.run.initial_model is not None:
        raise InvalidModel(
            f"{trained.title} began with a model that it was given ({config.run.initial_model}) and that its folder does "
            f"not hold; name another run to compare it with by --before, or show one panel with --before {NOTHING}"
        )
    data = config.data
    consent = Consent.to(config.model)
    model = build_model(
        config.model, len(data.classes), data.image_size, config.run.seed, consent=consent, train=config.training.train
    )
    return replace(
        trained,
        model=model.to(trained.device).eval(),
        prototypes=PrototypeSet.empty(cast(FeatureModel, model).feature_dim),
        sha256=sha256_hex(to_bytes(state_arrays(model))),
        round=0,
    )


def before_model(trained: TrainedModel, before: str) -> TrainedModel | None:
    """Return the model to compare a run's model with, or None for no second panel.

    Args:
        before: `first`, `none`, or the folder of another run or its model file.

    Raises:
        InvalidModel, InvalidConfig, StoreUnavailable: The model does not exist, or cannot be compared.
    """
    if before == NOTHING:
        return None
    if before == FIRST:
        return first_model(trained)
    other = read_trained_model(Path(before), device=str(trained.device), trusted_factory=trained.config.model.name)
    if other.config.data != trained.config.data:
        raise InvalidConfig(
            f"{before} was trained under another data contract ([data] of its configuration) than {trained.title}, so "
            "the two would not see the same images"
        )
    return other


def local_reports(trained: TrainedModel, clients: Sequence[ShownClient]) -> list[PrototypeSet]:
    """Return the prototypes of each client's training images under a model, computed by the method's client half.

    In a round a client uses the weights that it has just trained; here they are those of the given model. The sets are empty
    if the method has no prototypes.

    Raises:
        InvalidData: A client's data cannot be read or have no training image.
        InvalidModel: A feature is not finite.
    """
    config, exchange = trained.config, trained.config.algorithm.part(PrototypeExchange)
    if exchange is None:
        return [PrototypeSet.empty() for _ in clients]
    num_classes, sets = len(config.data.classes), []
    with opened_once():
        for client in clients:
            images = _training_images(client, config)
            features_ND, labels_N = features(trained, images)
            sets.append(exchange.report(features_ND, labels_N, num_classes, config.method).prototypes)
    return sets


def features(trained: TrainedModel, images: ImageSet) -> tuple[FloatArray, IntArray]:
    """Return the features `[N, D]` of images under a model and their labels `[N]`, as a client computes them.

    Raises:
        InvalidModel: A feature is not finite.
    """
    on_device = DeviceImages.put(images, trained.config.data, trained.device)
    features_ND, labels_N = collect_features(trained.model, on_device, trained.config)
    if not np.isfinite(features_ND).all():
        raise InvalidModel(f"the model of {trained.title} gives features that are not finite")
    return features_ND, labels_N


def points_of(trained: TrainedModel, sample: ImageSample, clients: Sequence[ShownClient]) -> Points:
    """Return the points of a model's panel: the sample's images, and the local and global prototypes.

    Global prototypes are those of the model's round in the run. Round 0 has none, because no client had summarised its
    images; its panel shows those that the method's server half computes from the local ones.

    Raises:
        InvalidData, InvalidModel: As `local_reports`.
    """
    features_ND, class_ids_N = features(trained, sample.images)
    sets, pool = local_reports(trained, clients), trained.prototypes
    exchange = trained.config.algorithm.part(PrototypeExchange)
    if trained.round == 0 and exchange is not None:
        pool = exchange.merge(sets, len(trained.config.data.classes), trained.config.method)
    domain_ids = [sample.domains.index(client.domain) for client in clients]
    local = list(zip(domain_ids, sets, strict=True))
    return points(features_ND, class_ids_N, sample.domain_ids_N, local=local, global_=pool)


def _training_images(client: ShownClient, config: RunConfig) -> ImageSet:
    """Return the images that the client trained on, as `fedplcc.trainer.task.runner` chooses them."""
    seed = derive_seed("subset", config.run.seed, client.name)
    with reading(client):
        images, _ = load_split(
            client.data,
            contract=config.data,
            split="train",
            samples_per_class=client.samples_per_class,
            fraction=client.fraction,
            seed=seed,
        )
        if not len(images):
            raise InvalidData(f"data {client.data!r} has no training image")
    return images
