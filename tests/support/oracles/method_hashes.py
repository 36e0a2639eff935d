"""SHA-256 of what tiny simulated runs come to: every method and setting, and runs that reach what no setting reaches.

`tests/golden/methods/hashes.json` keeps them, with the facts of the machine that made them: a processor of another kind, or
another version of torch or numpy, rounds differently. `python -m tests.support.oracles.method_hashes` writes the file anew.
"""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedplcc.shared.methods import METHODS
from fedplcc.shared.tensors import sha256_hex
from fedplcc.shared.types import BATCH_NORM
from fedplcc.simulation import Simulation
from tests.support.federation import tiny_federation
from tests.support.hosts.memory_folder import memory_folder
from tests.support.records.method_settings import SETTINGS, public_of

GOLDEN = Path(__file__).parents[2] / "golden" / "methods" / "hashes.json"
CPU_INFO = Path("/proc/cpuinfo")
BATCH_NORM_MODEL = {"name": "resnet10"}

ONE_AFTER_ANOTHER = {"stages": 2, "rounds_per_stage": 2, "classes": [["thin", "wide"], ["wide", "plain"]]}
"""Stages whose classes differ: clients remember those of the first in the second."""
OTHER_RUNS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "stages and their mean: fedmlp": ("fedmlp", {"stream": {**ONE_AFTER_ANOTHER, "epoch_model": "stage_mean"}}),
    "stages and their mean: feddyn": ("feddyn", {"stream": {**ONE_AFTER_ANOTHER, "epoch_model": "stage_mean"}}),
    "average over rounds: feddyn": ("feddyn", {"method": {"global_average": "ema"}}),
    "average over rounds and another head: creff": ("creff", {"method": {"global_average": "ema"}}),
    "statistics and classes of the site: fedproto": (
        "fedproto",
        {
            "model": BATCH_NORM_MODEL,
            "training": {"prototype_statistics": "site"},
            "evaluation": {"batch_norm": "site", "own_classes": True},
        },
    ),
    "mixed styles: fedavg": (
        "fedavg",
        {"model": BATCH_NORM_MODEL, "training": {"mix_style": {"probability": 0.5}}},
    ),
}
"""Runs by name: the method, and the sections of their configuration that differ."""


def runs(data: Path) -> Mapping[str, dict[str, Any]]:
    """Return the configuration of each run by its name; `data` has what `tiny_federation.write_data` wrote."""
    settings = {each.name: (each.method.name, {"method": each.hyper}) for each in SETTINGS}
    return {name: _document(data, method, sections) for name, (method, sections) in {**settings, **OTHER_RUNS}.items()}


def _document(data: Path, method: str, sections: Mapping[str, Any]) -> dict[str, Any]:
    rounds = {} if "stream" in sections else {"rounds": 2}
    values = tiny_federation.document(data, method, training={"local_steps": 1, "batch_size": 4})
    values["run"] = {**{key: value for key, value in values["run"].items() if key != "rounds"}, **rounds}
    for name, table in sections.items():
        values[name] = {**values.get(name, {}), **table}
    values.update(public_of(method, values.get("method", {})))
    record = METHODS[method]
    if record.personal_part(record.config.model_validate(values.get("method", {}))) == BATCH_NORM:
        values["model"] = BATCH_NORM_MODEL
    return values


def hashes(values: dict[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of the model, the prototypes and all lines of metrics that a run comes to."""
    with _one_thread(), memory_folder() as folder:
        simulation = Simulation(tiny_federation.federation(values), Path(folder), request_id="r", device="cpu")
        try:
            simulation.run_to_end()
            record = simulation.record()
        finally:
            simulation.close()
    lines = "\n".join(record.metrics_lines)
    assert record.status == "completed"
    return {
        "model": record.model.sha256,
        "prototypes": record.prototypes.sha256,
        "metrics": sha256_hex(lines.encode()),
    }


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def environment() -> dict[str, str]:
    """Return the facts of this machine by which sums of float32 may round another way."""
    names = [line.partition(":")[2].strip() for line in CPU_INFO.read_text().splitlines() if "model name" in line]
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "processor": names[0] if names else platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def main() -> None:
    """Write the file anew."""
    with tempfile.TemporaryDirectory() as folder:
        tiny_federation.write_data(Path(folder))
        found = {name: hashes(values) for name, values in runs(Path(folder)).items()}
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps({"environment": environment(), "runs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
