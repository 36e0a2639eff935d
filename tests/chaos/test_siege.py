"""Every attack at once for a short time; `python -m tests.chaos.siege` takes two minutes and judges times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.siege.attacks import ATTACKS, Who
from tests.chaos.siege.run import besiege
from tests.support.federation.processes import TOLD

SECONDS = 5.0
MUTANT_SECONDS = 20.0
SMALL = "Methods that are not there|small, by one|other clients|The same invitation|port's health"
"""Attacks by small calls that are refused."""


def test_each_attack_has_a_name_and_each_attacker_an_attack() -> None:
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names)
    assert {attack.who for attack in ATTACKS} == set(Who)


@pytest.mark.slow
def test_every_attack_at_once_costs_honest_parts_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    outcome = besiege(tmp_path, SECONDS)
    print(outcome.report())
    record_property(TOLD, f"{outcome.num_calls:,} hostile calls of {len(outcome.counts)} attacks in {SECONDS:.0f} s")
    assert outcome.violations(is_timed=False) == []


@pytest.mark.full
@pytest.mark.slow
def test_a_siege_finds_an_aggregator_that_writes_a_line_for_each_refusal(tmp_path: Path) -> None:
    outcome = besiege(tmp_path, MUTANT_SECONDS, mutant="every_refusal_is_a_line", only=SMALL)
    assert [found for found in outcome.violations(is_timed=False) if found.startswith("the logs grew")] != []
