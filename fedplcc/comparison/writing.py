"""The files that a comparison leaves beside its cells.

report.md, report.html      the report; curves-*.svg are its drawings
evaluations.csv, ...        see csv_tables.py
failures.json               why cells could not be trained the last time, by their names
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplcc.comparison import csv_tables
from fedplcc.comparison.document import Drawing
from fedplcc.comparison.drawings import drawing_patterns
from fedplcc.comparison.findings import Findings
from fedplcc.comparison.markdown import markdown
from fedplcc.comparison.outcomes import SUMMARIES, VIEWS, over_seeds
from fedplcc.comparison.page import page
from fedplcc.comparison.plan import Cell
from fedplcc.comparison.reading import Absence, CellResult, MissingCell, read_cell
from fedplcc.comparison.report import report
from fedplcc.runs.atomic_file import disk_errors, write_text

REPORT_MARKDOWN, REPORT_PAGE = "report.md", "report.html"
FAILURES = "failures.json"


def read_cells(cells: Sequence[Cell], failures: Mapping[str, str]) -> tuple[list[CellResult], list[MissingCell]]:
    """Cells that are whole, and those that are not."""
    read = [read_cell(cell, failures.get(cell.name)) for cell in cells]
    return (
        [each for each in read if isinstance(each, CellResult)],
        [each for each in read if isinstance(each, MissingCell)],
    )


def write_findings(out: Path, findings: Findings) -> list[str]:
    """Write everything that is told of a comparison; returns the names of the files.

    Raises:
        StoreUnavailable: The folder cannot be written.
    """
    parts = report(findings)
    drawings = {part.name: part.svg for part in parts if isinstance(part, Drawing)}
    files = {
        **csv_tables.tables(findings.comparison, findings.results, findings.missing),
        **drawings,
        REPORT_MARKDOWN: markdown(parts),
        REPORT_PAGE: page(parts),
    }
    for name, text in files.items():
        write_text(out / name, text)
    if drawings:  # without matplotlib there are none, and earlier ones stay
        _remove_others(out, drawing_patterns(findings.comparison.datasets), drawings)
    return list(files)


def _remove_others(out: Path, patterns: Iterable[str], drawings: Mapping[str, str]) -> None:
    """Remove drawings of groups that the comparison no longer has, or has under another name.

    Raises:
        StoreUnavailable: The folder cannot be written.
    """
    for pattern in patterns:
        for path in out.glob(pattern):
            if path.name not in drawings:
                with disk_errors(path):
                    path.unlink(missing_ok=True)


def read_failures(out: Path) -> dict[str, str]:
    """Why cells could not be trained the last time; nothing where that is not known."""
    try:
        kept = json.loads((out / FAILURES).read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(name): str(reason) for name, reason in kept.items()} if isinstance(kept, dict) else {}


def write_failures(out: Path, failures: Mapping[str, str]) -> None:
    """Keep them.

    Raises:
        StoreUnavailable: The folder cannot be written.
    """
    write_text(out / FAILURES, json.dumps(failures, sort_keys=True, indent=2) + "\n")


def summary(out: Path, findings: Findings) -> dict[str, Any]:
    """What `compare --json` ends with."""
    comparison = findings.comparison
    results: dict[str, Any] = {}
    for dataset in comparison.datasets:
        for row in comparison.rows_of(dataset):
            cells = findings.cells(dataset, row)
            views = {view: over_seeds(cells, view) for view in VIEWS}
            told: dict[str, Any] = {"seeds": [cell.cell.seed for cell in cells]}
            for view, found in views.items():
                told[view] = {
                    column: {"mean": found[column].mean, "std": found[column].std}
                    for column in SUMMARIES
                    if column in found
                }
            results.setdefault(dataset, {})[row] = told
    return {
        "name": comparison.compare.name,
        "directory": str(out.resolve()),
        "cells": {"whole": len(findings.results), "missing": len(findings.missing)},
        "missing": {each.cell.name: each.reason for each in findings.missing},
        "failed": [each.cell.name for each in findings.missing if each.absence is Absence.FAILED],
        "results": results,
    }
