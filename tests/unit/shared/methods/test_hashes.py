"""Bytes of every method: tiny simulated runs end in the model, prototypes and metrics that they ended in before.

They were made on one machine. Elsewhere float32 sums may round another way, and the test says so and skips.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.federation import tiny_federation
from tests.support.oracles import method_hashes

GOLDEN = json.loads(method_hashes.GOLDEN.read_text())

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        method_hashes.environment() != GOLDEN["environment"],
        reason=f"the hashes were made with {GOLDEN['environment']}, and this is {method_hashes.environment()}",
    ),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    tiny_federation.write_data(folder)
    return folder


def test_every_method_and_setting_has_its_hashes(data: Path) -> None:
    assert method_hashes.runs(data).keys() == GOLDEN["runs"].keys(), (
        "write them anew: python -m tests.support.oracles.method_hashes"
    )


@pytest.mark.parametrize("name", GOLDEN["runs"])
def test_a_run_ends_in_the_bytes_that_it_ended_in(name: str, data: Path) -> None:
    assert method_hashes.hashes(method_hashes.runs(data)[name]) == GOLDEN["runs"][name]
