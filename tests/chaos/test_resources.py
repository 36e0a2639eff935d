"""Each resource taken by one member, small; `python -m tests.chaos.resources` takes more and judges times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.resources import ATTACKS, may_mount, run


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_a_member_that_takes_all_of_a_resource_stops_neither_an_honest_run_nor_an_operator(
    tmp_path: Path, name: str
) -> None:
    if name == "disk" and not may_mount(tmp_path / "probe"):
        pytest.skip("mounting a small disk needs root and its capabilities")
    assert run(tmp_path, name, rounds=2, size=0.1).violations(is_timed=False) == []
