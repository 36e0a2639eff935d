"""The picture of a run's accuracies."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedplcc.shared.scoring.scores import ACCURACY, score_of

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


def accuracy_curves(lines: Sequence[Mapping[str, Any]], *, title: str) -> bytes:
    """Draw `accuracy_figure` as a PNG file.

    Raises:
        ImportError: matplotlib is not installed.
    """
    return png(accuracy_figure(lines, title=title))


def accuracy_figure(lines: Sequence[Mapping[str, Any]], *, title: str) -> Figure:
    """Draw the score of each domain and their mean over the rounds, and the mean of clients' own models beside it.

    Args:
        lines: Lines of metrics.jsonl, in order. A domain without a report in a round leaves a gap; curves lead over rounds
            that were not evaluated.

    Raises:
        ImportError: matplotlib is not installed.
    """
    # Neither pyplot nor its windows: a figure of its own works in any thread and without a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    lines = [line for line in lines if line["accuracy"] is not None]
    domains, rounds = domains_of(lines), [line["round"] for line in lines]
    score = score_of(lines[-1]) if lines else ACCURACY
    labels = {domain: f"{domain}  {_last(lines, domain, score)}" for domain in (*domains, "mean")}
    is_local = any(line.get("accuracy_of") for line in lines)
    if not is_local and any(line.get("accuracy_local") for line in lines):
        kind = "" if score == ACCURACY else ", not balanced"
        labels[LOCAL_MEAN] = f"{LOCAL_MEAN}{kind}  {_last(lines, 'mean', 'accuracy_local')}"
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
            _percent(lines, domain, score),
            color=f"C{number % COLOURS}",
            linestyle=STROKES[number // COLOURS % len(STROKES)],
            linewidth=1.6,
            marker=marker,
            markersize=3,
            label=labels[domain],
        )
    axes.plot(
        rounds, _percent(lines, "mean", score), color="black", linestyle="--", linewidth=2.0, label=labels["mean"]
    )
    if LOCAL_MEAN in labels:
        values = _percent(lines, "mean", "accuracy_local")
        axes.plot(rounds, values, color="black", linestyle=":", linewidth=2.0, label=labels[LOCAL_MEAN])
    axes.set_title(title)
    axes.set_xlabel("Round")
    name = "Accuracy" if score == ACCURACY else "Balanced accuracy"
    axes.set_ylabel(f"{name} of the clients' own models (%)" if is_local else f"{name} on the domain's test set (%)")
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
    return figure


def domains_of(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """All domains in these lines, sorted."""
    return sorted({domain for line in lines for domain in line["accuracy"] or ()} - set(SUMMARIES))


def png(figure: Figure) -> bytes:
    """The figure as a PNG file; equal figures give equal bytes."""
    picture = io.BytesIO()
    # Without the name and version of matplotlib, which would change the bytes.
    figure.savefig(picture, format="png", metadata={"Software": None})
    return picture.getvalue()


def _percent(lines: Sequence[Mapping[str, Any]], domain: str, which: str) -> list[float]:
    values = [(line.get(which) or {}).get(domain) for line in lines]
    return [float("nan") if value is None else 100.0 * value for value in values]


def _last(lines: Sequence[Mapping[str, Any]], domain: str, which: str) -> str:
    value = (lines[-1].get(which) or {}).get(domain) if lines else None
    return "no report" if value is None else f"{100 * value:.1f} %"
