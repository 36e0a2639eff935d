"""A client's budget: charged once, before anything leaves, over all runs, and never taken for empty."""

from __future__ import annotations

import itertools
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.privacy.guarantee import mu_of, mu_of_release, noise_for
from fedplcc.shared.types import CommittedRelease
from fedplcc.trainer.privacy.budget import BUDGET, LIMIT, PRIVACY_FOLDER, SECRET, Budget, BudgetSpent, Charge
from tests.support.failpoints import killed_at


def a_charge(name: str = "a", *, noise: float = noise_for(1.0, 1e-5, 1), run: str = "r", round: int = 1) -> Charge:
    mu = mu_of_release(noise)
    return Charge(name=name, mu=mu, clip=0.1, noise=noise, run_hash=run, run_id=f"run-{run}", round=round, claim="site")


def test_releases_add_up_over_runs_and_processes_and_the_same_one_costs_once(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "privacy"
    assert Budget(folder).charges == ()
    assert not folder.exists()  # reading makes nothing
    Budget(folder).charge(a_charge(), most_of_run=9)
    Budget(folder).charge(a_charge(), most_of_run=9)
    assert Budget(folder).spent_epsilon == pytest.approx(1.0, abs=1e-6)
    Budget(folder).charge(a_charge("b", run="s"), most_of_run=9)
    assert [each.name for each in Budget(folder).charges] == ["a", "b"]
    assert 2**0.5 - 0.1 < Budget(folder).spent_epsilon < 1.6


def test_the_limit_of_the_last_start_is_kept_for_who_looks_and_only_where_there_was_one(tmp_path: Path) -> None:
    folder = tmp_path / PRIVACY_FOLDER
    Budget(folder).keep_limit()
    assert not folder.exists()
    for epsilon in (3.0, None):
        Budget(folder, epsilon=epsilon, delta=1e-6).keep_limit()
        found = Budget.of_trainer(tmp_path)
        assert (found.limit, found.delta) == (epsilon, 1e-6)
        found.charge(a_charge(), most_of_run=9)
    assert stat.S_IMODE((folder / LIMIT).stat().st_mode) == 0o600
    (folder / BUDGET).unlink()
    with pytest.raises(StoreUnavailable, match="missing or damaged: put the folder"):
        _ = found.charges


@pytest.mark.parametrize(
    "kept", ['{"epsilon":"three","delta":1e-5}', '{"epsilon":NaN,"delta":1e-5}', '{"epsilon":3,"delta":0}']
)
def test_a_limit_that_none_has_is_damaged(kept: str, tmp_path: Path) -> None:
    Budget(tmp_path / PRIVACY_FOLDER, epsilon=3.0).keep_limit()
    (tmp_path / PRIVACY_FOLDER / LIMIT).write_text(kept)
    with pytest.raises(StoreUnavailable, match="is damaged; start its trainer"):
        Budget.of_trainer(tmp_path)


def test_what_is_told_has_a_bound_and_can_be_read(tmp_path: Path) -> None:
    budget = Budget(tmp_path)
    assert budget.told_epsilon() == 0.0
    budget.charge(replace(a_charge(), mu=1e9), most_of_run=9)
    assert budget.told_epsilon() is None
    assert [each["epsilon"] for each in budget.by_run()] == [None]
    (tmp_path / BUDGET).write_text("{")
    assert budget.told_epsilon() is None


def test_beyond_the_limit_there_is_no_release_and_one_that_was_charged_stays_free(tmp_path: Path) -> None:
    budget = Budget(tmp_path, epsilon=1.0, delta=1e-5)
    charge = a_charge()
    budget.check(charge.mu, "r", 1)
    budget.charge(charge, most_of_run=9)
    budget.check(charge.mu, "r", 1)  # the same release may be asked for again
    budget.charge(charge, most_of_run=9)
    before = (tmp_path / BUDGET).read_bytes()
    for run, round in (("s", 1), ("r", 2)):
        with pytest.raises(BudgetSpent, match=r"from epsilon 1 to 1\.\d+, and its owner allows 1 \(delta 1e-05\)"):
            budget.check(charge.mu, run, round)
    with pytest.raises(BudgetSpent):
        budget.charge(a_charge("other images"), most_of_run=9)
    assert (tmp_path / BUDGET).read_bytes() == before
    assert sum(each.mu**2 for each in budget.charges) <= mu_of(1.0, 1e-5) ** 2 * (1 + 1e-9)
    Budget(tmp_path, epsilon=2.0).check(charge.mu, "s", 1)


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    key = Budget(tmp_path).key()
    assert len(key) == 32
    assert Budget(tmp_path).key() == key
    assert stat.S_IMODE((tmp_path / SECRET).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / BUDGET).stat().st_mode) == 0o600
    assert Budget(tmp_path / "other").key() != key
    (tmp_path / SECRET).write_bytes(key[:31])
    with pytest.raises(StoreUnavailable, match="31 bytes, not 32"):
        Budget(tmp_path).key()


