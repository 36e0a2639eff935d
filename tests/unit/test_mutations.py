"""Changes of code for tests to notice: what is cited, what is changed, and that a change is told when it is reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations import ROOT, Place, changed, guarantees, modules_of, places_in

CODE = '''def doubled(number, seen):
    """Twice a number that is positive."""
    if number < 0:
        raise ValueError(number)
    seen.append(number)
    number += number
    return number
'''


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "module.py"
    path.write_text(CODE)
    return path


def test_guarantees_cite_files_of_which_each_leads_to_code() -> None:
    known = guarantees((ROOT / "docs" / "guarantees.md").read_text())
    assert len(known) > 100
    without = [each.promise for each in known if not any(map(places_in, modules_of(ROOT, each.tests)))]
    assert without == []


@pytest.mark.parametrize(
    ("change", "line", "given", "expected"),
    [
        ("a condition is negated", 3, -2, (-4, [-2])),
        ("a statement is dropped", 4, -2, (-4, [-2])),
        ("a call is dropped", 5, 3, (6, [])),
        ("a statement is dropped", 6, 3, (3, [3])),
    ],
)
def test_a_change_is_one_and_notes_that_it_was_reached(
    change: str, line: int, given: int, expected: tuple[int, list[int]], module: Path, tmp_path: Path
) -> None:
    place = Place(module, line, change)
    assert place in places_in(module)
    assert len(places_in(module)) == 4
    space: dict[str, object] = {}
    exec(changed(place, tmp_path / "reached"), space)
    assert not (tmp_path / "reached").exists()
    seen: list[int] = []
    assert (space["doubled"](given, seen), seen) == expected  # type: ignore[operator]
    assert (tmp_path / "reached").exists()
