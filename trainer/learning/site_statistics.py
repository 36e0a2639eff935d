"""BatchNorm's running mean and variance as a function of a model's weights and a site's training images.

One pass over the images gives them: BatchNorm layers in training mode, all else in evaluation mode, so that nothing is
random; images as they are. Up to `BATCH_SIZE` images are one mini-batch. More are shuffled, since data are often sorted by
class, and divided evenly; then the variance is that within the mini-batches and that between their means, each weighted by
its images. Nothing is kept from one pass to the next, and the order depends on the number of images alone: the same weights
and images give the same bits. See docs/algorithms.md, rule 12.3.

Source: Andreux et al., DART 2020, https://arxiv.org/abs/2008.07424 (SiloBN), keep running statistics at their sites; Li et
al., ICLR 2021, https://arxiv.org/abs/2102.07623 (FedBN), the whole layers. There they are what training left.

Shape legend: B batch, S image size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import InvalidModel
from fedplcc.trainer.cancellation import ShouldStop, check, never
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.models import FeatureModel, counting_layers
from fedplcc.trainer.reproducibility.determinism import nondeterminism_explained, prepare_torch
from fedplcc.trainer.reproducibility.randomness import derive_seed

BATCH_SIZE = 1024
"""Most images of a mini-batch."""


def check_layers(model: nn.Module, name: str, key: str | None) -> None:
    """Refuse a model without layers that count running statistics, where a run needs them.

    Args:
        key: What asks for statistics of the site; None for nothing. See `RunConfig.site_statistics_key`.

    Raises:
        InvalidModel: It has none.
    """
    if key is not None and not counting_layers(model):
        raise InvalidModel(
            f"{key} takes BatchNorm statistics of a site's own images, and model {name!r} has no BatchNorm layer with "
            "running statistics; leave the key out, or choose another model"
        )


def take_site_statistics(
    model: nn.Module,
    data: DeviceImages,
    config: RunConfig,
    *,
    should_stop: ShouldStop = never,
    on_share: Callable[[float], None] = lambda share: None,
) -> None:
    """Replace the running mean and variance of a model's BatchNorm layers by those of a site's images.

    All else of the model stays, its counters of batches too. A layer that the pass does not reach keeps what it had. The
    model is left in evaluation mode.

    Args:
        model: Keeps `models.FeatureModel`; on the device of `data`.
        data: The site's training images, at least one; a single one is taken twice.
        should_stop: Asked before every mini-batch.
        on_share: Called after every mini-batch with the fraction of the images that is done.

    Raises:
        Cancelled: `should_stop()` held; the model is as it was.
        InvalidModel: An operation in the model has no deterministic form on the device.
    """
    layers = counting_layers(model)
    before = [_statistics(layer) for layer in layers]
    momenta = [layer.momentum for layer in layers]
    prepare_torch(config.training.threads, data.device)
    model.eval()
    try:
        for layer in layers:
            layer.momentum = None  # the plain mean, where a model calls a layer more than once
            layer.training = True  # not train(), which would reach the layers within it
        pooled = _pass_over(model, layers, data, config, should_stop, on_share)
    except BaseException:
        _restore(layers, before)
        raise
    finally:
        model.eval()
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
    _restore(
        layers,
        [old if new is None else (new.mean, new.variance, old[2]) for new, old in zip(pooled, before, strict=True)],
    )


@contextmanager
def with_site_statistics(
    model: nn.Module,
    data: DeviceImages,
    config: RunConfig,
    *,
    should_stop: ShouldStop = never,
    on_share: Callable[[float], None] = lambda share: None,
) -> Iterator[None]:
    """Give a model the site's statistics within the block; after it the model has its own again, to the bit.

    See `take_site_statistics`.
    """
    layers = counting_layers(model)
    before = [_statistics(layer) for layer in layers]
    try:
        take_site_statistics(model, data, config, should_stop=should_stop, on_share=on_share)
        yield
    finally:
        _restore(layers, before)


def _pass_over(
    model: nn.Module,
    layers: list[nn.modules.batchnorm._BatchNorm],
    data: DeviceImages,
    config: RunConfig,
    should_stop: ShouldStop,
    on_share: Callable[[float], None],
) -> list[_Moments | None]:
    """Return the moments of each layer over all images; None of a layer that the pass does not reach."""
    extractor = cast(FeatureModel, model)
    found: list[_Moments | None] = [None] * len(layers)
    num_done = 0
    with torch.no_grad(), nondeterminism_explained(config.model.name):
        for numbers_B in _mini_batches(len(data)):
            check(should_stop)
            for layer in layers:
                layer.reset_running_stats()
            x_B3SS, _ = data.batch(numbers_B)
            extractor.classifier(extractor.features(x_B3SS))
            found = [_joined(old, layer, len(numbers_B)) for old, layer in zip(found, layers, strict=True)]
            num_done += len(numbers_B)
            on_share(min(1.0, num_done / len(data)))
    return found


def _mini_batches(num_images: int) -> tuple[Tensor, ...]:
    """Return the image numbers of each mini-batch; none has a single image, which has no variance."""
    if num_images <= BATCH_SIZE:
        return (torch.arange(num_images).repeat(2 if num_images == 1 else 1),)
    generator = torch.Generator().manual_seed(derive_seed("site statistics", num_images))
    return torch.randperm(num_images, generator=generator).tensor_split(-(-num_images // BATCH_SIZE))


class _Moments(NamedTuple):
    """A layer's mean and variance over so many images, in float64 in host memory."""

    num_images: int
    mean: Tensor
    variance: Tensor


def _joined(known: _Moments | None, layer: nn.modules.batchnorm._BatchNorm, num_images: int) -> _Moments | None:
    """Return the moments of the images so far and of a mini-batch together (Chan, Golub, LeVeque 1979)."""
    mean, variance, num_calls = _tensors(layer)
    if not num_calls:
        return known
    new = _Moments(num_images, *(each.to("cpu", torch.float64, copy=True) for each in (mean, variance)))
    if known is None:
        return new
    total = known.num_images + num_images
    share = num_images / total
    apart = new.mean - known.mean
    return _Moments(
        total,
        known.mean + share * apart,
        (1 - share) * known.variance + share * new.variance + share * (1 - share) * apart**2,
    )


_Statistics = tuple[Tensor, Tensor, Tensor]
"""Copies of a layer's running mean, running variance and number of batches."""


def _tensors(layer: nn.modules.batchnorm._BatchNorm) -> _Statistics:
    return (
        cast(Tensor, layer.running_mean),
        cast(Tensor, layer.running_var),
        cast(Tensor, layer.num_batches_tracked),
    )


def _statistics(layer: nn.modules.batchnorm._BatchNorm) -> _Statistics:
    mean, variance, num_batches = _tensors(layer)
    return mean.clone(), variance.clone(), num_batches.clone()


def _restore(layers: list[nn.modules.batchnorm._BatchNorm], known: list[_Statistics]) -> None:
    with torch.no_grad():
        for layer, values in zip(layers, known, strict=True):
            for tensor, value in zip(_tensors(layer), values, strict=True):
                tensor.copy_(value)
