"""The one form in which models compute without gradients: rounds, `model evaluate` and `model predict` share it.

A ResNet with BatchNorm takes a faster way on an x86 processor: each BatchNorm is folded into the convolution before it, and
maps stay in the layout of oneDNN, which computes them. All other models, and all devices, compute as in training. oneDNN's
ReLU and pooling make 0 of NaN, so a model whose values could overflow is computed by its modules.

Measured by pairs, the processor time of an evaluation pass is 0.55 (batch 256, 32 pixels); channels last alone 0.80 to
0.92, with folded BatchNorm 0.73 to 0.77, fused convolution and ReLU on packed weights 0.64. `torch.jit` (0.46 to 0.56) is
deprecated, and `torch.compile` needs a C++ compiler at every site.

Shape legend: B batch, C channels, H, W height and width of a map.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d
from torch.nn.utils.fusion import fuse_conv_bn_weights

from fedplcc.shared.config.run import RunConfig
from fedplcc.trainer.models.resnet import BasicBlock, ResNet
from fedplcc.trainer.reproducibility.determinism import nondeterminism_explained, prepare_torch

HAS_LAYOUT = torch.backends.mkldnn.is_available() and "AVX" in torch.backends.cpu.get_cpu_capability()
"""Whether oneDNN has a layout of its own for maps on this processor."""
MAX_VALUE = torch.finfo(torch.float32).max


@contextmanager
def inference(
    model: nn.Module, config: RunConfig, device: torch.device, *, is_attacked: bool = False
) -> Iterator[None]:
    """Within the block, compute without gradients. Leaves the model in eval mode; its values must not change meanwhile.

    Args:
        model: Keeps `models.FeatureModel`.
        is_attacked: Whether an attack follows gradients within the block, which tensors of inference mode cannot have.

    Raises:
        InvalidModel: An operation in the model has no deterministic form on the device.
    """
    prepare_torch(config.training.threads, device)
    model.eval()
    mode = torch.no_grad() if is_attacked else torch.inference_mode()
    with mode, nondeterminism_explained(config.model.name), ExitStack() as folded:
        if device.type == "cpu" and HAS_LAYOUT:
            for part in model.modules():
                if isinstance(part, ResNet) and isinstance(part.stem[1], nn.BatchNorm2d):
                    folded.enter_context(part.computed_by(FoldedStages(part)))
        yield


class FoldedStages:
    """Stem and stages of a ResNet with its values of now, without BatchNorm."""

    def __init__(self, resnet: ResNet) -> None:
        convolution, norm, _, *self._pooling = resnet.stem
        self._stem = _Folded(convolution, norm)
        self._blocks = [_blocks_convolutions(cast(BasicBlock, block)) for block in resnet.stages]
        bound = self._stem.bound(1.0)
        for first, second, shortcut in self._blocks:
            bound = second.bound(first.bound(bound)) + (bound if shortcut is None else shortcut.bound(bound))
        self._max_pixel = MAX_VALUE / bound

    def fits(self, x_BCHW: Tensor) -> bool:
        """Whether no value can overflow on the way: of what is no number, oneDNN's ReLU and pooling make one."""
        return max(float(x_BCHW.abs().amax()), 1.0) <= self._max_pixel

    def __call__(self, x_BCHW: Tensor) -> Tensor:
        """Return the last map."""
        y_BCHW = self._stem(x_BCHW.to_mkldnn()).relu_()
        for pooling in self._pooling:
            y_BCHW = pooling(y_BCHW)
        for first, second, shortcut in self._blocks:
            beside_BCHW = y_BCHW if shortcut is None else shortcut(y_BCHW)
            y_BCHW = (second(first(y_BCHW).relu_()) + beside_BCHW).relu_()
        return y_BCHW.to_dense()


def _blocks_convolutions(block: BasicBlock) -> tuple[_Folded, _Folded, _Folded | None]:
    shortcut = _Folded(*block.shortcut) if len(block.shortcut) else None
    return _Folded(block.conv1, block.bn1), _Folded(block.conv2, block.bn2), shortcut


class _Folded:
    """A convolution and the BatchNorm after it."""

    def __init__(self, convolution: nn.Module, norm: nn.Module) -> None:
        assert isinstance(convolution, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
        weight, bias = fuse_conv_bn_weights(convolution.weight, None, mean, variance, norm.eps, norm.weight, norm.bias)
        self._gain = float(weight.flatten(1).norm(1, dim=1).amax())
        self._offset = float(bias.abs().amax())
        self._weight, self._bias = weight.detach().to_mkldnn(), bias.detach().to_mkldnn()
        self._stride, self._padding = convolution.stride, cast(tuple[int, int], convolution.padding)

    def __call__(self, x_BCHW: Tensor) -> Tensor:
        return conv2d(x_BCHW, self._weight, self._bias, self._stride, self._padding)

    def bound(self, largest: float) -> float:
        """Return what no value exceeds, of the input either, where none of the input exceeds `largest`."""
        return (1 + self._gain) * largest + self._offset
