"""Runs whose clients train on a GPU; skipped where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fedplcc.method_contract.settings import Setting
from fedplcc.shared.config.tables.training import AUGMENTATIONS
from fedplcc.trainer.models.resnet import STEMS
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import hashed, simulated
from tests.support.records.method_settings import of_settings, public_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

GPU = "cuda:0"
RESNET = {"name": "resnet10", "stem": "imagenet5x5"}


def run_twice(values: dict[str, Any], folder: Path) -> None:
    for name in ("once", "again"):
        simulated(values, folder / name, device=GPU)
    assert hashed(folder / "once") == hashed(folder / "again")


@of_settings()
def test_every_method_has_the_same_bytes_twice(setting: Setting, data: Path, tmp_path: Path) -> None:
    values = tiny_federation.document(data, setting.method.name, model=RESNET, run={"rounds": 2})
    values |= {"method": dict(setting.hyper), **public_of(setting.method.name, setting.hyper)}
    run_twice(values, tmp_path)


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("stem", STEMS)
def test_every_stem_with_all_changes_of_images_and_features_has_the_same_bytes_twice(
    stem: str, norm: str, data: Path, tmp_path: Path
) -> None:
    values = tiny_federation.document(
        data,
        model={"name": "resnet10", "stem": stem, "norm": norm},
        run={"rounds": 2},
        training={"augment": list(AUGMENTATIONS), "mix_style": {"probability": 1.0}},
    )
    run_twice(values, tmp_path)


def test_statistics_of_the_site_have_the_same_bytes_twice(data: Path, tmp_path: Path) -> None:
    values = tiny_federation.document(
        data,
        model=RESNET,
        run={"rounds": 2},
        training={"prototype_statistics": "site"},
        evaluation={"batch_norm": "site"},
    )
    run_twice(values, tmp_path)


def test_the_first_rounds_model_is_the_processors_but_for_rounding(data: Path, tmp_path: Path) -> None:
    """Later rounds part: a difference in the last bits of a feature may join other prototypes."""
    values = tiny_federation.document(data, run={"rounds": 1})
    for device in ("cpu", GPU):
        simulated(values, tmp_path / device, device=device)
    on_cpu, on_gpu = (load_file(tmp_path / device / "model.safetensors") for device in ("cpu", GPU))
    for name, array in on_cpu.items():
        np.testing.assert_allclose(on_gpu[name], array, rtol=0.01, atol=0.001, err_msg=name)


def test_the_record_names_the_gpu(data: Path, tmp_path: Path) -> None:
    simulated(tiny_federation.document(data, run={"rounds": 1}), tmp_path / "out", device=GPU)
    clients = json.loads((tmp_path / "out" / "run.json").read_text())["clients"]
    assert {entry["environment"]["device"] for entry in clients.values()} == {torch.cuda.get_device_name(0)}
