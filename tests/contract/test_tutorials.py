"""The tutorial of the console names what the console shows."""

from __future__ import annotations

import re

import pytest

from tests.support import ROOT

TUTORIAL = (ROOT / "docs" / "tutorials" / "console.md").read_text()
SOURCES = "\n".join(
    path.read_text()
    for pattern in ("**/*.js", "*.html")
    for path in sorted((ROOT / "gateway" / "console" / "static").glob(pattern))
)
NAMES = sorted(set(re.findall(r"\*\*(.+?)\*\*", TUTORIAL)))


def test_it_names_something() -> None:
    assert len(NAMES) > 15


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_on_a_page(name: str) -> None:
    assert re.search(rf'[">`]{re.escape(name)}[<"`]', SOURCES), f"nothing in the console is called {name!r}"
