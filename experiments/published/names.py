"""Published tables and methods that a comparison's file names, in `extra` of its data sets and rows.

    [datasets.digit5]
    extra = { published = ["fedplcc/digit5"], signs = "fpl/digits", protocol = "whole", differs = ["Two domains."] }
    [rows.average]
    extra = { published = "FedAvg" }

`published` are tables of accuracies.toml with the same set-up and the method's names in them, `signs` tables of another
set-up, of which signs of differences alone are compared, `protocol` a data set whose protocol is nearer, `differs`
sentences.
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
    return [published_tables()[key] for key in keys_of(comparison, dataset)]


def keys_of(comparison: Comparison, dataset: str) -> tuple[str, ...]:
    """Return the keys of those tables."""
    return _texts(comparison.datasets[dataset].extra, "published")


def sign_tables_of(comparison: Comparison, dataset: str) -> list[PublishedTable]:
    """Return those of which signs alone are compared."""
    return [published_tables()[key] for key in _texts(comparison.datasets[dataset].extra, "signs")]


def differences_of(comparison: Comparison, dataset: str) -> tuple[str, ...]:
    """Return sentences on the differences from the published set-up."""
    return _texts(comparison.datasets[dataset].extra, "differs")


def protocol_of(comparison: Comparison, dataset: str) -> str | None:
    """Return the data set whose protocol is nearer to the published one."""
    return next(iter(_texts(comparison.datasets[dataset].extra, "protocol")), None)


def name_of(comparison: Comparison, row: str, table: PublishedTable) -> str | None:
    """Return the name of a row in a table of published numbers, if it has one."""
    return next((name for name in _texts(comparison.rows[row].extra, "published") if name in table.accuracy), None)


def baseline_of(comparison: Comparison, table: PublishedTable) -> str | None:
    """Return the first baseline that has a row in a table of published numbers."""
    return next((row for row in comparison.compare.baseline if name_of(comparison, row, table)), None)


def check(comparison: Comparison) -> None:
    """Check that what is named exists.

    Raises:
        InvalidConfig: A table, a method or a data set does not.
    """
    known, methods = published_tables(), set[str]()
    for name, section in comparison.datasets.items():
        for key in (*_texts(section.extra, "published"), *_texts(section.extra, "signs")):
            if key not in known:
                raise InvalidConfig(f"datasets.{name}.extra: {unknown('table of published numbers', key, known)}")
            methods |= known[key].accuracy.keys()
        protocol = protocol_of(comparison, name)
        if protocol is not None and protocol not in comparison.datasets:
            raise InvalidConfig(f"datasets.{name}.extra: {unknown('data set', protocol, comparison.datasets)}")
    for name, row in comparison.rows.items():
        for method in _texts(row.extra, "published"):
            if method not in methods:
                raise InvalidConfig(f"rows.{name}.extra: {unknown('published method', method, methods)}")
            if comparison.chooses_among(name):
                raise InvalidConfig(f"rows.{name}.extra: its group chooses, so no test number of it is shown")


def _texts(extra: Mapping[str, Any], key: str) -> tuple[str, ...]:
    found = extra.get(key, ())
    return (found,) if isinstance(found, str) else tuple(found)
