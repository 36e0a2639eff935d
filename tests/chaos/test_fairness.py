"""A hostile run beside an honest one, small; `python -m tests.chaos.fairness` also judges times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.fairness import ATTACKS, run


@pytest.mark.slow
@pytest.mark.parametrize(
    "attacks", [[*ATTACKS][:1], pytest.param([*ATTACKS][1:], marks=pytest.mark.full)], ids=["first", "rest"]
)
def test_no_hostile_run_changes_an_honest_one_or_keeps_an_operator_from_ending_it(
    attacks: list[str], tmp_path: Path
) -> None:
    outcomes = run(tmp_path, attacks, rounds=2, rows=1024, dim=64)
    assert [outcome.attack for outcome in outcomes] == attacks
    assert [sentence for outcome in outcomes for sentence in outcome.violations(is_timed=False)] == []
