"""The files that `fedplcc compare` writes beside its cells.

    report.md, report.html   the report; curves-*.svg and map-*.svg are its drawings
    evaluations.csv          every evaluation: cell, round, domain, model, correct, total, accuracy
    classes.csv              correct and total predictions of each class, of a cell's last evaluated round; with
                             evaluation.confusion also its precision, specificity and F1
    rounds.csv               every other computed value of a round, by name: losses, prototypes, samples
    summary.csv              mean and standard deviation over seeds, by view and column
    differences.csv          differences from each baseline over the seeds that both rows have, and how many are above 0
    uncertainty.csv          intervals of accuracies and differences, and tests of the differences
    trials.csv               trials of a sweep that chooses: settings and accuracy on validation images
    cells.csv                every cell: its settings, state and hashes
    measured.csv             seconds and bytes of a round, by name
    failures.json            reasons of cells that could not be trained the last time, by their names

CSV files have one value, or one evaluation, in a line; accuracies are fractions. All but measured.csv hold computed values
only, so equal cells give equal bytes. Where balanced accuracy is a run's score, the values of a model in summary.csv,
differences.csv and uncertainty.csv are that, and its accuracies stand there as MODEL/accuracy. Where domains
are left out, files of single cells have DATASET.without-DOMAIN as their data set, and the others what the report has: each
domain's values from the cell without it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplcc.comparison.file import assignments
from fedplcc.comparison.groups import choosing
from fedplcc.comparison.outcomes import SUMMARIES, VIEWS, gains, over_seeds, spread
from fedplcc.comparison.reading import Absence, CellResult, Findings, MissingCell
from fedplcc.comparison.report.accuracy_maps import class_lines
from fedplcc.comparison.report.candidates import candidates
from fedplcc.comparison.report.document import Drawing, markdown, page
from fedplcc.comparison.report.drawings import drawing_patterns
from fedplcc.comparison.report.parts import NO_ADDITIONS, Additions, report
from fedplcc.comparison.report.uncertainty import UNCERTAINTY_COLUMNS, uncertainty_lines
from fedplcc.comparison.round_values import (
    ATTACKED_MODELS,
    BALANCED_MODELS,
    DETAILED_MODELS,
    PLAIN_MODELS,
    STREAM_MODELS,
    VALIDATED_MODELS,
)
from fedplcc.comparison.sweep.tables import TRIAL_COLUMNS, trial_lines
from fedplcc.runs.atomic_file import disk_errors, write_text
from fedplcc.shared.process.disk import read_regular
from fedplcc.shared.scoring.intervals import DIGITS
from fedplcc.shared.types import ALONE_MODEL, GLOBAL_MODEL, LOCAL_MODEL, POOLED_MODEL
from fedplcc.terminal.printable import table_cell

Value = str | int | float | None
CELL = ("dataset", "row", "method", "seed")
REPORT_MARKDOWN, REPORT_PAGE = "report.md", "report.html"
FAILURES = "failures.json"
SUMMARISED = (
    *(GLOBAL_MODEL, LOCAL_MODEL, ALONE_MODEL, POOLED_MODEL, *PLAIN_MODELS, *DETAILED_MODELS),
    *(*ATTACKED_MODELS, *VALIDATED_MODELS, *STREAM_MODELS),
)
"""Names of the models in summary.csv, in order."""


def write_findings(out: Path, findings: Findings, additions: Additions = NO_ADDITIONS) -> list[str]:
    """Write the report and its tables; returns the names of the files.

    Raises:
        StoreUnavailable: The folder cannot be written.
    """
    parts = report(findings, additions)
    drawings = {part.name: part.svg for part in parts if isinstance(part, Drawing)}
    files = {
        **csv_tables(findings),
        **drawings,
        REPORT_MARKDOWN: markdown(parts),
        REPORT_PAGE: page(parts),
    }
    for name, text in files.items():
        write_text(out / name, text)
    comparison = findings.comparison
    hidden = [
        name
        for group in choosing(comparison.groups, comparison.groups)
        for name in drawing_patterns(comparison.datasets, group)
    ]
    _remove_others(out, drawing_patterns(comparison.datasets), drawings, hidden)
    return list(files)


def _remove_others(out: Path, patterns: Iterable[str], drawings: Mapping[str, str], hidden: Iterable[str]) -> None:
    """Remove the drawings of former groups, and those of groups that choose now."""
    kinds = {name.partition("-")[0] for name in drawings}
    for pattern in patterns:
        # Without matplotlib there are no curves, and earlier ones stay.
        for path in out.glob(pattern) if pattern.partition("-")[0] in kinds else ():
            if path.name not in drawings:
                _remove(path)
    for name in hidden:
        _remove(out / name)


def _remove(path: Path) -> None:
    with disk_errors(path):
        path.unlink(missing_ok=True)


def read_failures(out: Path) -> dict[str, str]:
    """Return the reasons of cells that could not be trained the last time; none from a damaged file."""
    try:
        kept = json.loads(read_regular(out / FAILURES))
    except (OSError, ValueError):
        return {}
    return {str(name): str(reason) for name, reason in kept.items()} if isinstance(kept, dict) else {}


def write_failures(out: Path, failures: Mapping[str, str]) -> None:
    """Write the reasons of cells that could not be trained.

    Raises:
        StoreUnavailable: The folder cannot be written.
    """
    write_text(out / FAILURES, json.dumps(failures, sort_keys=True, indent=2) + "\n")


def summary(out: Path, findings: Findings) -> dict[str, Any]:
    """Return the last line of `compare --json`."""
    comparison = findings.comparison
    results: dict[str, Any] = {}
    ranked = _ranked(findings)
    for dataset in comparison.datasets:
        for row in comparison.rows_of(dataset):
            cells = findings.cells(dataset, row)
            if comparison.chooses_among(row):
                results.setdefault(dataset, {})[row] = ranked.get((dataset, row), {"seeds": [], "validation": {}})
                continue
            views = {view: over_seeds(cells, view) for view in VIEWS}
            views = {view: found for view, found in views.items() if found or view != "validated"}
            row_summary: dict[str, Any] = {"seeds": [cell.cell.seed for cell in cells]}
            for view, found in views.items():
                row_summary[view] = {
                    column: {"mean": found[column].mean, "std": found[column].std}
                    for column in SUMMARIES
                    if column in found
                }
            results.setdefault(dataset, {})[row] = row_summary
    return {
        "name": comparison.compare.name,
        "directory": str(out.resolve()),
        "cells": {"whole": len(findings.whole), "missing": len(findings.missing)},
        "missing": {each.cell.name: each.reason for each in findings.missing},
        "failed": [each.cell.name for each in findings.missing if each.absence is Absence.FAILED],
        "results": results,
        **({"chosen": _chosen(findings)} if findings.choices else {}),
    }


def _ranked(findings: Findings) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what the summary says of rows that a group chooses among, by data set and row."""
    comparison, found = findings.comparison, dict[tuple[str, str], dict[str, Any]]()
    for dataset in comparison.datasets:
        for group in choosing(comparison.groups_of(dataset), comparison.groups):
            for each in candidates(findings, dataset, group):
                score = spread([*each.scores.values()])
                measured = {} if score is None else {"rank": each.rank, "mean": score.mean, "std": score.std}
                found[dataset, each.row] = {"seeds": sorted(each.scores), "validation": measured}
    return found


