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
"""Rows between two writes of what is computed, and images that are in host memory meanwhile."""


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
    """How features of a run's images are computed at a site."""

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
        features_NVW = np.empty((len(images), len(copies), self.backbone.width), np.float32)
        prepare_torch(self.config.training.threads, images.device)
        with large_memory_kept(), nondeterminism_explained(self.config.model.name):
            for begin in range(0, len(images), KEPT_AT_ONCE):  # images may be more than memory holds
                check(should_stop)
                some_nSS3 = images.rows(slice(begin, begin + KEPT_AT_ONCE)).cpu()
                keys = [
                    hashlib.sha256(self.facts + of_view + image_SS3.numpy().tobytes()).digest()
                    for image_SS3 in some_nSS3
                    for of_view in copies
                ]

                def on_rows(num_done: int, begin: int = begin) -> None:
                    on_share((begin * len(copies) + num_done) / (len(images) * len(copies)))

                known = self._known(images, some_nSS3, keys, should_stop, on_rows)
                on_rows(len(keys))
                rows = np.stack([known[key] for key in keys])
                features_NVW[begin : begin + len(some_nSS3)] = rows.reshape(len(some_nSS3), len(copies), -1)
        on_share(1.0)
        return images.with_features(features_NVW)

    def _known(
        self,
        images: DeviceImages,
        some_nSS3: Tensor,
        keys: Sequence[bytes],
        should_stop: ShouldStop,
        on_rows: Callable[[int], None],
    ) -> dict[bytes, FloatArray]:
        """Return the rows of some images and their copies by key; those that are new are computed and kept."""
        known = self.cache.found(keys, self.backbone.width)
        missing = [place for place, key in enumerate(keys) if key not in known]
        num_done, num_copies = len(keys) - len(missing), len(keys) // len(some_nSS3)
        for some in _batched(missing, KEPT_AT_ONCE):
            fresh: dict[bytes, FloatArray] = {}
            try:
                for places in _batched(some, FROZEN_BATCH):
                    check(should_stop)
                    changed_BSS3 = torch.stack([self._view(some_nSS3, *divmod(each, num_copies)) for each in places])
                    features_BW = self.backbone(images.normalised(changed_BSS3.to(images.device))).cpu().numpy()
                    self.backbone.check(features_BW)
                    fresh.update(zip((keys[place] for place in places), features_BW, strict=True))
                    num_done += len(places)
                    on_rows(num_done)
            finally:
                self.cache.keep(fresh)
            known |= fresh
        return known

    def _view(self, some_nSS3: Tensor, number: int, view: int) -> Tensor:
        image_SS3 = some_nSS3[number]
        return view_of(image_SS3, self.config.training.augment, view) if view else image_SS3


def _batched(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for begin in range(0, len(numbers), size):
        yield numbers[begin : begin + size]
