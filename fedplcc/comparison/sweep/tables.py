"""What a sweep has chosen, as tables of a report. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from fedplcc.comparison.file import assignments
from fedplcc.comparison.reading import Findings
from fedplcc.comparison.report.document import Bullets, Heading, Line, Paragraph, Part, Table, Value
from fedplcc.comparison.report.tables import NOTHING
from fedplcc.comparison.sweep.records import Choice

TRIAL_COLUMNS = ("dataset", "row", "trial", "settings", "accuracy", "is_chosen", "reason")
"""Columns of trials.csv."""


def choice_tables(findings: Findings, dataset: str) -> Iterator[Part]:
    """Yield the chosen values of each row on a data set with their accuracy on validation images, and rows without any."""
    comparison = findings.comparison
    choices = {row: choice for (name, row), choice in findings.choices.items() if name == dataset}
    unchosen = {row: why for (name, row), why in findings.unchosen.items() if name == dataset}
    if choices or unchosen:
        yield Heading(3, findings.heading(dataset, "Chosen on validation images"))
    by_criterion: dict[tuple[str, tuple[int, ...]], dict[str, Choice]] = {}
    for row, choice in choices.items():
        by_criterion.setdefault((choice.criterion, choice.seeds), {})[row] = choice
    for (criterion, seeds), rows in by_criterion.items():
        yield Table(
            caption=f"Chosen values, {comparison.label_of_dataset(dataset)}: {criterion}, "
            f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}",
            heads=("", "values", "on validation images", "next best", "trials"),
            lines=tuple(Line(comparison.label_of_row(row), _values(choice)) for row, choice in rows.items()),
            is_numeric=False,
        )
        yield Paragraph(
            "They were written to chosen.json before a cell with them was trained; no test image had a part in the choice. "
            "trials.csv has every trial."
        )
    if unchosen:
        yield Bullets(tuple(f"{comparison.label_of_row(row)}: {why}" for row, why in unchosen.items()))


def trial_lines(findings: Findings) -> Iterator[tuple[str | int | float | None, ...]]:
    """Yield the lines of trials.csv."""
    for (dataset, row), choice in findings.choices.items():
        for number, trial in enumerate(choice.trials):
            settings = " ".join(assignments(trial.point))
            is_chosen = int(trial.name == choice.chosen.name)
            yield dataset, row, number, settings, trial.accuracy, is_chosen, trial.reason


def _values(choice: Choice) -> tuple[Value, ...]:
    judged = sorted((trial.accuracy for trial in choice.trials if trial.accuracy is not None), reverse=True)
    others = f" ({len(choice.trials) - len(judged)} failed)" if len(judged) < len(choice.trials) else ""
    return (
        Value(" ".join(assignments(choice.chosen.point))),
        Value(f"{100 * judged[0]:.1f}"),
        Value(f"{100 * judged[1]:.1f}" if len(judged) > 1 else NOTHING),
        Value(f"{len(choice.trials)}{others}"),
    )
