"""Numbers as text. Pure."""

from __future__ import annotations


def percent(value: float | None) -> str:
    """A fraction in percent."""
    return "-" if value is None else f"{100 * value:.1f}%"


def number(value: float | None) -> str:
    """A loss with three decimals."""
    return "-" if value is None else f"{value:.3f}"


def duration(seconds: float) -> str:
    """A duration in seconds, minutes or hours."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"


def for_so_long(seconds: float) -> str:
    """A suffix with the duration of a state; empty below a second."""
    return f", {duration(seconds)}" if seconds >= 1 else ""