def _chosen(findings: Findings) -> dict[str, Any]:
    """Return the chosen values by data set and row, by dotted key."""
    found: dict[str, Any] = {}
    for (dataset, row), choice in findings.choices.items():
        found.setdefault(dataset, {})[row] = dict(choice.chosen.point)
    return found


def csv_tables(findings: Findings) -> dict[str, str]:
    """Return the content of each CSV file by its name."""
    return {
        "evaluations.csv": _csv(
            (*CELL, "round", "domain", "model", "correct", "total", "accuracy"), _evaluations(findings.whole)
        ),
        "classes.csv": _csv(
            (*CELL, "round", "domain", "model", "class", "correct", "total", "precision", "specificity", "f1"),
            class_lines(findings),
        ),
        "rounds.csv": _csv((*CELL, "round", "quantity", "value"), _named(findings.whole, "computed")),
        "summary.csv": _csv(
            ("dataset", "row", "method", "view", "model", "column", "mean", "std", "seeds"),
            _summary(findings),
        ),
        "differences.csv": _csv(
            ("dataset", "row", "method", "baseline", "view", "column", "mean", "std", "seeds", "higher"),
            _differences(findings),
        ),
        "uncertainty.csv": _csv(UNCERTAINTY_COLUMNS, uncertainty_lines(findings)),
        **({"trials.csv": _csv(TRIAL_COLUMNS, trial_lines(findings))} if findings.choices else {}),
        "cells.csv": _csv(
            (*CELL, "settings", "state", "reason", "rounds", "config_hash", "model_sha256", "prototypes_sha256"),
            _cells(findings),
        ),
        "measured.csv": _csv((*CELL, "round", "quantity", "value"), _named(findings.whole, "measured")),
    }


