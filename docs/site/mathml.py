"""Equations as MathML, which browsers draw themselves: the site needs no script and no font for its mathematics.

docutils has the translator from LaTeX; Sphinx has no renderer that uses it.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

log = logging.getLogger(__name__)


def visit_math(writer: HTML5Translator, node: nodes.math) -> None:
    """Write an equation within a sentence."""
    writer.body.append(_markup(node, as_block=False))
    raise nodes.SkipNode


def visit_math_block(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write an equation on lines of its own; it scrolls where the page is narrower."""
    writer.body.append(f'<div class="math">{_markup(node, as_block=True)}</div>')
    raise nodes.SkipNode


def _markup(node: nodes.Element, *, as_block: bool) -> str:
    try:
        return str(tex2mathml(node.astext(), as_block=as_block))
    except MathError as error:
        log.warning("not LaTeX that can be drawn: %s: %s", node.astext(), error, location=node)
        return ""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
