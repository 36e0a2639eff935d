"""Passes over a client's images without gradients: features for prototypes, counts for accuracy.

Eval mode, no augmentation, fixed order, every image (docs/algorithms.md, rule 1.4). The batch size is part of the
configuration, because other batch sizes give other last bits.

Shape legend: N samples, B batch, P piece of a batch, C ways to predict, D feature size, M classes, S image size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.scoring.histograms import bins_of, histograms_of
from fedplcc.shared.types import GLOBAL_MODEL, EvaluationCounts, FloatArray, IntArray
from fedplcc.trainer.cancellation import ShouldStop, check, never
from fedplcc.trainer.learning.attacks import ImageAttack
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.models import FeatureModel
from fedplcc.trainer.models.inference import inference

OnShare = Callable[[float], None]
"""Called after every batch with the fraction of the images that is done."""
Score = Callable[[Tensor, Tensor], Tensor]
"""Turns features `[B, D]` and logits `[B, M]`, both float32, into scores `[B, M]`; the largest one predicts the class."""
SCORED_ELEMENTS = 1 << 25
"""Largest number of elements of `[B, M, D]` in one call of a score: 128 MiB of float32 for each temporary tensor."""


def collect_features(
    model: nn.Module,
    data: DeviceImages,
    config: RunConfig,
    *,
    should_stop: ShouldStop = never,
    on_share: OnShare | None = None,
) -> tuple[FloatArray, IntArray]:
    """Return the features `[N, D]` of all images, float32, and their labels `[N]`, in the data's order, in host memory.

    Leaves the model in eval mode.

    Raises:
        Cancelled: `should_stop()` held; it is asked before every batch.
    """
    features = _over_batches(model, cast(FeatureModel, model).features, data, config, should_stop, on_share)
    return features.float().cpu().numpy(), data.labels_N.cpu().numpy()


def logits_of(model: nn.Module, data: DeviceImages, config: RunConfig, *, should_stop: ShouldStop = never) -> Tensor:
    """Return the logits `[N, M]` of all images, float32, in the data's order, in host memory.

    Raises:
        Cancelled: `should_stop()` held; it is asked before every batch.
    """
    extractor = cast(FeatureModel, model)
    logits = _over_batches(
        model, lambda x_B3SS: extractor.classifier(extractor.features(x_B3SS)), data, config, should_stop, None
    )
    return logits.float().cpu()


def evaluate(
    model: nn.Module,
    data: DeviceImages,
    config: RunConfig,
    *,
    set_name: str = "test",
    model_name: str = GLOBAL_MODEL,
    score: Score | None = None,
    attack: ImageAttack | None = None,
    should_stop: ShouldStop = never,
    on_share: OnShare | None = None,
) -> EvaluationCounts:
    """Return the number of images of each class, and the number of them that the model predicts correctly.

    An image for which the model predicts no class counts as wrong. Leaves the model in eval mode.

    Args:
        model: Keeps `models.FeatureModel`.
        data: The evaluation set; may be empty.
        model_name: GLOBAL_MODEL, LOCAL_MODEL or ALONE_MODEL.
        score: Scores by which it predicts classes; its logits if None.
        attack: Changes the images first; it follows the model's logits, also where `score` names classes.

    Raises:
        Cancelled: `should_stop()` held.
    """
    (predicted_N,) = predicted_classes(
        model, data, config, scores=[score], attack=attack, should_stop=should_stop, on_share=on_share
    )
    labels_N = data.labels_N.cpu().numpy()
    return counted(labels_N, predicted_N, config, set_name=set_name, model_name=model_name)


def counted(
    labels_N: IntArray,
    predicted_N: IntArray,
    config: RunConfig,
    *,
    set_name: str,
    model_name: str,
    bins_NM: IntArray | None = None,
) -> EvaluationCounts:
    """Return the number of samples of each class, and of those that were predicted correctly.

    Args:
        predicted_N: Predicted classes; -1 for none.
        model_name: GLOBAL_MODEL, LOCAL_MODEL or ALONE_MODEL.
        bins_NM: Bins of the probabilities, `[N, M + 1]`; None where none are reported.
    """
    num_classes = len(config.data.classes)
    correct, total = (
        tuple(np.bincount(labels, minlength=num_classes).tolist())
        for labels in (labels_N[predicted_N == labels_N], labels_N)
    )
    confusion = _confusion(labels_N, predicted_N, num_classes) if config.evaluation.confusion else ()
    return EvaluationCounts(
        set_name=set_name,
        model=model_name,
        correct=correct,
        total=total,
        confusion=confusion,
        histograms=None if bins_NM is None else histograms_of(bins_NM, labels_N, predicted_N, num_classes),
    )


def _confusion(labels_N: IntArray, predicted_N: IntArray, num_classes: int) -> tuple[int, ...]:
    """Return the number of samples by true and predicted class, `[M * M]`, a row for each true class.

    A sample without a predicted class is in no cell.
    """
    is_named_N = predicted_N >= 0
    cells_N = labels_N[is_named_N] * num_classes + predicted_N[is_named_N]
    return tuple(np.bincount(cells_N, minlength=num_classes**2).tolist())


def predicted_classes(
    model: nn.Module,
    data: DeviceImages,
    config: RunConfig,
    *,
    scores: Sequence[Score | None] = (None,),
    attack: ImageAttack | None = None,
    has_bins: bool = False,
    temperature: float = 1.0,
    should_stop: ShouldStop = never,
    on_share: OnShare | None = None,
) -> IntArray:
    """Return the class that the model predicts for each image, int64 `[C, N]` in the data's order, in host memory.

    With `has_bins` rows follow, `[C + M + 1, N]` in all and int16: those of the probabilities by the logits, see
    shared/scoring/histograms.py.

    It is -1 for an image whose logits are not all finite, or whose best score is not. The score of a class that is never
    predicted may be minus infinity. Leaves the model in eval mode.

    Args:
        model: Keeps `models.FeatureModel`.
        scores: C ways to predict classes, in one pass over the images; None for the logits.
        has_bins: Whether bins of probabilities follow; of at most 64 classes.
        temperature: What logits are divided by before probabilities are made of them.

    Raises:
        Cancelled: `should_stop()` held; it is asked before every batch.
    """
    extractor = cast(FeatureModel, model)

    def prediction(x_B3SS: Tensor) -> Tensor:
        features_BD = extractor.features(x_B3SS)
        logits_BM = extractor.classifier(features_BD)
        named = torch.stack([_named(score, features_BD, logits_BM) for score in scores], dim=-1)
        if not has_bins:
            return named
        bins_BM = torch.from_numpy(bins_of((logits_BM.float() / temperature).cpu().numpy()))
        return torch.cat([named.short().cpu(), bins_BM], dim=-1)

    results = _over_batches(model, prediction, data, config, should_stop, on_share, attack)
    num_rows = len(scores) + (len(config.data.classes) + 1 if has_bins else 0)
    predicted_CN: IntArray = results.reshape(-1, num_rows).T.cpu().numpy()
    return predicted_CN


def _named(score: Score | None, features_BD: Tensor, logits_BM: Tensor) -> Tensor:
    """Return the class that a score names for each image of a batch, `[B]`; -1 for none."""
    is_sound_B, scores_BM = logits_BM.isfinite().all(-1), logits_BM
    if score is not None:
        with torch.autocast(features_BD.device.type, enabled=False):
            scores_BM = _in_pieces(score, features_BD.float(), logits_BM.float())
        is_sound_B &= scores_BM.amax(-1).isfinite()
    return scores_BM.argmax(-1).masked_fill(~is_sound_B, -1)


def _in_pieces(score: Score, features_BD: Tensor, logits_BM: Tensor) -> Tensor:
    """Return the scores of a batch, computed for a few images at a time where there are many classes and features."""
    num_rows = max(1, SCORED_ELEMENTS // max(1, features_BD.shape[1] * logits_BM.shape[1]))
    cuts = list(range(num_rows, len(features_BD), num_rows))
    pieces = zip(*(rows.tensor_split(cuts) for rows in (features_BD, logits_BM)), strict=True)
    return torch.cat([score(features_PD, logits_PM) for features_PD, logits_PM in pieces])


def _over_batches(
    model: nn.Module,
    function: Callable[[Tensor], Tensor],
    data: DeviceImages,
    config: RunConfig,
    should_stop: ShouldStop,
    on_share: OnShare | None,
    attack: ImageAttack | None = None,
) -> Tensor:
    """Return the function's results for all images in order, on the device."""
    results, num_done = [], 0
    with inference(model, config, data.device, is_attacked=attack is not None):
        for x_B3SS, labels_B in data.in_order(config.training.evaluation_batch_size):
            check(should_stop)
            if attack is not None:
                x_B3SS = attack.changed(model, x_B3SS, labels_B)
            results.append(function(x_B3SS))
            num_done += len(x_B3SS)
            if on_share is not None:
                on_share(num_done / len(data))
        return torch.cat(results) if results else torch.empty(0, dtype=torch.int64)
