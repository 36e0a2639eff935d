"""What joining is worth where a head is trained: one of a client's images alone, and the mean of both's probabilities.

docs/algorithms.md, rule 1.15. The head alone is trained from the run's first model for as many rounds as the run has, by
cross-entropy with the run's `[training]`; so it is a function of configuration and data, and nothing is kept for it.

Shape legend: N images, B batch, M classes, S image size.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray
from fedplcc.shared.methods.heads.own_share import SHARES, best_share
from fedplcc.trainer.cancellation import ShouldStop
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.evaluation import logits_of
from fedplcc.trainer.learning.training import RoundInputs, TrainingObserver, local_train
from fedplcc.trainer.models import FeatureModel


def train_alone(
    model: nn.Module, data: DeviceImages, config: RunConfig, client_id: str, *, should_stop: ShouldStop
) -> None:
    """Train a run's first model in place on one client's images, for all its rounds.

    Raises:
        Cancelled, TrainingDiverged: As `local_train`.
    """
    run = config.run.model_copy(update={"method": fedavg.METHOD.name})
    config = config.model_copy(update={"run": run, "method": fedavg.METHOD.config()})
    observer = TrainingObserver(should_stop=should_stop)
    for number in range(1, config.run.rounds + 1):
        inputs = RoundInputs(config=config, method=fedavg.METHOD, round=number, client_id=client_id)
        local_train(model, data, inputs, observer)


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
