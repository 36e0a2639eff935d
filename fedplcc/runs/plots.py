"""Pictures of a run and of a model's mistakes; what it has learnt is drawn by the package pictures."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shared.types import IntArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARIES = ("mean", "worst")
"""Entries of `accuracy` that are no domain."""
LOCAL_MEAN = "mean of local models"
"""In a legend: of the clients' own models, each on its client's test set."""
FEW_ROUNDS = 40
"""Up to this many rounds each one gets a mark."""
COLOURS = 10
"""Of matplotlib's cycle; further domains take them again with another stroke."""
STROKES = ("-", "-.", ":")
LEGEND_ROWS = 40
"""Most domains in one column of the legend."""
MOST_WRITTEN_CLASSES = 30
"""Up to this many classes a confusion matrix has its numbers in the cells."""
MAX_CONFUSION_INCHES = 13.0
"""Longest side of a confusion matrix; with more classes the cells become smaller."""
POINTS_PER_INCH = 72
TITLE_INCHES_PER_CHARACTER = 0.12
MAX_LABEL_CHARACTERS = 24
"""Longest class name at a confusion matrix; a longer one is cut."""


def accuracy_curves(lines: Sequence[Mapping[str, Any]], *, title: str) -> bytes:
    """Draw the accuracy of each domain and their mean over the rounds, and the mean of clients' own models beside it.

    Args:
        lines: Lines of metrics.jsonl, in order. A domain without a report in a round leaves a gap.
        title: What the picture shows.

    Returns:
        A PNG file.

    Raises:
        ImportError: matplotlib is not installed.
    """
    # Neither pyplot nor its windows: a figure of its own works in any thread and without a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    domains, rounds = domains_of(lines), [line["round"] for line in lines]
    labels = {domain: f"{domain}  {_last(lines, domain)}" for domain in (*domains, "mean")}
    is_local = any(line.get("accuracy_of") for line in lines)
    if not is_local and any(line.get("accuracy_local") for line in lines):
        labels[LOCAL_MEAN] = f"{LOCAL_MEAN}  {_last(lines, 'mean', 'accuracy_local')}"
    columns = -(-len(labels) // LEGEND_ROWS)
    # The legend stands beside the curves, so that it hides none of them; the figure grows with it.
    legend_width = columns * (0.8 + 0.085 * max(map(len, labels.values())))
    figure = Figure(figsize=(6.0 + legend_width, max(4.8, 0.25 * len(labels) / columns)), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    marker = "o" if len(rounds) <= FEW_ROUNDS else None
    for number, domain in enumerate(domains):
        axes.plot(
            rounds,
            _percent(lines, domain),
            color=f"C{number % COLOURS}",
            linestyle=STROKES[number // COLOURS % len(STROKES)],
            linewidth=1.6,
            marker=marker,
            markersize=3,
            label=labels[domain],
        )
    axes.plot(rounds, _percent(lines, "mean"), color="black", linestyle="--", linewidth=2.0, label=labels["mean"])
    if LOCAL_MEAN in labels:
        values = _percent(lines, "mean", "accuracy_local")
        axes.plot(rounds, values, color="black", linestyle=":", linewidth=2.0, label=labels[LOCAL_MEAN])
    axes.set_title(title)
    axes.set_xlabel("Round")
    axes.set_ylabel("Accuracy of the clients' own models (%)" if is_local else "Accuracy on the domain's test set (%)")
    axes.set_ylim(0, 100)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(visible=True, alpha=0.3)
    axes.legend(
        title="Domain and its last accuracy",
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        ncols=columns,
        frameon=False,
    )
    return _png(figure)


def confusion_matrix(confusion_MM: IntArray, classes: Sequence[str], *, title: str) -> bytes:
    """Draw what is taken for what: a row per true class, a column per predicted one.

    Colour is the share of the row, so that a rare class is seen as well as a common one. Few classes have their numbers of
    images written into the cells.

    Args:
        confusion_MM: Number of images of class i that were given class j.
        classes: Names of the M classes.
        title: What the picture shows, in one line or more; of a line that is too long the end is shown.

    Returns:
        A PNG file.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    num_classes = len(classes)
    share_MM = confusion_MM / np.maximum(confusion_MM.sum(axis=1, keepdims=True), 1)
    labels = [_shortened(name) for name in classes]
    longest = max(map(len, labels))
    size = min(max(0.45 * num_classes, 4.5), MAX_CONFUSION_INCHES)
    cell = size / num_classes
    font = max(2.0, min(9.0, POINTS_PER_INCH * 0.8 * cell))
    label_width = 0.65 * font / POINTS_PER_INCH * longest
    are_level = label_width < cell
    figure = Figure(
        figsize=(size + label_width + 1.4, size + (0.0 if are_level else label_width) + 1.0),
        dpi=150,
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    # The square root of the share: a mistake in twenty is to be seen beside hits.
    image = axes.imshow(share_MM, cmap="Blues", norm=PowerNorm(0.5, vmin=0.0, vmax=1.0), interpolation="nearest")
    positions = range(num_classes)
    axes.set_xticks(positions, labels, fontsize=font, rotation=0 if are_level else 90)
    axes.set_yticks(positions, labels, fontsize=font)
    axes.tick_params(length=0)
    axes.set_xlabel("Predicted class")
    axes.set_ylabel("True class")
    width = int(figure.get_figwidth() / TITLE_INCHES_PER_CHARACTER)
    axes.set_title("\n".join(_ending(line, width) for line in title.splitlines()))
    if num_classes <= MOST_WRITTEN_CLASSES:
        digits = len(str(confusion_MM.max()))
        number_font = min(font, POINTS_PER_INCH * cell / (0.75 * digits))
        for row, column in zip(*confusion_MM.nonzero(), strict=True):
            colour = "white" if share_MM[row, column] > 0.3 else "black"
            number = str(confusion_MM[row, column])
            axes.text(column, row, number, ha="center", va="center", color=colour, fontsize=number_font)
    figure.colorbar(image, ax=axes, label="Share of the true class", shrink=0.8, ticks=[0, 0.05, 0.2, 0.4, 0.6, 0.8, 1])
    return _png(figure)


def domains_of(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every domain that any line names, sorted."""
    return sorted({domain for line in lines for domain in line["accuracy"]} - set(SUMMARIES))


def _png(figure: Figure) -> bytes:
    picture = io.BytesIO()
    # Without the drawing program's name, so that the same content has the same bytes.
    figure.savefig(picture, format="png", metadata={"Software": None})
    return picture.getvalue()


def _shortened(name: str) -> str:
    return name if len(name) <= MAX_LABEL_CHARACTERS else name[: MAX_LABEL_CHARACTERS - 1] + "…"


def _ending(line: str, width: int) -> str:
    return line if len(line) <= width else "…" + line[-(width - 1) :]


def _percent(lines: Sequence[Mapping[str, Any]], domain: str, which: str = "accuracy") -> list[float]:
    values = [line.get(which, {}).get(domain) for line in lines]
    return [float("nan") if value is None else 100.0 * value for value in values]


def _last(lines: Sequence[Mapping[str, Any]], domain: str, which: str = "accuracy") -> str:
    value = lines[-1].get(which, {}).get(domain) if lines else None
    return "no report" if value is None else f"{100 * value:.1f} %"
