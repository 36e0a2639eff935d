"""A federation small enough for tests with real torch trainers: three classes of striped pictures in two domains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedplcc.runs.initial_model import with_model_file
from fedplcc.shared.config.run import FederationFile, parse_federation
from fedplcc.shared.tensors import sha256_hex
from fedplcc.simulation import Simulation

CLIENTS = ("left", "right")
CLASSES = ("thin", "wide", "plain")


def write_data(folder: Path, num_per_class: int = 8) -> None:
    """One npz file per client: the same stripes, in another colour and under other noise."""
    for domain, name in enumerate(CLIENTS):
        rng = np.random.default_rng(domain)
        arrays: dict[str, Any] = {"classes": np.array(CLASSES)}
        for split in ("train", "test"):
            labels = np.repeat(np.arange(len(CLASSES)), num_per_class)
            images = np.stack([_picture(int(label), domain, rng) for label in labels])
            arrays |= {f"x_{split}": images, f"y_{split}": labels}
        np.savez(folder / f"{name}.npz", **arrays)


def _picture(label: int, domain: int, rng: np.random.Generator) -> np.ndarray:
    columns = np.arange(32)
    stripes = (columns // (2 + 4 * label) % 2 if label < 2 else np.zeros(32)) * 120
    picture = np.broadcast_to(stripes[None, :, None], (32, 32, 3)) + rng.integers(0, 60, (32, 32, 3))
    picture = picture + np.array([0, 60 * domain, 30])
    pixels: np.ndarray = picture.clip(0, 255).astype(np.uint8)
    return pixels


def document(folder: Path, method: str = "fedplcc", **sections: Any) -> dict[str, Any]:
    """The configuration, with the clients that a simulation makes."""
    values: dict[str, Any] = {
        "run": {"name": "tiny", "method": method, "rounds": 3, "clients": list(CLIENTS)},
        "model": {"name": "cnn4"},
        "data": {"classes": list(CLASSES), "image_size": 32},
        "training": {"local_steps": 4, "batch_size": 8},
        "clients": {name: {"data": f"npz:{folder / name}.npz"} for name in CLIENTS},
    }
    if method == "fedplcc":
        values["method"] = {"lambda1": 1.0, "lambda2": 10.0}  # Digit-5's would drive so small a net apart
    for name, table in sections.items():
        values[name] = {**values.get(name, {}), **table}
    return values


def run_document(values: dict[str, Any]) -> dict[str, Any]:
    """The document for a deployed federation: the same without the clients' tables."""
    return {name: table for name, table in values.items() if name != "clients"}


def federation(values: dict[str, Any]) -> FederationFile:
    return with_model_file(parse_federation(values))


def simulated(folder: Path, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The metrics lines of the undisturbed run, from a simulation in this process."""
    folder.mkdir(parents=True)
    simulation = Simulation(federation(values), folder, request_id="reference", device="cpu")
    try:
        simulation.run_to_end()
        record = simulation.record()
        _blob, model = simulation.artifact("model")
        data = model.read_bytes()
    finally:
        simulation.close()
    lines = [json.loads(line) for line in record.metrics_lines]
    assert lines[-1]["model_sha256"] == sha256_hex(data)
    return lines
