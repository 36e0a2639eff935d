"""The reliability diagram: how often a model is right where it is so and so sure (Guo et al., ICML 2017, fig. 4)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedplcc.runs.plots import COLOURS, STROKES, png
from fedplcc.shared.scoring.histograms import RELIABILITY_BINS, calibration_error
from fedplcc.shared.types import TEST_SET, Reliability


def reliability_diagram(bins: Mapping[str, Sequence[Reliability]], *, title: str) -> bytes:
    """Draw accuracy by confidence, a line for each name; areas of the marks grow with the numbers of images.

    Returns:
        A PNG file.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 6.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot([0, 100], [0, 100], color="grey", linewidth=1.0, linestyle=":")
    for number, (name, each) in enumerate(bins.items()):
        error, most = calibration_error(each), max((one.num_examples for one in each), default=1)
        label = name if error is None else f"{name}  {100 * error:.1f} %"
        x, y = ([100 * getattr(one, side) for one in each] for side in ("confidence", "accuracy"))
        colour, stroke = f"C{number % COLOURS}", STROKES[number // COLOURS % len(STROKES)]
        axes.plot(x, y, color=colour, linestyle=stroke, linewidth=1.4, label=label)
        axes.scatter(x, y, color=colour, s=[8 + 72 * one.num_examples / most for one in each])
    axes.set_title(title)
    axes.set_xlabel("Largest probability, mean of a bin (%)")
    axes.set_ylabel("Images with the right class (%)")
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    axes.set_aspect("equal")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(title="Calibration error", loc="upper left", frameon=False)
    return png(figure)


def reported_bins(lines: Sequence[str], model: str) -> dict[str, list[Reliability]]:
    """Return the bins of each domain's test images in the last round of evaluations.jsonl; none where none are told."""
    reports: list[dict[str, Any]] = [json.loads(line) for line in lines]
    last = max((report["round"] for report in reports), default=0)
    found: dict[str, list[Reliability]] = {}
    for report in reports:
        for counts in report.get("counts", ()) if report["round"] == last else ():
            if (counts["set_name"], counts["model"]) == (TEST_SET, model) and counts.get("calibration"):
                bins = (Reliability(**each) for each in counts["calibration"]["reliability"])
                found.setdefault(report["domain"], []).extend(bins)
    return {domain: merged(bins) for domain, bins in sorted(found.items())}


def merged(bins: Sequence[Reliability]) -> list[Reliability]:
    """Return the bins of several clients, those of one bin of the diagram added, by confidence."""
    by_place: dict[int, list[Reliability]] = {}
    for each in bins:
        by_place.setdefault(int(each.confidence * RELIABILITY_BINS), []).append(each)
    return [_sum(by_place[place]) for place in sorted(by_place)]


def _sum(bins: Sequence[Reliability]) -> Reliability:
    number = sum(each.num_examples for each in bins)
    confidence, accuracy = (
        sum(getattr(each, side) * each.num_examples for each in bins) / number for side in ("confidence", "accuracy")
    )
    return Reliability(confidence=confidence, accuracy=accuracy, num_examples=number)
