"""Real tiny federations whose clients have models of their own: what they come to, and that nothing interrupts it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.interruption import Interrupted
from fedplcc.runs.artifacts import EVALUATIONS
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.tensors import sha256_hex, to_bytes
from fedplcc.trainer.models import build_model, state_arrays
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import hashed, simulated

pytestmark = pytest.mark.slow

OWN = {"share_model": False}
"""FedProto as published: models stay with their clients."""
NUM_ASKED = 21
"""More than one task asks, so that each attempt gets further; less than a third of what the run does."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stripes that begin anywhere, under much noise: an untrained net's class means do not tell them apart."""
    folder = tmp_path_factory.mktemp("data")
    for domain, name in enumerate(tiny_federation.CLIENTS):
        rng = np.random.default_rng(domain)
        arrays: dict[str, Any] = {"classes": np.array(tiny_federation.CLASSES)}
        for part in ("train", "test"):
            labels = np.repeat(np.arange(len(tiny_federation.CLASSES)), 24)
            columns = np.arange(32) + rng.integers(0, 12, (len(labels), 1))
            stripes = 40 * (columns // (2 + 4 * labels[:, None]) % 2) * (labels < 2)[:, None]
            images = stripes[:, None, :, None] + rng.integers(0, 150, (len(labels), 32, 32, 3)) + 40 * domain
            arrays |= {f"x_{part}": images.astype(np.uint8), f"y_{part}": labels}
        np.savez(folder / f"{name}.npz", **arrays)
    return folder


def a_document(data: Path, method: str, *, local_steps: int, rounds: int, **hyper: Any) -> dict[str, Any]:
    training = {"local_steps": local_steps, "learning_rate": 0.02}
    return {**tiny_federation.document(data, method, run={"rounds": rounds}, training=training), "method": hyper}


def lines_in(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_models_that_stay_with_their_clients_learn_and_the_global_one_stays_the_first(
    data: Path, tmp_path: Path
) -> None:
    values = a_document(data, "fedproto", local_steps=20, rounds=3, **OWN)
    simulated(values, tmp_path)
    config = parse_run_config(tiny_federation.run_document(values))
    first = to_bytes(state_arrays(build_model(config.model, len(tiny_federation.CLASSES), 32, config.run.seed)))
    assert (tmp_path / "model.safetensors").read_bytes() == first
    metrics = lines_in(tmp_path, "metrics.jsonl")
    assert {line["model_sha256"] for line in metrics} == {sha256_hex(first)}
    assert all(line["accuracy_of"] == "local" and line["accuracy"] == line["accuracy_local"] for line in metrics)
    assert metrics[-1]["accuracy"]["mean"] > metrics[0]["accuracy"]["mean"] + 0.2
    assert sorted(metrics[-1]["loss"]) == ["ce", "proto"]
    for line in lines_in(tmp_path, "timings.jsonl"):
        assert line["bytes_received"] < len(first) / 100, "prototypes are all that clients send"
    reports = lines_in(tmp_path, EVALUATIONS)
    assert {counts["model"] for report in reports for counts in report["counts"]} == {"local"}


def test_local_models_are_judged_beside_the_global_one(data: Path, tmp_path: Path) -> None:
    simulated(a_document(data, "fedccl", local_steps=6, rounds=2), tmp_path)
    reports, metrics = lines_in(tmp_path, EVALUATIONS), lines_in(tmp_path, "metrics.jsonl")
    for line in metrics:
        for key, place in (("accuracy", 0), ("accuracy_local", 1)):
            of_clients = {
                report["client_id"]: sum(report["counts"][place]["correct"]) / sum(report["counts"][place]["total"])
                for report in reports
                if report["round"] == line["round"]
            }
            assert of_clients == {name: line[key][name] for name in tiny_federation.CLIENTS}
    assert any(line["accuracy"] != line["accuracy_local"] for line in metrics)


@pytest.mark.full
@pytest.mark.parametrize(("method", "hyper"), [("fedccl", {}), ("fedproto", OWN)])
def test_interrupted_and_continued_equals_uninterrupted(
    data: Path, tmp_path: Path, method: str, hyper: dict[str, Any]
) -> None:
    """Interrupted whenever it has asked so often whether to stop, again and again: within tasks and between them."""
    values = a_document(data, method, local_steps=4, rounds=2, **hyper)
    simulated(values, tmp_path / "whole")
    num_interruptions = 0
    while not (tmp_path / "parts" / "run.json").exists():
        asked = itertools.count()
        try:
            simulated(values, tmp_path / "parts", should_stop=partial(_has_come_to, NUM_ASKED, asked))
        except Interrupted:
            num_interruptions += 1
    assert num_interruptions > 1
    assert hashed(tmp_path / "parts") == hashed(tmp_path / "whole")


def _has_come_to(end: int, asked: Iterator[int]) -> bool:
    return next(asked) >= end
