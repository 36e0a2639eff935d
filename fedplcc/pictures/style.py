"""Style of all pictures of this package, and writing of a figure as a file with equal bytes every time."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplcc.shared.errors import InvalidConfig

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
"""Ten colours that people with any colour vision can distinguish: Petroff, "Accessible Color Sequences for Data
Visualization", 2021, https://arxiv.org/abs/2107.02270."""
OTHER_COLOUR = "#dfe2e6"
"""Colour of classes beyond the ten."""
INK, FAINT = "#1c1f24", "#6b7280"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
"""Markers of domains."""
SUFFIXES = (".png", ".svg", ".pdf")
"""Kinds of pictures, by file suffix."""
MAX_NAME_CHARACTERS = 22
"""Longest name in a legend; longer ones are cut."""
DPI = 200

_RC: Any = {
    "svg.hashsalt": "fedplcc",  # otherwise ids in the file are random
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
    """Refuse a file name without a suffix of a picture.

    Raises:
        InvalidConfig: It ends in none of `SUFFIXES`.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidConfig(
            f"{path} does not say which kind of picture it is; end its name with {' or '.join(SUFFIXES)}"
        )


@contextmanager
def house_style() -> Iterator[None]:
    """Within the block, use the common style in place of matplotlib's configuration.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box stands for it
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        yield


def picture_bytes(figure: Figure, suffix: str, *, title: str) -> bytes:
    """Return the figure's file, with its title but without date and program name.

    Args:
        figure: A figure drawn in `house_style`; call this within the same block.
    """
    metadata: dict[str, dict[str, str | None]] = {
        ".png": {"Software": None, "Title": title},
        ".svg": {"Date": None, "Creator": None, "Title": title},
        ".pdf": {"CreationDate": None, "Creator": None, "Producer": None, "Title": title},
    }
    kind = suffix.lower()
    picture = io.BytesIO()
    figure.savefig(picture, format=kind.removeprefix("."), dpi=DPI, metadata=metadata[kind])
    return picture.getvalue()


def shortened(name: str, most: int = MAX_NAME_CHARACTERS) -> str:
    """Return the name, cut to at most so many characters."""
    return name if len(name) <= most else name[: most - 1] + "…"
