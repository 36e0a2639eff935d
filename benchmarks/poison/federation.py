"""A small federation in one process, for benchmarks of attacks: four domains of digits, trained as every task trains.

Shape legend: N samples, D feature size, M classes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.arrays import ModelArrays
from fedplcc.shared.methods.folds.rules import Rule, RuleName, clip_scales, with_rule
from fedplcc.shared.methods.folds.shares import capped_weights
from fedplcc.shared.types import FloatArray, IntArray
from fedplcc.trainer.data import ImageSet
from fedplcc.trainer.data.loading import load_split
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.evaluation import collect_features, evaluate
from fedplcc.trainer.learning.training import RoundInputs, local_train
from fedplcc.trainer.models import build_model, load_arrays, state_arrays
from fedplcc.trainer.reproducibility.determinism import prepare_torch

DOMAINS = ("mnist", "mnistm", "optdigits", "synth")
NUM_CLASSES = 10
CPU = torch.device("cpu")
FEDAVG = METHODS["fedavg"]


@dataclass(frozen=True, slots=True)
class Site:
    """A client and its images."""

    name: str
    train: ImageSet
    test: ImageSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """How updates become one.

    Attributes:
        rule: `[aggregation] rule`.
        max_share: `[aggregation] max_weight_share`; None for no limit.
    """

    rule: RuleName = "mean"
    max_share: float | None = None

    @property
    def label(self) -> str:
        """Name in a table."""
        return self.rule if self.max_share is None else f"{self.rule}, share {self.max_share:g}"


class Federation:
    """Sites, a run, and one model in memory into which others are loaded."""

    def __init__(
        self, seed: int, per_class: int, test_per_class: int, steps: int, domains: Sequence[str] = DOMAINS
    ) -> None:
        self.config: RunConfig = parse_run_config(
            {
                "run": {"method": "fedavg", "seed": seed, "clients": list(domains), "rounds": 1000},
                "data": {"classes": [str(digit) for digit in range(NUM_CLASSES)]},
                "model": {"name": "cnn4"},
                "training": {"local_steps": steps, "batch_size": 32, "learning_rate": 0.05, "clip_norm": 5.0},
            }
        )
        contract = self.config.data
        prepare_torch(self.config.training.threads, CPU)
        self.sites = tuple(
            Site(
                name,
                load_split(f"digits:{name}", contract=contract, split="train", samples_per_class=per_class, seed=seed)[
                    0
                ],
                load_split(
                    f"digits:{name}", contract=contract, split="test", samples_per_class=test_per_class, seed=seed
                )[0],
            )
            for name in domains
        )
        self.model: nn.Module = build_model(self.config.model, NUM_CLASSES, contract.image_size, seed)

    def first_model(self) -> ModelArrays:
        """The model of round 0, asked before anything is trained."""
        return state_arrays(self.model)

    def trained(self, start: ModelArrays, site: Site, number: int, train: ImageSet | None = None) -> ModelArrays:
        """The model that a site sends in a round, trained on its own images or on those given."""
        load_arrays(self.model, start)
        inputs = RoundInputs(config=self.config, method=FEDAVG, round=number, client_id=site.name)
        local_train(self.model, self.put(train or site.train), inputs)
        return state_arrays(self.model)

    def put(self, images: ImageSet) -> DeviceImages:
        """Images as training and evaluation take them."""
        return DeviceImages.put(images, self.config.data, CPU)

    def pixels(self, images: ImageSet) -> torch.Tensor:
        """Images as the model sees them, `[N, 3, S, S]`."""
        return self.put(images).batch(torch.arange(len(images)))[0]

    def features(self, model: ModelArrays, images: ImageSet) -> tuple[FloatArray, IntArray]:
        """Features `[N, D]` of images under a model, and their labels."""
        load_arrays(self.model, model)
        return collect_features(self.model, self.put(images), self.config)

    def losses(self, model: ModelArrays, images: ImageSet) -> FloatArray:
        """Cross-entropy of each image under a model, `[N]`."""
        load_arrays(self.model, model)
        self.model.eval()
        data, found = self.put(images), []
        with torch.no_grad():
            for numbers in torch.arange(len(images)).split(100):
                x_B3SS, labels_B = data.batch(numbers)
                logits_BM = self.model(x_B3SS)
                found.append(nn.functional.cross_entropy(logits_BM, labels_B, reduction="none").numpy())
        return np.concatenate(found)

    def accuracies(self, model: ModelArrays) -> list[float]:
        """Accuracy on each site's test images; 0 for a model that names no class."""
        if not all(np.isfinite(array).all() for array in model.values()):
            return [0.0] * len(self.sites)
        load_arrays(self.model, model)
        counts = [evaluate(self.model, self.put(site.test), self.config) for site in self.sites]
        return [sum(each.correct) / sum(each.total) for each in counts]

    def rounds(self, model: ModelArrays, numbers: range) -> ModelArrays:
        """The model after honest rounds."""
        for number in numbers:
            sent = [self.trained(model, site, number) for site in self.sites]
            model = folded(model, sent, [len(site.train) for site in self.sites], Fold())
        return model


def folded(start: ModelArrays, sent: Sequence[ModelArrays], counts: Sequence[float], fold: Fold) -> ModelArrays:
    """What a round's updates become, by the functions that the aggregator folds by."""
    weights = list(counts) if fold.max_share is None else capped_weights(counts, fold.max_share)
    rule = None
    if fold.rule != "mean":
        rule = Rule(name=fold.rule, scales=clip_scales([norm(start, each) for each in sent], "median"))
    method = with_rule(FEDAVG, rule)
    return {
        name: method.fold(array.copy, [each[name] for each in sent], weights, method.config())
        for name, array in start.items()
    }


def norm(start: ModelArrays, model: ModelArrays) -> float:
    """Length of a step, over all floating-point tensors together."""
    floats = [name for name, array in start.items() if array.dtype == np.float32]
    return float(np.sqrt(sum(np.square(model[name].astype(float) - start[name]).sum() for name in floats)))


def relabelled(images: ImageSet, change: Callable[[IntArray], IntArray]) -> ImageSet:
    """The same images with other labels."""
    return replace(images, labels_N=change(images.labels_N))


def flipped(labels_N: IntArray) -> IntArray:
    """Each digit d becomes 9 - d."""
    other: IntArray = NUM_CLASSES - 1 - labels_N
    return other


def with_seeds(parser: argparse.ArgumentParser) -> None:
    """Let a benchmark's seeds be chosen."""
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds of images, model and training")


def mean_and_worst(accuracies: Sequence[Sequence[float]]) -> Mapping[str, float]:
    """Mean over the domains and the lowest of them in %, each averaged over draws."""
    rows = 100 * np.array(accuracies)
    return {"mean": round(float(rows.mean()), 1), "worst": round(float(rows.min(axis=1).mean()), 1)}
