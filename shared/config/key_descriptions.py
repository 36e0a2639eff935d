"""Descriptions of configuration keys: the docstring under each field of a record.

They are read from the source when asked for. Pydantic's `use_attribute_docstrings` would read them at every start, which
costs each trainer and each worker of a simulation time.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Mapping

from pydantic import BaseModel

from fedplcc.shared.process.parser_lock import PARSER_LOCK


@functools.cache
def key_descriptions(kind: type[BaseModel]) -> Mapping[str, str]:
    """Return the docstring under each field of a record, on one line."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not issubclass(base, BaseModel) or base is BaseModel:
            continue
        with PARSER_LOCK:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
                found[field.target.id] = " ".join(str(text.value.value).split())  # type: ignore[attr-defined]
    # Class variables have docstrings too, and are no keys.
    return {name: meaning for name, meaning in found.items() if name in kind.model_fields}
