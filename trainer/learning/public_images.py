"""Learning from public images: a pass towards the round's targets, and what a model makes of them.

Both take the images in whole batches and in one order, so that rows of different clients are about the same images.

Shape legend: n images of whole batches, B batch, S image size.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from fedplcc.shared.config.run import DataSection, RunConfig
from fedplcc.shared.config.tables.public import PublicSection
from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.methods.arrays import ArrayGroup
from fedplcc.shared.methods.parts.public import PublicLearning, PublicStep
from fedplcc.trainer.cancellation import ShouldStop, check, never
from fedplcc.trainer.data.images.stored import pieces_of
from fedplcc.trainer.data.public import load_public
from fedplcc.trainer.data.reading import IN_MEMORY, Reader
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.divergence import cause_in_loss, is_finite
from fedplcc.trainer.learning.losses import loss_values, total_loss
from fedplcc.trainer.learning.ops import TorchOps
from fedplcc.trainer.learning.training import RoundInputs
from fedplcc.trainer.learning.update_rules import Adam
from fedplcc.trainer.models import FeatureModel
from fedplcc.trainer.models.inference import inference
from fedplcc.trainer.reproducibility.determinism import nondeterminism_explained, prepare_torch, seeded


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicImages:
    """Public images of a run at one site.

    Attributes:
        section: The run's `[public]`.
        contract: The run's `[data]`.
        images: The images; their labels mean nothing.
        sha256: SHA-256 of their size and pixels, 32 bytes: equal at every client.
    """

    section: PublicSection
    contract: DataSection
    images: DeviceImages
    sha256: bytes

    @classmethod
    def load(
        cls,
        spec: str,
        section: PublicSection,
        contract: DataSection,
        device: torch.device,
        reader: Reader = IN_MEMORY,
    ) -> Self:
        """Read the images for a device.

        Raises:
            InvalidData: See `load_public`.
        """
        found = load_public(
            spec,
            section.num_images,
            image_size=contract.image_size,
            test_every=contract.test_every,
            window=contract.window,
            reader=reader,
        )
        digest = hashlib.sha256(np.array(found.images.shape, "<i8").tobytes())
        for some_nSS3 in pieces_of(found.images):
            digest.update(np.ascontiguousarray(some_nSS3).data)
        images = DeviceImages.put(found, contract, device)
        return cls(section=section, contract=contract, images=images, sha256=digest.digest())


def learn_from_public(
    model: nn.Module,
    public: PublicImages,
    targets: ArrayGroup,
    inputs: RoundInputs,
    *,
    should_stop: ShouldStop = never,
) -> Mapping[str, float]:
    """Train a model in place, once over all whole batches; return the mean of each loss term over them.

    Args:
        targets: Arrays of n rows, as the server sent them.
        inputs: Those of the client's training in this round.

    Raises:
        Cancelled: `should_stop()` held; the model is somewhere in between.
        TrainingDiverged: A loss or a parameter was not finite.
        InvalidModel: One of the model's operations has no deterministic form on the device.
    """
    config, part = inputs.config, _part(inputs.config)
    prepare_torch(config.training.threads, public.images.device)
    params = [param for param in model.parameters() if param.requires_grad]
    if not params:
        raise InvalidModel(f"model {config.model.name!r} has no parameter that requires a gradient")
    rule = Adam(params, part.learning_rate(config.method))
    on_device = {name: torch.tensor(array, device=public.images.device) for name, array in targets.items()}
    totals: dict[str, float] = {}
    num_batches = 0
    model.train()
    with seeded(inputs.seed("public"), public.images.device), nondeterminism_explained(config.model.name):
        for rows, step in _steps(model, public, config, should_stop, on_device):
            terms = part.loss(step, config.method)
            loss = total_loss(terms)
            values = loss_values(loss, terms)
            if not all(map(math.isfinite, values.values())):
                raise inputs.diverged(cause_in_loss(model, rows.start // len(step.places_B) + 1, values))
            rule.zero_grad()
            loss.backward()
            rule.step()
            num_batches += 1
            for name in terms:
                totals[name] = totals.get(name, 0.0) + values[name]
    if not is_finite(model):
        raise inputs.diverged("a gradient on public images was not finite")
    return {name: value / num_batches for name, value in totals.items()}


def public_outputs(
    model: nn.Module, public: PublicImages, config: RunConfig, *, should_stop: ShouldStop = never
) -> ArrayGroup:
    """Return what a model makes of the public images, arrays of n rows in host memory. Leaves the model in eval mode.

    Raises:
        Cancelled: `should_stop()` held; it is asked before every batch.
    """
    part = _part(config)
    found: dict[str, list[Tensor]] = {}
    with inference(model, config, public.images.device):
        for _, step in _steps(model, public, config, should_stop, {}):
            for name, array in part.outputs(step, config.method).items():
                found.setdefault(name, []).append(array.float().cpu())
    return {name: torch.cat(arrays).numpy() for name, arrays in found.items()}


def _part(config: RunConfig) -> PublicLearning:
    part = config.algorithm.part(PublicLearning)
    assert part is not None
    return part


def _steps(
    model: nn.Module,
    public: PublicImages,
    config: RunConfig,
    should_stop: ShouldStop,
    targets: Mapping[str, Tensor],
) -> Iterator[tuple[slice, PublicStep]]:
    """Yield each whole batch's rows, and what the loss or the outputs look at."""
    extractor, size = cast(FeatureModel, model), _part(config).batch_size(config.method)
    places_B = torch.arange(size, device=public.images.device)
    ops = TorchOps()
    for number in range(len(public.images) // size):
        check(should_stop)
        rows = slice(number * size, (number + 1) * size)
        x_BSS3, _ = public.images.batch(torch.arange(rows.start, rows.stop))
        features_BD = extractor.features(x_BSS3)
        yield (
            rows,
            PublicStep(
                ops=ops,
                features_BD=features_BD.float(),
                logits_BM=extractor.classifier(features_BD).float(),
                places_B=places_B,
                targets={name: array[rows] for name, array in targets.items()},
            ),
        )
