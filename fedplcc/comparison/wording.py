"""How the report writes numbers. Pure."""

from __future__ import annotations

from fedplcc.comparison.document import Value
from fedplcc.comparison.outcomes import Spread

NOTHING = "-"
"""Stands where there is no value."""


def accuracy_told(found: Spread | None, best: float | None) -> Value:
    """An accuracy in percent with its deviation, marked if it is the best of its column; a dash if there is none."""
    if found is None:
        return Value(NOTHING)
    text = f"{100 * found.mean:.1f}" + ("" if found.std is None else f" ± {100 * found.std:.1f}")
    return Value(text, is_best=best is not None and found.mean == best)


def gain_told(found: Spread | None) -> str:
    """A difference of accuracies in points, with its sign and deviation."""
    if found is None:
        return NOTHING
    return points_told(100 * found.mean) + ("" if found.std is None else f" ± {100 * found.std:.1f}")


def points_told(points: float) -> str:
    """Points with their sign."""
    return f"{round(points, 1) + 0.0:+.1f}"  # the sum makes -0.0 plain


def measure_told(found: Spread | None, digits: int) -> str:
    """Something measured, with its deviation."""
    if found is None:
        return NOTHING
    return f"{found.mean:.{digits}f}" + ("" if found.std is None else f" ± {found.std:.{digits}f}")


def counted(number: int, what: str) -> str:
    """A number of things."""
    return f"{number} {what}" + ("" if number == 1 else "s")