def _evaluations(results: Iterable[CellResult]) -> Iterator[tuple[Value, ...]]:
    for result in results:
        for current in result.rounds:
            for model, by_domain in current.accuracy.items():
                if model in BALANCED_MODELS:
                    continue  # follows from the predictions of each class
                for domain, accuracy in by_domain.items():
                    correct, total = current.counts.get((domain, model), (None, None))
                    yield (*_key(result), current.number, domain, model, correct, total, accuracy)


def _named(results: Iterable[CellResult], which: str) -> Iterator[tuple[Value, ...]]:
    for result in results:
        for current in result.rounds:
            values: Mapping[str, float] = getattr(current, which)
            for name, value in values.items():
                yield (*_key(result), current.number, name, value)


def _summary(findings: Findings) -> Iterator[tuple[Value, ...]]:
    comparison = findings.comparison
    for dataset in comparison.datasets:
        for row in comparison.rows_of(dataset):
            cells = findings.cells(dataset, row)
            for view in VIEWS:
                for model in SUMMARISED:
                    for column, found in over_seeds(cells, view, model).items():
                        method = comparison.rows[row].method
                        yield dataset, row, method, view, model, column, found.mean, found.std, found.count


def _differences(findings: Findings) -> Iterator[tuple[Value, ...]]:
    comparison = findings.comparison
    for dataset in comparison.datasets:
        for baseline in comparison.compare.baseline:
            theirs = findings.cells(dataset, baseline)
            for row in comparison.rows_of(dataset) if theirs else ():
                ours, method = findings.cells(dataset, row), comparison.rows[row].method
                for view in VIEWS if row != baseline else ():
                    for column in over_seeds(ours, view):
                        by_seed = gains(ours, theirs, view, column)
                        found, higher = (
                            spread([*by_seed.values()]),
                            sum(round(value, DIGITS) > 0 for value in by_seed.values()),
                        )
                        if found is not None:
                            numbers = (found.mean, found.std, found.count, higher)
                            yield (dataset, row, method, baseline, view, column, *numbers)


def _cells(findings: Findings) -> Iterator[tuple[Value, ...]]:
    cells: list[CellResult | MissingCell] = [*findings.whole, *findings.missing]
    for each in cells:
        settings = " ".join(assignments(findings.comparison.settings_of(each.cell.dataset, each.cell.row)))
        key = (*_key(each), settings)
        config_hash = each.cell.federation.config.hash
        if isinstance(each, MissingCell):
            state = "failed" if each.absence is Absence.FAILED else "missing"
            yield (*key, state, each.reason, 0, config_hash, None, None)
        else:
            yield (
                *(*key, "whole", "", len(each.rounds), config_hash),
                *(each.hashes["model"], each.hashes["prototypes"]),
            )


def _key(each: CellResult | MissingCell) -> tuple[Value, ...]:
    cell = each.cell
    return cell.place, cell.row, cell.federation.config.run.method, cell.seed


def _csv(names: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    """Return rows as CSV (RFC 4180, but with plain line ends); numbers as Python writes them, None as an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(map(table_cell, row) for row in rows)
    return text.getvalue()
