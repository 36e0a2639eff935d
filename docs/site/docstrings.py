"""Docstrings as the reference prints them: Google's sections around plain text with `code` in backticks.

Signs that reStructuredText would read as markup are escaped outside of backticks. The text under an attribute has no
sections, and a colon in it separates no type.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, cast

from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import GoogleDocstring

MARKUP = re.compile(r"[*|]|_(?!\w)")
"""Emphasis, substitutions, and references that end in an underscore."""
CODE = re.compile(r"(`+[^`]*`+)")
WITHOUT_SECTIONS = ("attribute", "data", "property")


def escaped(text: str) -> str:
    """Return a text in which nothing outside of backticks is markup."""
    parts = CODE.split(text)
    return "".join(part if index % 2 else MARKUP.sub(r"\\\g<0>", part) for index, part in enumerate(parts))


def as_drawn(text: str) -> str:
    """Return the text of a module, whose indented paragraphs are pictures and formulas, to be kept line by line."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(f"::\n\n{each}" if each.startswith("    ") else escaped(each) for each in paragraphs)


def rewrite(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Make a docstring reStructuredText, in place."""
    lines[:] = as_drawn("\n".join(lines)).split("\n") if what == "module" else escaped("\n".join(lines)).split("\n")
    if what not in WITHOUT_SECTIONS:
        lines[:] = GoogleDocstring(lines, cast(Any, Config()), app, cast(Any, what), name, obj, options).lines()


def shorten(app: Sphinx, what: str, name: str, obj: Any, *rest: Any) -> tuple[str, None] | None:
    """Leave the arguments of a record of settings out: each stands below with its default and its meaning."""
    return ("()", None) if inspect.isclass(obj) and issubclass(obj, BaseModel) else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", rewrite)
    app.connect("autodoc-process-signature", shorten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
