"""Which tests a command runs: each is in one of two parts and in one shard, and who names tests gets each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.folded_cases import folded
from tests.support.parts import SHARDS, Part, part_of, shard_of


@pytest.mark.parametrize("is_full", [False, True])
def test_a_test_is_in_one_of_two_parts(is_full: bool) -> None:
    assert [part for part in (Part.COVERING, Part.REST) if part.has(is_full=is_full)] == [
        Part.REST if is_full else Part.COVERING
    ]
    assert Part.ALL.has(is_full=is_full)


def test_who_names_tests_gets_all_of_them() -> None:
    assert part_of(is_named=True) is Part.ALL
    assert part_of(is_named=False) is Part.COVERING


def test_shards_are_about_equally_large_and_stay_as_they_are() -> None:
    names = [f"tests/test_{number}.py::test_a" for number in range(1000)]
    shards = [shard_of(name) for name in names]
    assert {shard: shards.count(shard) > 150 for shard in set(shards)} == dict.fromkeys(range(1, SHARDS + 1), True)
    assert {shard_of(f"tests/test_a.py::test_{name}") for name in "bcd"} == {2}, "golden: the same in another process"


def test_ci_chooses_among_all_shards() -> None:
    assert f"% {SHARDS} + 1" in (ROOT / ".ci/run").read_text()


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("letter", ["a", pytest.param("b")])
def tried(number: int, letter: str, tmp_path: Path) -> None:
    (tmp_path / f"{number}{letter}").touch()
    if letter == "a":
        pytest.skip("another case goes on")
    assert (number, letter) != (2, "b")


def test_where_all_tests_run_cases_are_one_test_that_names_the_case_that_failed(tmp_path: Path) -> None:
    found = folded(tried)
    assert found is not None
    with pytest.raises(AssertionError) as failed:
        found(tmp_path)
    assert "'number': 2, 'letter': 'b'" in failed.value.__notes__[0]
    made = [str(file.relative_to(tmp_path)) for file in sorted(tmp_path.glob("*/*"))]
    assert made == ["0/1a", "1/1b", "2/2a", "3/2b"], "each case has a folder of its own"
    assert folded(pytest.mark.slow(tried)) is None
