"""Attacks: images changed within a small box so that a model's cross-entropy on them grows.

Goodfellow, Shlens, Szegedy, "Explaining and Harnessing Adversarial Examples", ICLR 2015, https://arxiv.org/abs/1412.6572
(one step), and Madry, Makelov, Schmidt, Tsipras, Vladu, "Towards Deep Learning Models Resistant to Adversarial Attacks",
ICLR 2018, https://arxiv.org/abs/1706.06083 (several steps, each followed by a projection).

Nothing is drawn: an attack begins at the image itself. It is made in evaluation mode, so that running statistics and random
states stay as they are, and every layer ends in the mode in which it began.

Shape legend: B batch, S image size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedplcc.shared.config.tables.adversarial import AdversarialSettings
from fedplcc.shared.config.tables.evaluation import Attack
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.models import FeatureModel

STEPS: Mapping[Attack, tuple[int, float]] = MappingProxyType({"fgsm": (1, 1.0), "pgd20": (20, 1 / 8)})
"""Attacks on test images: their number of steps, and the size of one in shares of epsilon."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ImageAttack:
    """An attack on normalised images.

    Attributes:
        epsilon_311: Largest change of a value, per channel.
        step_311: Change of a value in one step, per channel.
        low_311: The value of black, per channel.
        high_311: The value of white, per channel.
    """

    epsilon_311: Tensor
    step_311: Tensor
    low_311: Tensor
    high_311: Tensor
    steps: int

    @classmethod
    def of(cls, settings: AdversarialSettings, data: DeviceImages) -> Self:
        """Return an attack in units of the data's normalised values."""
        mean_311, std_311 = data.mean_3[:, None, None], data.std_3[:, None, None]
        return cls(
            epsilon_311=settings.epsilon / std_311,
            step_311=settings.step_size / std_311,
            low_311=(0 - mean_311) / std_311,
            high_311=(1 - mean_311) / std_311,
            steps=settings.steps,
        )

    @classmethod
    def named(cls, name: Attack, epsilon: float, data: DeviceImages) -> Self:
        """Return an attack on test images with changes of at most `epsilon`."""
        steps, share = STEPS[name]
        return cls.of(AdversarialSettings(epsilon=epsilon, step_size=share * epsilon, steps=steps), data)

    def changed(self, model: nn.Module, x_B3SS: Tensor, labels_B: Tensor) -> Tensor:
        """Return images on which the model's cross-entropy is higher; none differs by more than epsilon or leaves [0, 1].

        Args:
            model: Keeps `models.FeatureModel`; its parameters, gradients and running statistics stay as they are.
        """
        extractor = cast(FeatureModel, model)
        modes = [(part, part.training) for part in model.modules()]
        model.eval()
        low_B3SS = torch.maximum(x_B3SS - self.epsilon_311, self.low_311)
        high_B3SS = torch.minimum(x_B3SS + self.epsilon_311, self.high_311)
        found_B3SS = x_B3SS.detach()
        with torch.enable_grad():
            for _ in range(self.steps):
                found_B3SS.requires_grad_(True)
                logits_BM = extractor.classifier(extractor.features(found_B3SS))
                # The sum: a mean would make the smallest slopes of a large batch vanish.
                loss = cross_entropy(logits_BM.float(), labels_B, reduction="sum")
                (slope_B3SS,) = torch.autograd.grad(loss, found_B3SS)
                moved_B3SS = found_B3SS.detach() + self.step_311 * slope_B3SS.sign()
                found_B3SS = torch.minimum(torch.maximum(moved_B3SS, low_B3SS), high_B3SS)
        for part, was_training in modes:
            part.training = was_training
        return found_B3SS
