"""The aggregator's memory: as much for a thousand updates as for two, and for a model that is larger than it.

Whole rounds of a real aggregator, and larger models, are measured by `python -m benchmarks.memory`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.config.settings import environment_without_settings
from tests.support import ROOT
from tests.support.hosts.memory_folder import memory_folder
from tests.support.oracles import fold_memory

MOST_MIB = 16.0
"""By which the peak may differ."""
LIMIT_MIB = 176
"""On what the process may ask for: libraries alone are about 120, 30 more the first matrix product, 8 a reader's stack."""


def aggregated(folder: Path, *limit: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.support.oracles.fold_memory", str(folder), *map(str, limit)]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment = {**environment_without_settings(), **threads}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says how much anonymous memory a process has")
def test_a_thousand_updates_need_no_more_memory_than_two() -> None:
    peaks = {}
    for num_updates in (2, 1000):
        with memory_folder() as name:
            fold_memory.write_round(Path(name), num_updates, 140_000)
            peaks[num_updates] = aggregated(Path(name))["peak_mib"]
    assert max(peaks.values()) - min(peaks.values()) <= MOST_MIB, peaks


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not hold a process to its limit on data")
def test_a_model_three_times_larger_than_the_memory_is_folded_to_the_same_bytes() -> None:
    with memory_folder() as name:
        folder = Path(name)
        num_parameters = 3 * (LIMIT_MIB << 20) // 4
        fold_memory.write_round(folder, 2, num_parameters)
        expected = fold_memory.mean_of_round(folder, 2, num_parameters)
        limited = aggregated(folder, LIMIT_MIB)
        assert limited["made"][0] == expected
        assert limited["peak_mib"] < LIMIT_MIB / 2
