"""Every search says what it covered, and has a planted member of its kind."""

from __future__ import annotations

import pytest

from tests.support import ROOT
from tests.support.searches import SEARCHES


@pytest.mark.parametrize("file", SEARCHES)
def test_a_search_says_what_it_covered_and_finds_a_planted_member(file: str) -> None:
    text = (ROOT / file).read_text()
    assert f"def {SEARCHES[file]}(" in text
    assert "covered(" in text
