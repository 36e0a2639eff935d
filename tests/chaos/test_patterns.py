"""No regular expression of the source takes time that grows faster than its text; and the search finds one that does."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.chaos import patterns
from tests.chaos.patterns import Unlisted, Used, growth_of, used

MASKED_ONCE = r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)|(?<=://)[^/@\s]+:[^/@\s]*(?=@)"
"""A pattern of the log's that let one call stop a process for minutes."""


@pytest.mark.slow
def test_no_pattern_of_the_source_takes_longer_than_its_text_is_long(covered: Callable[[str], None]) -> None:
    every = used()
    covered(f"{len(every)} uses of patterns")
    assert len({each.where for each in every}) > 60
    assert [found for each in every if (found := growth_of(each))] == []


@pytest.mark.parametrize(
    ("text", "use"),
    [
        (MASKED_ONCE, "sub"),
        (r"(a+)+b", "fullmatch"),
        (r" *\n+", "split"),
        (r"[0-9]+x", "search"),
        (r"(\w+\s?)*!", "match"),
    ],
)
def test_a_pattern_whose_time_grows_faster_is_found(text: str, use: str) -> None:
    assert growth_of(Used("planted", re.compile(text, re.DOTALL), use))


def test_a_pattern_that_cannot_be_looked_at_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "PUT_TOGETHER", {})
    monkeypatch.setattr(patterns, "PACKAGES", ("fedplcc/comparison/sweep",))
    with pytest.raises(Unlisted, match="pattern"):
        used()
