"""What the keys of a configuration mean: the text under each field of a record, as its author wrote it.

Read from the source when somebody asks. Pydantic's `use_attribute_docstrings` would read it whenever a process starts, which
costs every trainer and every worker of a simulation time for words that only people read.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Mapping

from pydantic import BaseModel


@functools.cache
def meanings(kind: type[BaseModel]) -> Mapping[str, str]:
    """What the text under each field of a record says, on one line."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not issubclass(base, BaseModel) or base is BaseModel:
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
                found[field.target.id] = " ".join(str(text.value.value).split())  # type: ignore[attr-defined]
    # What the class keeps for itself has a text too, and is no key.
    return {name: meaning for name, meaning in found.items() if name in kind.model_fields}
