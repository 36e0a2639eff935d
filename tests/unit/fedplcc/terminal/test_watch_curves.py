"""Curves, numbers in words, how a screen's lines are shared out, and terminals without Unicode."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import RenderableType

from fedplcc.terminal.numbers import about, duration, exact, for_so_long
from fedplcc.terminal.watch.console import ascii_file, shows_unicode
from fedplcc.terminal.watch.curves import curve
from fedplcc.terminal.watch.screen import allotted
from fedplcc.terminal.watch.sections import wrapped

VALUES = st.lists(st.none() | st.floats(-1e6, 1e6), max_size=50)


@dataclass
class Needs:
    """A section that needs and could fill so many lines."""

    least: int
    most: int

    def lines(self, height: int) -> Sequence[RenderableType]:
        return []


def test_a_curve_goes_from_its_lowest_to_its_highest_value() -> None:
    assert curve([0.0, 0.5, 1.0], 10) == "▁▅█"
    assert curve([3.0, 3.0], 10) == curve([7.0, 7.0], 10), "a constant one lies in the middle"


def test_curves_of_one_scale_can_be_compared() -> None:
    low, high = (curve(values, 2, bounds=(0.0, 1.0)) for values in ([0.0, 0.2], [0.8, 1.0]))
    assert max(low) < min(high)


def test_a_missing_value_is_a_gap() -> None:
    assert curve([0.0, None, 1.0], 3) == "▁·█"
    assert curve([None, None], 3) == "··"
    assert curve([], 3) == curve([1.0], 0) == ""


def test_a_long_curve_is_as_wide_as_there_is_room_and_ends_with_the_last_value() -> None:
    drawn = curve([*(0.0 for _ in range(999)), 1.0], 20)
    assert drawn == "▁" * 19 + "█"


@given(values=VALUES, width=st.integers(0, 60))
def test_a_curve_has_a_character_for_each_value_that_fits(values: list[float | None], width: int) -> None:
    assert len(curve(values, width)) == min(len(values), width)


@pytest.mark.parametrize(
    ("encoding", "environment", "is_unicode"),
    [
        ("utf-8", {}, True),
        ("UTF8", {"LANG": "de_DE.UTF-8"}, True),
        ("utf-8", {"LC_ALL": "en_US.utf8", "LANG": "C"}, True),
        ("utf-8", {"LC_CTYPE": "C.UTF-8"}, True),
        ("utf-8", {"LC_CTYPE": "C.UTF-8", "LANG": "C"}, False),
        ("utf-8", {"LANG": "de_DE"}, True),
        ("utf-8", {"LANG": "C"}, False),
        ("utf-8", {"LC_CTYPE": "POSIX", "LANG": "en_US.UTF-8"}, False),
        ("utf-8", {"LANG": "de_DE.ISO-8859-1@euro"}, False),
        ("latin-1", {}, False),
        ("ascii", {"LANG": "en_US.UTF-8"}, False),
        ("utf-8", {"TERM": "linux"}, False),
    ],
)
def test_a_terminal_gets_characters_that_it_has(encoding: str, environment: dict[str, str], is_unicode: bool) -> None:
    assert shows_unicode(encoding, environment) is is_unicode


def test_a_terminal_without_unicode_gets_lookalikes_in_the_same_columns() -> None:
    reading, writing = os.pipe()
    with ascii_file(writing) as file:
        file.write("▁▄█ 60 → 24 · Zürich, 数据 end…\n")
    assert os.read(reading, 100) == b"_~# 60 > 24 | Z?rich, ???? end~\n"
    os.close(reading)
    os.close(writing)


@given(
    height=st.integers(-3, 60),
    needs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)).map(sorted), max_size=6),
)
def test_never_more_lines_are_allotted_than_there_are_or_than_can_be_filled(
    height: int, needs: list[list[int]]
) -> None:
    sections = [Needs(least, most) for least, most in needs]
    lines = allotted(height, sections)
    assert sum(lines) <= max(height, 0)
    for given_lines, section in zip(lines, sections, strict=True):
        assert given_lines == 0 or section.least <= given_lines <= section.most


def test_the_first_sections_are_served_first() -> None:
    sections = [Needs(4, 8), Needs(1, 2), Needs(3, 9), Needs(3, 5)]
    assert allotted(100, sections) == [8, 2, 9, 5]
    assert allotted(14, sections) == [7, 1, 3, 3]
    assert allotted(9, sections) == [5, 1, 3, 0]
    assert allotted(3, sections) == [0, 2, 0, 0], "a section that does not fit leaves its lines to the next"


def test_durations_are_in_the_unit_that_fits() -> None:
    assert [exact(3.21), exact(42), duration(59), duration(90), duration(7500)] == [
        "3.2 s",
        "42 s",
        "59 s",
        "2 min",
        "2 h 5 min",
    ]
    assert (about(0.5), about(300)) == ("a moment", "about 5 min")
    assert (for_so_long(0.4), for_so_long(12)) == ("", ", 12 s")


def test_text_of_others_is_wrapped_and_can_do_nothing() -> None:
    lines = [line.plain for line in wrapped("words go whole into the next lines", 18, 2, "")]
    assert lines == ["words go whole", "into the next…"]
    assert [line.plain for line in wrapped("x" * 30, 18, 3, "")] == ["x" * 18, "x" * 12]
    assert [line.plain for line in wrapped("evil\x1b[2Jname", 20, 1, "")] == ["evil\\x1b[2Jname"]
