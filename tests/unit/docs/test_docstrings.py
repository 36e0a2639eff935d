"""Docstrings keep their signs in the reference."""

from __future__ import annotations

from docs.site.docstrings import as_drawn, escaped


def test_signs_outside_of_backticks_are_escaped() -> None:
    assert escaped("the norm |w - w^t|^2 of *args and x_") == r"the norm \|w - w^t\|^2 of \*args and x\_"
    assert escaped("a shape `[N, *]` and `|x|`") == "a shape `[N, *]` and `|x|`"


def test_an_indented_paragraph_of_a_module_stays_as_it_is() -> None:
    assert as_drawn("A tree.\n\n    Error\n    |-- Other\n\nIts *end*.") == (
        "A tree.\n\n::\n\n    Error\n    |-- Other\n\nIts \\*end\\*."
    )
