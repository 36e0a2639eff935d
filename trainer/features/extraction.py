"""Features of a site's images under a frozen backbone, each image's computed once.

A row depends on its image alone: a backbone computes in batches of one size, the last one filled up, so that neither the
data set around an image nor what was known before changes a bit. So a row of an earlier run is as good as a new one.

Shape legend: N images, B batch, S image size, W width of the backbone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from fedplcc.shared.config.run import RunConfig, canonical_json
from fedplcc.shared.process.allocator import large_memory_kept
from fedplcc.shared.types import Environment, FloatArray
from fedplcc.trainer.cancellation import ShouldStop, check
from fedplcc.trainer.features.cache import FeatureCache
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.models.frozen import FROZEN_BATCH, FrozenBackbone
from fedplcc.trainer.reproducibility.determinism import nondeterminism_explained, prepare_torch

OnShare = Callable[[float], None]
"""Called with the fraction of the images that is done."""
KEPT_AT_ONCE = 256
"""Rows between two writes of what is computed."""


def features_facts(config: RunConfig, environment: Environment) -> bytes:
    """Return the SHA-256 of all that decides the features of an image but the image.

    Args:
        config: The run: its backbone, its image size and normalisation, its threads.
        environment: Packages, processor and device of the site, which decide the last bits.
    """
    data = config.data
    facts = {
        "backbone": [config.model.name, config.model.weights_sha256],
        "pixels": [data.image_size, *data.mean, *data.std],
        "threads": config.training.threads,
        "batch": FROZEN_BATCH,
        "environment": asdict(environment),
    }
    return hashlib.sha256(canonical_json(facts).encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Extraction:
    """How features of a run's images are computed at a site.

    Attributes:
        backbone: The backbone.
        facts: See `features_facts`.
        config: The run.
        cache: Where rows are kept.
    """

    backbone: FrozenBackbone
    facts: bytes
    config: RunConfig
    cache: FeatureCache

    def features(self, images: DeviceImages, should_stop: ShouldStop, on_share: OnShare) -> DeviceImages:
        """Return the features of all images, in their order, in place of them.

        Raises:
            Cancelled: `should_stop()` held; it is asked before every batch.
            InvalidModel: Features are not finite, or have no deterministic form on the device.
        """
        keys = [hashlib.sha256(self.facts + image.numpy().tobytes()).digest() for image in images.kept_N.cpu()]
        known = self.cache.found(keys, self.backbone.width)
        missing = [number for number, key in enumerate(keys) if key not in known]
        if missing:
            known |= self._computed(images, keys, missing, should_stop, on_share)
        on_share(1.0)
        rows_NW = np.stack([known[key] for key in keys]) if keys else np.zeros((0, self.backbone.width), np.float32)
        return images.with_features(rows_NW)

    def _computed(
        self,
        images: DeviceImages,
        keys: Sequence[bytes],
        missing: Sequence[int],
        should_stop: ShouldStop,
        on_share: OnShare,
    ) -> dict[bytes, FloatArray]:
        """Compute the features of some images, and keep them."""
        prepare_torch(self.config.training.threads, images.device)
        made: dict[bytes, FloatArray] = {}
        num_done = len(keys) - len(missing)
        with large_memory_kept(), nondeterminism_explained(self.config.model.name):
            for some in _batched(missing, KEPT_AT_ONCE):
                fresh: dict[bytes, FloatArray] = {}
                try:
                    for numbers in _batched(some, FROZEN_BATCH):
                        check(should_stop)
                        x_B3SS, _ = images.batch(torch.tensor(numbers))
                        features_BW = self.backbone(x_B3SS).cpu().numpy()
                        self.backbone.check(features_BW)
                        fresh.update(zip((keys[number] for number in numbers), features_BW, strict=True))
                        num_done += len(numbers)
                        on_share(num_done / len(keys))
                finally:
                    self.cache.keep(fresh)
                made |= fresh
        return made


def _batched(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for begin in range(0, len(numbers), size):
        yield numbers[begin : begin + size]
