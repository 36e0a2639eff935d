"""Curves, bars, numbers in words, and how a screen's lines are shared out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.terminal.numbers import about, duration, exact, for_so_long
from fedplcc.terminal.watch.glyphs import ASCII, UNICODE, bar, glyphs_for, sparkline
from fedplcc.terminal.watch.layout import Wish, shared_out
from fedplcc.terminal.watch.screen import Screen

VALUES = st.lists(st.none() | st.floats(-1e6, 1e6), max_size=50)


def test_a_curve_goes_from_its_lowest_to_its_highest_value() -> None:
    assert sparkline([0.0, 0.5, 1.0], 10) == "▁▅█"
    assert sparkline([0.0, 0.5, 1.0], 10, ASCII) == "_=#"
    assert sparkline([3.0, 3.0], 10) == sparkline([7.0, 7.0], 10), "one without height lies in the middle"


def test_curves_of_one_scale_can_be_compared() -> None:
    low, high = (sparkline(values, 2, bounds=(0.0, 1.0)) for values in ([0.0, 0.2], [0.8, 1.0]))
    assert max(low) < min(high)


def test_a_missing_value_is_a_gap() -> None:
    assert sparkline([0.0, None, 1.0], 3) == "▁·█"
    assert sparkline([None, None], 3) == "··"
    assert sparkline([], 3) == sparkline([1.0], 0) == ""


def test_a_long_curve_is_as_wide_as_there_is_room_and_ends_with_the_last_value() -> None:
    drawn = sparkline([*(0.0 for _ in range(999)), 1.0], 20)
    assert drawn == "▁" * 19 + "█"


@given(values=VALUES, width=st.integers(0, 60), glyphs=st.sampled_from((UNICODE, ASCII)))
def test_a_curve_has_a_character_for_each_value_that_fits(
    values: list[float | None], width: int, glyphs: object
) -> None:
    assert len(sparkline(values, width, UNICODE)) == min(len(values), width)


@given(fraction=st.floats(-1, 2), width=st.integers(1, 80))
def test_a_bar_is_as_wide_as_asked_and_full_only_at_the_end(fraction: float, width: int) -> None:
    for drawn in (bar(fraction, width, UNICODE), bar(fraction, width, ASCII)):
        assert len("".join(drawn)) == width
    done, rest = bar(fraction, width, ASCII)
    assert (rest == "") == (fraction >= 1)
    assert set(done) <= {"#"}
    assert set(rest) <= {"-"}


def test_half_a_column_is_seen() -> None:
    assert bar(0.5, 3) == ("━╸", "─")
    assert bar(1.0, 3) == ("━━━", "")


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
    assert glyphs_for(encoding, environment) is (UNICODE if is_unicode else ASCII)


@given(
    height=st.integers(-3, 60),
    wishes=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)).map(lambda pair: Wish(*pair)), max_size=6),
)
def test_never_more_lines_are_shared_out_than_there_are_or_than_are_wished(height: int, wishes: list[Wish]) -> None:
    given_lines = shared_out(height, wishes)
    assert sum(given_lines) <= max(height, 0)
    for lines, wish in zip(given_lines, wishes, strict=True):
        assert lines == 0 or min(wish.least, wish.most) <= lines <= wish.most


def test_the_first_sections_are_served_first() -> None:
    wishes = [Wish(4, 8), Wish(1, 2), Wish(3, 9), Wish(3, 5)]
    assert shared_out(100, wishes) == [8, 2, 9, 5]
    assert shared_out(14, wishes) == [7, 1, 3, 3]
    assert shared_out(9, wishes) == [5, 1, 3, 0]
    assert shared_out(3, wishes) == [0, 2, 0, 0], "what does not fit gives its lines to the next"


def test_times_are_said_in_the_unit_that_fits() -> None:
    assert [exact(3.21), exact(42), duration(59), duration(90), duration(7500)] == [
        "3.2 s",
        "42 s",
        "59 s",
        "2 min",
        "2 h 5 min",
    ]
    assert (about(0.5), about(300)) == ("a moment", "about 5 min")
    assert (for_so_long(0.4), for_so_long(12)) == ("", ", 12 s")


def test_what_others_wrote_is_made_to_fit_and_can_do_nothing() -> None:
    screen = Screen(20, 5)
    assert screen.clean("evil\x1b[2Jname") == "evil\\x1b[2Jname"
    assert Screen(20, 5, ASCII).clean("Zürich") == "Z?rich"
    assert screen.cut("a long sentence", 6) == "a lon…"
    assert screen.cell("数据", 3) == "数…", "a wide character is not cut in two"
    lines = screen.wrapped("words go whole into the next lines", "", most=2)
    assert [line.plain for line in lines] == [" words go whole", " into the next lin…"]
    assert [line.plain for line in screen.wrapped("x" * 30, "", most=3)] == [" " + "x" * 18, " " + "x" * 12]
