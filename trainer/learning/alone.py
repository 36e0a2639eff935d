"""What joining is worth where a model is trained: one of some images alone, and the mean of two models' probabilities.

docs/algorithms.md, rule 1.20. The model alone is trained from the run's first model for as many rounds as the run has, by
cross-entropy with the run's `[training]`; so configuration and data decide it, and no disk keeps it.

Shape legend: N images, B batch, M classes, S image size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.starts import has_average
from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray
from fedplcc.shared.methods.arrays import ModelArrays
from fedplcc.shared.methods.heads.own_share import SHARES, best_share
from fedplcc.trainer.cancellation import ShouldStop
from fedplcc.trainer.learning.augmenting.augmentation import of_packages
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.evaluation import OnShare, logits_of
from fedplcc.trainer.learning.training import RoundInputs, TrainingObserver, local_train
from fedplcc.trainer.models import FeatureModel, load_arrays, state_arrays


@dataclass(slots=True, eq=False)
class AloneSoFar:
    """A training alone after some of its rounds; a task that is asked for again goes on from there."""

    rounds: int = 0
    trained: ModelArrays = field(default_factory=dict)
    average: ModelArrays = field(default_factory=dict)


def train_alone(
    model: nn.Module,
    data: DeviceImages,
    config: RunConfig,
    client_id: str,
    *,
    should_stop: ShouldStop,
    on_share: OnShare = lambda done: None,
    so_far: AloneSoFar | None = None,
) -> None:
    """Train a run's first model in place on some images alone, for all the run's rounds.

    Where the run's result is an average over rounds, so is this model.

    Args:
        model: The run's first model, on the device of `data`.
        client_id: Whose they are; the order of images follows from it.
        should_stop: Asked before every mini-batch.
        on_share: Told of the fraction that is done.
        so_far: What an earlier call with the same model, images and configuration came to; kept up to date. None to keep
            nothing.

    Raises:
        Cancelled, TrainingDiverged: As `local_train`.
    """
    so_far = so_far or AloneSoFar()
    if so_far.rounds:
        load_arrays(model, so_far.trained)
    rounds, decay = config.run.rounds, config.method.average_decay if has_average(config) else 0.0
    run = config.run.model_copy(update={"method": fedavg.METHOD.name})
    config = config.model_copy(update={"run": run, "method": fedavg.METHOD.config()})
    augmentations = of_packages(config.training)
    for number in range(so_far.rounds + 1, rounds + 1):

        def on_progress(step: int, steps: int, done: int = number - 1) -> None:
            on_share((done + step / steps) / rounds)

        inputs = RoundInputs(
            config=config, method=fedavg.METHOD, round=number, client_id=client_id, augmentations=augmentations
        )
        local_train(model, data, inputs, TrainingObserver(should_stop=should_stop, on_progress=on_progress))
        trained = state_arrays(model)
        average = _averaged(so_far.average, trained, decay) if decay else {}
        so_far.rounds, so_far.trained, so_far.average = number, trained, average
    if so_far.average:
        load_arrays(model, so_far.average)


def _averaged(average: ModelArrays, newest: ModelArrays, decay: float) -> ModelArrays:
    """Return the average over rounds with one more (docs/algorithms.md, rule 1.18); of whole numbers the greater ones."""
    if not average:
        return newest
    return {
        name: (decay * average[name].astype(np.float64) + (1 - decay) * array.astype(np.float64)).astype(array.dtype)
        if np.issubdtype(array.dtype, np.floating)
        else np.maximum(average[name], array)
        for name, array in newest.items()
    }


class MixedModel(nn.Module):
    """Two models whose probabilities are mixed; its features are these, and its logits their logarithms."""

    def __init__(self, whole: nn.Module, alone: nn.Module, share: float) -> None:
        """Give the second model this share."""
        super().__init__()
        self.whole, self.alone, self.share = whole, alone, share
        self.classifier = nn.Identity()

    def features(self, x_BCSS: Tensor) -> Tensor:
        """Return logarithms of probabilities `[B, M]`."""
        whole_BM, alone_BM = (_logits(model, x_BCSS).softmax(-1) for model in (self.whole, self.alone))
        mixed_BM: Tensor = torch.lerp(whole_BM, alone_BM, self.share)
        return mixed_BM.clamp_min(torch.finfo(mixed_BM.dtype).tiny).log()

    def forward(self, x_BCSS: Tensor) -> Tensor:
        """Return the same."""
        return self.features(x_BCSS)


def _logits(model: nn.Module, x_BCSS: Tensor) -> Tensor:
    extractor = cast(FeatureModel, model)
    logits_BM: Tensor = extractor.classifier(extractor.features(x_BCSS)).float()
    return logits_BM


def mixed_model(
    whole: nn.Module,
    alone: nn.Module,
    validation: DeviceImages,
    config: RunConfig,
    *,
    is_balanced: bool,
    should_stop: ShouldStop,
) -> MixedModel:
    """Return the two models with the share of the second that is best on validation images, of which there are some."""
    probabilities = [_probabilities(model, validation, config, should_stop) for model in (whole, alone)]
    mixes = ((1 - share) * probabilities[0] + share * probabilities[1] for share in SHARES)
    share = best_share(mixes, validation.labels_N.cpu().numpy(), is_balanced=is_balanced)
    return MixedModel(whole, alone, share)


def _probabilities(model: nn.Module, data: DeviceImages, config: RunConfig, should_stop: ShouldStop) -> DoubleArray:
    found_NM: DoubleArray = logits_of(model, data, config, should_stop=should_stop).double().softmax(-1).numpy()
    return found_NM
