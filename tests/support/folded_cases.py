"""Cases of a parametrized test in one test: in a run of all tests most cost more in pytest than in what they try.

Folded are functions at the top of a file that take nothing but their cases, or an empty folder besides, and whose cases have
no marks of their own. Who names tests gets one test for each case.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest

PARAMETERS = type(pytest.param())


def folded(test: Any) -> Callable[..., None] | None:
    """Return a test that tries all cases of a parametrized one; None where each needs more than its values."""
    marks = list(getattr(test, "pytestmark", ()))
    axes = [each for each in reversed(marks) if each.name == "parametrize"]
    if not axes or len(axes) < len(marks) or any(set(each.kwargs) - {"ids"} for each in axes):
        return None
    values = [_cases(*each.args) for each in axes]
    cases = [dict(chain(*map(dict.items, parts))) for parts in product(*values)]
    needs = set(inspect.signature(test).parameters).difference(*cases[:1])
    if not cases or not needs <= {"tmp_path"}:
        return None

    def try_all(tmp_path: Path) -> None:
        skipped = []
        for number, case in enumerate(cases):
            try:
                if needs:
                    (folder := tmp_path / str(number)).mkdir()
                    case = {**case, "tmp_path": folder}
                found = test(**case)
                if inspect.iscoroutine(found):
                    asyncio.run(found)
            except pytest.skip.Exception as reason:
                skipped.append(reason)
            except BaseException as error:
                error.add_note(f"case {number}: {case}")
                raise
        if len(skipped) == len(cases):
            raise skipped[0]

    def try_values() -> None:
        try_all(Path())

    chosen = try_all if needs else try_values
    chosen.__name__, chosen.__doc__, chosen.__module__ = test.__name__, test.__doc__, test.__module__
    return chosen


def _cases(names: str | Sequence[str], values: Iterable[Any]) -> list[dict[str, Any]]:
    """The cases by name; none where one has marks, and of values that can be asked for only once."""
    if isinstance(values, Iterator) or any(isinstance(each, PARAMETERS) and each.marks for each in values):
        return []
    listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def of_case(value: Any) -> dict[str, Any]:
        given = value.values if isinstance(value, PARAMETERS) else (value,) if len(listed) == 1 else value
        return dict(zip(listed, given, strict=True))

    return [of_case(value) for value in values]
