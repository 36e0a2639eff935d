"""Features of a site's images under a frozen backbone, or under the frozen layers of one, each image's computed once.

A row depends on its image alone: a backbone computes in batches of one size, the last one filled up, so that neither the
data set around an image nor what was known before changes a bit. So a row of an earlier run is as good as a new one.

Shape legend: N images, V changed copies of each, B batch, S image size, W width of the backbone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from fedplcc.shared.config.run import RunConfig, canonical_json
from fedplcc.shared.process.allocator import large_memory_kept
from fedplcc.shared.types import Environment, FloatArray
from fedplcc.trainer.cancellation import ShouldStop, check
from fedplcc.trainer.features.cache import FeatureCache
from fedplcc.trainer.learning.augmenting.augmentation import view_of
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
    data, train = config.data, config.training.train
    facts = {
        "backbone": [config.model.name, config.model.weights_sha256, *([] if train == "head" else [train])],
        "pixels": [data.image_size, *data.mean, *data.std],
        "threads": config.training.threads,
        "batch": FROZEN_BATCH,
        "environment": asdict(environment),
    }
    return hashlib.sha256(canonical_json(facts).encode()).digest()


def view_facts(config: RunConfig, number: int) -> bytes:
    """Return what decides a changed copy besides its image and `features_facts`; nothing for number 0, the image."""
    return canonical_json({"augment": sorted(config.training.augment), "view": number}).encode() if number else b""


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

    def features(
        self, images: DeviceImages, should_stop: ShouldStop, on_share: OnShare, *, num_views: int = 0
    ) -> DeviceImages:
        """Return the features of all images, in their order, in place of them, and of as many changed copies of each.

        A copy is changed by `training.augment`, as `view_of` says: features of another run or site are as good.

        Raises:
            Cancelled: `should_stop()` held; it is asked before every batch.
            InvalidModel: Features are not finite, or have no deterministic form on the device.
        """
        copies = [view_facts(self.config, number) for number in range(num_views + 1)]
        keys = [
            hashlib.sha256(self.facts + of_view + image.numpy().tobytes()).digest()
            for image in images.kept_N.cpu()
            for of_view in copies
        ]
        known = self.cache.found(keys, self.backbone.width)
        missing = [place for place, key in enumerate(keys) if key not in known]
        if missing:
            known |= self._computed(images, keys, missing, num_views, should_stop, on_share)
        on_share(1.0)
        rows = [known[key] for key in keys]
        shape = (len(images), num_views + 1, self.backbone.width)
        return images.with_features(np.stack(rows).reshape(shape) if rows else np.zeros(shape, np.float32))

    def _computed(
        self,
        images: DeviceImages,
        keys: Sequence[bytes],
        missing: Sequence[int],
        num_views: int,
        should_stop: ShouldStop,
        on_share: OnShare,
    ) -> dict[bytes, FloatArray]:
        """Compute the features of some images and copies, and keep them."""
        prepare_torch(self.config.training.threads, images.device)
        made: dict[bytes, FloatArray] = {}
        num_done = len(keys) - len(missing)
        with large_memory_kept(), nondeterminism_explained(self.config.model.name):
            for some in _batched(missing, KEPT_AT_ONCE):
                fresh: dict[bytes, FloatArray] = {}
                try:
                    for places in _batched(some, FROZEN_BATCH):
                        check(should_stop)
                        changed_BSS3 = torch.stack(
                            [self._view(images, *divmod(place, num_views + 1)) for place in places]
                        )
                        features_BW = self.backbone(images.normalised(changed_BSS3.to(images.device))).cpu().numpy()
                        self.backbone.check(features_BW)
                        fresh.update(zip((keys[place] for place in places), features_BW, strict=True))
                        num_done += len(places)
                        on_share(num_done / len(keys))
                finally:
                    self.cache.keep(fresh)
                made |= fresh
        return made

    def _view(self, images: DeviceImages, number: int, view: int) -> Tensor:
        image_SS3 = images.kept_N[number]
        return view_of(image_SS3.cpu(), self.config.training.augment, view) if view else image_SS3


def _batched(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for begin in range(0, len(numbers), size):
        yield numbers[begin : begin + size]
