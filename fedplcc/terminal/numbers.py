"""Numbers as a person reads them. Pure."""

from __future__ import annotations


def percent(value: float | None) -> str:
    """A fraction in percent."""
    return "-" if value is None else f"{100 * value:.1f}%"


def points(change: float | None) -> str:
    """A difference of fractions in percentage points, with its sign; nothing where there is none."""
    return "" if change is None else f"{100 * change:+.1f}"


def number(value: float | None) -> str:
    """A loss."""
    return "-" if value is None else f"{value:.3f}"


def exact(seconds: float) -> str:
    """How long something took, with tenths of a second where they matter."""
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def duration(seconds: float) -> str:
    """How long something took, in the unit that fits."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"


def about(seconds: float) -> str:
    """How long something will take."""
    return "a moment" if seconds < 2 else f"about {duration(seconds)}"


def for_so_long(seconds: float) -> str:
    """How long something has lasted, to be put behind what it is; nothing below a second."""
    return f", {duration(seconds)}" if seconds >= 1 else ""
