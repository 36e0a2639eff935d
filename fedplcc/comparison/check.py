"""Checks of a comparison's file without training: all of its problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedplcc.comparison.file import Comparison, parse_comparison, problems_of
from fedplcc.comparison.plan import Cell, cell_problems, plan
from fedplcc.comparison.sweep.point_check import point_problems
from fedplcc.runs.configuration import Overrides, override
from fedplcc.runs.configuration_check import judge
from fedplcc.runs.initial_model import anchored
from fedplcc.shared.config.sections import read_document
from fedplcc.shared.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class Checked:
    """A comparison's file with its cells, or its problems, one sentence each with its place."""

    comparison: Comparison | None
    cells: tuple[Cell, ...] = ()
    problems: tuple[str, ...] = ()


def check(document: Mapping[str, Any], file: Path) -> Checked:
    """Check a comparison's tables, the configurations that they name, every cell, and every point of a sweep."""
    if problems := problems_of(document):
        # Cells cannot be made of it; what its data sets name can be looked at all the same.
        return Checked(None, problems=(*problems, *_problems_of_files(document, file)))
    try:
        comparison = parse_comparison(document)
        if problems := cell_problems(comparison, file) or point_problems(comparison, file):
            return Checked(comparison, problems=tuple(problems))
        return Checked(comparison, tuple(plan(comparison, file, Path())))
    except InvalidConfig as error:  # of tables together, or of another seed than the first
        return Checked(None, problems=(error.detail,))


def _problems_of_files(document: Mapping[str, Any], file: Path) -> Iterator[str]:
    """Yield the problems of the configurations that data sets name."""
    datasets = document.get("datasets", {})
    for name, table in datasets.items() if isinstance(datasets, Mapping) else ():
        config = table.get("config") if isinstance(table, Mapping) else None
        if not isinstance(config, str):
            continue
        path = file.parent / config
        try:
            own = anchored(read_document(path), path.parent)
            run = own.get("run")
            if isinstance(run, Mapping) and "method" not in run:
                own = override(own, Overrides(method="fedavg"))  # rows name the method
        except InvalidConfig as error:
            yield f"datasets.{name}: {error.detail}"
            continue
        for problem in judge(own).problems:
            yield f"{config}: {problem}"
