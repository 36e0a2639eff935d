"""Published tables and methods that a comparison's file names, in `extra` of its data sets and rows.

    [datasets.digit5]
    extra = { published = ["fedplcc/digit5"], differs = ["Two domains."] }
    [rows.average]
    extra = { published = "FedAvg" }

`published` are tables of accuracies.toml with the same set-up and the method's names in them, `differs` sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.published.accuracies import PublishedTable, published_tables
from fedplcc.comparison.file import Comparison
from fedplcc.shared.config.sections import unknown
from fedplcc.shared.errors import InvalidConfig


def tables_of(comparison: Comparison, dataset: str) -> list[PublishedTable]:
    """Return the tables of published numbers that a data set names."""
    return [published_tables()[key] for key in _texts(comparison.datasets[dataset].extra, "published")]


def differences_of(comparison: Comparison, dataset: str) -> tuple[str, ...]:
    """Return sentences on the differences from the published set-up."""
    return _texts(comparison.datasets[dataset].extra, "differs")


def name_of(comparison: Comparison, row: str, table: PublishedTable) -> str | None:
    """Return the name of a row in a table of published numbers, if it has one."""
    return next((name for name in _texts(comparison.rows[row].extra, "published") if name in table.accuracy), None)


def check(comparison: Comparison) -> None:
    """Check that what is named exists.

    Raises:
        InvalidConfig: A table, a method or a data set does not.
    """
    known, methods = published_tables(), set[str]()
    for name, section in comparison.datasets.items():
        for key in _texts(section.extra, "published"):
            if key not in known:
                raise InvalidConfig(f"datasets.{name}.extra: {unknown('table of published numbers', key, known)}")
            methods |= known[key].accuracy.keys()
    for name, row in comparison.rows.items():
        for method in _texts(row.extra, "published"):
            if method not in methods:
                raise InvalidConfig(f"rows.{name}.extra: {unknown('published method', method, methods)}")
            if comparison.chooses_among(name):
                raise InvalidConfig(f"rows.{name}.extra: its group chooses, so no test number of it is shown")


def _texts(extra: Mapping[str, Any], key: str) -> tuple[str, ...]:
    found = extra.get(key, ())
    return (found,) if isinstance(found, str) else tuple(found)
