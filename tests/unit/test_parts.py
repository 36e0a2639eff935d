"""Which tests a command runs: each is in one of two parts and in one shard, and who names tests gets them."""

from __future__ import annotations

import pytest

from tests.support import ROOT
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
