"""Scores of sites that lack a class, in training, in tests or in both, are scikit-learn's on the same predictions."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn import metrics

from fedplcc.models.trained_model import read_trained_model
from fedplcc.shared.scoring.histograms import bins_of
from fedplcc.trainer.data.loading import load_split
from fedplcc.trainer.learning.device_images import DeviceImages
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import simulated

pytestmark = pytest.mark.slow

CLASSES = tiny_federation.CLASSES
ABSENT = {
    "whole": {},
    "in-train": {"train": "wide"},
    "in-test": {"test": "wide"},
    "in-both": {"train": "wide", "test": "wide"},
    "only-one": {"test": "thin wide"},
}
"""What each site lacks on each side."""
SHARED = ("in-both", "whole")
"""Sites of one domain, whose counts are added up."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sites whose files name their classes in another order, and those that they have alone."""
    folder = tmp_path_factory.mktemp("sites")
    tiny_federation.write_data(folder, 12)
    with np.load(folder / "left.npz") as given:
        images = dict(given)
    rng = np.random.default_rng(7)
    for site, absent in ABSENT.items():
        lacks = {side: absent.get(side, "").split() for side in ("train", "test")}
        names = [name for name in CLASSES[::-1] if any(name not in gone for gone in lacks.values())]
        arrays: dict[str, Any] = {"classes": np.array(names)}
        for side, gone in lacks.items():
            labels = np.array([CLASSES[label] for label in images[f"y_{side}"]])
            has = ~np.isin(labels, gone)
            noisy = images[f"x_{side}"][has].astype(int) + rng.integers(-90, 90, images[f"x_{side}"][has].shape)
            arrays[f"x_{side}"] = noisy.clip(0, 255).astype(np.uint8)
            arrays[f"y_{side}"] = np.array([names.index(name) for name in labels[has]])
        np.savez(folder / f"{site}.npz", **arrays)
    values = tiny_federation.document(
        folder,
        "fedavg",
        run={"rounds": 2, "clients": sorted(ABSENT)},
        evaluation={"confusion": True, "histograms": True, "score": "balanced_accuracy"},
    )
    values["clients"] = {
        site: {"data": f"npz:{folder / site}.npz", **({"domain": "ward"} if site in SHARED else {})} for site in ABSENT
    }
    simulated(values, folder / "run")
    return folder


def predictions(folder: Path, sites: tuple[str, ...]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Labels by name, and logits, of the sites' test images."""
    trained = read_trained_model(folder / "run")
    labels, logits = [], []
    for site in sites:
        images, _ = load_split(f"npz:{folder / site}.npz", contract=trained.config.data, split="test")
        with torch.inference_mode():
            ((x_B3SS, _),) = DeviceImages.put(images, trained.config.data, trained.device).in_order(len(images))
            logits.append(trained.model(x_B3SS).numpy())
        with np.load(folder / f"{site}.npz") as given:
            labels.append(given["classes"][given["y_test"]])
    return np.concatenate(labels), np.concatenate(logits)


@pytest.mark.parametrize("domain", ["ward", "in-train", "in-test", "only-one"])
def test_scores_of_a_domain_are_scikit_learns(domain: str, folder: Path) -> None:
    sites = SHARED if domain == "ward" else (domain,)
    line = json.loads((folder / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    names, logits = predictions(folder, sites)
    labels = np.array([CLASSES.index(name) for name in names])
    predicted = logits.argmax(axis=1)
    assert domain == "only-one" or len({*predicted.tolist()}) > 1
    assert line["accuracy"][domain] == pytest.approx(metrics.accuracy_score(labels, predicted))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, on classes that are given and not there
        balanced = metrics.balanced_accuracy_score(labels, predicted)
        assert line["macro_f1"][domain] == pytest.approx(metrics.f1_score(labels, predicted, average="macro"))
    assert line["balanced_accuracy"][domain] == pytest.approx(balanced)
    present = [label for label in range(len(CLASSES)) if 0 < (labels == label).sum() < len(labels)]
    areas = [metrics.roc_auc_score(labels == label, bins_of(logits)[:, label]) for label in present]
    if present:
        assert line["auc"][domain] == pytest.approx(np.mean(areas))
    else:
        assert line["auc"][domain] is None


def test_the_mean_is_over_domains_that_have_a_value_and_recall_is_null_without_images(folder: Path) -> None:
    line = json.loads((folder / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    for score in ("accuracy", "macro_f1", "auc"):
        values = [value for name, value in line[score].items() if name not in ("mean", "worst") and value is not None]
        assert line[score]["mean"] == pytest.approx(np.mean(values)), score
        assert line[score]["worst"] == pytest.approx(min(values)), score
    reports = [json.loads(text) for text in (folder / "run" / "evaluations.jsonl").read_text().splitlines()]
    for report in reports:
        for counts in report["counts"]:
            site = report["client_id"]
            names, logits = predictions(folder, (site,))
            if report["round"] != 2 or counts["set_name"] != "test":
                continue
            labels = np.array([CLASSES.index(name) for name in names])
            expected = [
                None if not (labels == label).any() else float((logits.argmax(1)[labels == label] == label).mean())
                for label in range(len(CLASSES))
            ]
            recall = [
                None if not total else right / total
                for right, total in zip(counts["correct"], counts["total"], strict=True)
            ]
            assert recall == pytest.approx(expected), site
