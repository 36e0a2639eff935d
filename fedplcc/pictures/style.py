"""How every picture of this package looks, and how a figure becomes a file with the same bytes every time."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.errors import InvalidConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLASS_COLOURS = (
    "#3f90da",
    "#ffa90e",
    "#bd1f01",
    "#94a4a2",
    "#832db6",
    "#a96b59",
    "#e76300",
    "#b9ac70",
    "#717581",
    "#92dadd",
)
"""Ten colours that people with any colour vision tell apart: Petroff, "Accessible Color Sequences for Data Visualization",
2021, https://arxiv.org/abs/2107.02270."""
OTHER_COLOUR = "#dfe2e6"
"""Of classes beyond the ten."""
INK, FAINT = "#1c1f24", "#6b7280"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
"""Of domains."""
SUFFIXES = (".png", ".svg", ".pdf")
"""Kinds of picture, by the ending of the file's name."""
MAX_NAME_CHARACTERS = 22
"""Longest name in a legend; a longer one is cut."""
DPI = 200

_RC: Any = {
    "svg.hashsalt": "fedplcc",  # else ids in the file are drawn at random
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "text.parse_math": False,  # a class may be called "$5"
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "legend.fontsize": 8.5,
    "text.color": INK,
    "axes.edgecolor": "#9aa1ab",
    "axes.labelcolor": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
}


def check_suffix(path: Path) -> None:
    """Refuse a name of which we do not know what kind of picture it is.

    Raises:
        InvalidConfig: It ends in none of `SUFFIXES`.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidConfig(
            f"{path} does not say which kind of picture it is; end its name with {' or '.join(SUFFIXES)}"
        )


@contextmanager
def house_style() -> Iterator[None]:
    """Draw within the block as all pictures here are drawn, whatever matplotlib's own configuration says.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box stands for it
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        yield


def picture_bytes(figure: Figure, suffix: str, *, title: str, description: str) -> bytes:
    """Return the figure as a file that holds its title and its alt text, and neither a date nor a program's name.

    Args:
        figure: Drawn in `house_style`, in which this is called too.
        suffix: One of `SUFFIXES`.
        title: What it is.
        description: What it shows, for those who do not see it.
    """
    metadata: dict[str, dict[str, str | None]] = {
        ".png": {"Software": None, "Title": title, "Description": description},
        ".svg": {"Date": None, "Creator": None, "Title": title, "Description": description},
        ".pdf": {"CreationDate": None, "Creator": None, "Producer": None, "Title": title, "Subject": description},
    }
    kind = suffix.lower()
    picture = io.BytesIO()
    figure.savefig(picture, format=kind.removeprefix("."), dpi=DPI, metadata=metadata[kind])
    return picture.getvalue()


def shortened(name: str, most: int = MAX_NAME_CHARACTERS) -> str:
    """The name in so many characters as there is room for."""
    return name if len(name) <= most else name[: most - 1] + "…"
