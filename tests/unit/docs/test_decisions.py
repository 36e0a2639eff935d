"""Decisions: one file each, a page at most, and a list that has them all."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import ROOT

FOLDER = ROOT / "docs" / "decisions"
FILES = sorted(FOLDER.glob("[0-9]*.md"))
MAX_WORDS = 400
"""What a page holds."""


def title_of(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def test_a_decision_says_what_why_what_not_and_what_it_binds_on_a_page() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        parts = re.findall(r"^\*\*(\w+)\.\*\* ", text, re.MULTILINE)
        assert parts == ["Choice", "Why", "Rejected", "Binds"], path.name
        assert len(text.split()) <= MAX_WORDS, path.name


def test_the_list_has_each_decision_once_under_its_title() -> None:
    listed = re.findall(r"^\| (\d+) \| \[(.+)\]\((.+)\) \|$", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)
    shown = sorted((int(number), f"{number}. {title}", name) for number, title, name in listed)
    assert shown == [(int(path.name[:3]), title_of(path), path.name) for path in FILES]