@pytest.mark.parametrize("damage", ["missing", "changed", "cut"])
def test_a_lost_record_of_what_was_spent_is_no_empty_one(tmp_path: Path, damage: str) -> None:
    budget = Budget(tmp_path, epsilon=9.0)
    budget.key()
    budget.charge(a_charge(), most_of_run=9)
    path = tmp_path / BUDGET
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content.replace(b'"round":1', b'"round":2') if damage == "changed" else content[:-9])
    for use in (budget.key, lambda: budget.charge(a_charge("b"), most_of_run=9), lambda: budget.check(0.1, "r", 1)):
        with pytest.raises(StoreUnavailable, match="missing or damaged: put the folder"):
            use()


def test_a_lost_secret_is_no_new_one_once_a_release_was_made(tmp_path: Path) -> None:
    budget = Budget(tmp_path)
    key = budget.key()
    budget.charge(a_charge(), most_of_run=9)
    (tmp_path / SECRET).unlink()
    with pytest.raises(StoreUnavailable, match="noise is gone: put the folder"):
        budget.key()
    (tmp_path / SECRET).write_bytes(bytes(32))
    with pytest.raises(StoreUnavailable, match="noise is not that of its releases: put the folder"):
        budget.key()
    (tmp_path / SECRET).write_bytes(key)
    assert budget.key() == key


def test_a_process_that_is_killed_at_any_step_charges_a_release_once(tmp_path: Path) -> None:
    for at in itertools.count(1):
        folder = tmp_path / f"{at}" / "privacy"
        with killed_at(at, "trainer.privacy") as passed:
            Budget(folder).key()
            Budget(folder).charge(a_charge(), most_of_run=9)
        names = [each.name for each in Budget(folder).charges]
        assert names in ([], ["a"])
        first = Budget(folder).key()
        Budget(folder).charge(a_charge(), most_of_run=9)
        assert [each.name for each in Budget(folder).charges] == ["a"]
        assert Budget(folder).key() == first
        if len(passed) < at:
            break
    assert at > 10


def refused(budget: Budget, match: str) -> None:
    """Neither another release nor one that was charged passes."""
    with pytest.raises(StoreUnavailable, match=match):
        budget.check(0.1, "r", 1)
    with pytest.raises(StoreUnavailable, match=match):
        budget.charge(a_charge("c", run="s"), most_of_run=9)


def test_a_record_without_a_release_that_the_aggregator_has_makes_none_until_the_newer_one_is_back(
    tmp_path: Path,
) -> None:
    budget, path = Budget(tmp_path), tmp_path / BUDGET
    budget.key()
    budget.charge(a_charge(), most_of_run=9)
    older = path.read_bytes()
    budget.charge(a_charge("b", round=2), most_of_run=9)
    newer = path.read_bytes()
    again = Budget(tmp_path)
    again.saw(CommittedRelease("run-of-the-same-document", "r", 2))
    again.check(0.1, "s", 1)
    path.write_bytes(older)
    refused(
        again, r"older copy.* lacks that of round 2 of run 'run-of-the-same-document', which the aggregator has; put"
    )
    assert path.read_bytes() == older
    path.write_bytes(newer)
    again.charge(a_charge("c", run="s"), most_of_run=9)


def test_an_aggregator_that_knows_of_no_release_or_of_this_one_allows_nothing_more(tmp_path: Path) -> None:
    budget = Budget(tmp_path, epsilon=1.0)
    budget.charge(a_charge(), most_of_run=9)
    for told in (None, CommittedRelease("run-r", "r", 1)):
        budget.saw(told)
        with pytest.raises(BudgetSpent):
            budget.check(0.1, "t", 1)


def test_a_record_with_fewer_releases_than_left_makes_none(tmp_path: Path) -> None:
    left = [1]
    budget = Budget(tmp_path / PRIVACY_FOLDER, logged=lambda: left[0])
    refused(budget, r"it has 0 of the 1 that egress\.jsonl counts; put the folder")
    Budget(tmp_path / PRIVACY_FOLDER).charge(a_charge(), most_of_run=9)
    budget.charge(a_charge("b", round=2), most_of_run=9)
    left[0] = 2
    budget.check(0.1, "r", 3)


def test_a_secret_that_is_gone_while_a_release_is_charged_may_come_back_and_no_other_one(tmp_path: Path) -> None:
    budget = Budget(tmp_path)
    key = budget.key()
    (tmp_path / SECRET).unlink()
    budget.charge(a_charge(), most_of_run=9)
    (tmp_path / SECRET).write_bytes(bytes(32))
    with pytest.raises(StoreUnavailable, match="is not that of its releases"):
        budget.key()
    (tmp_path / SECRET).write_bytes(key)
    assert Budget(tmp_path).key() == key
