"""The file of a comparison: seeds, data sets and rows. Pure except for reading it.

    [compare]
    name = "digit5"
    seeds = [0, 1, 2]

    [datasets.digit5]
    config = "digit5.toml"             # any file that `fedplcc simulate` takes, found from this one

    [rows.fedplcc]
    method = "fedplcc"

    [rows.unit-weights]
    method = "fedplcc"
    group = "ablation"
    set = { "method.unit_weights" = true }

What may be set is what `fedplcc simulate --set` takes. A section `[sweep]` tries values (comparison/sweep).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from fedplcc.comparison.groups import DEFAULT_GROUP, GroupSection, Names, Texts, choice_problems, choosing
from fedplcc.comparison.sweep.section import (
    Point,
    Seed,
    SweepSection,
    as_list,
    flat,
    name_of,
    sweep_problems,
    words_of,
)
from fedplcc.shared.bounds import NAME_PATTERN
from fedplcc.shared.config.problems import table_problems
from fedplcc.shared.config.sections import Name, Section, read_document, unknown
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods import METHODS, add_methods, refusal

TRIALS = "trials"
"""Folder of a sweep's trials, in that of the results."""
KEPT_FOR_THE_TABLES = {
    "run.seed": "seeds are listed in compare.seeds",
    "run.method": "a row's method is its key 'method'",
    "run.name": "a cell is named by its data set, row and seed",
}
"""Keys that a row or a data set must not set, and why."""

Seeds = Annotated[tuple[Seed, ...], Field(strict=False, min_length=1)]
Settings = Mapping[str, Any]


class CompareSection(Section):
    """`[compare]`"""

    name: Name = "comparison"
    """Names the folder of the results where `--out` does not."""
    title: str | None = None
    """Heading of the report; the name if not set."""
    notes: Texts = ()
    """Sentences below the heading."""
    seeds: Seeds = (0,)
    """Seeds of every cell; a data set may have its own."""
    baseline: Names = ()
    """Rows that the others are compared with, seed by seed."""


class DatasetSection(Section):
    """`[datasets.NAME]`"""

    config: str
    """Configuration file, found from the comparison's file."""
    label: str | None = None
    """Name in the report; that of the table if not set."""
    extra: Mapping[str, Any] = Field(default_factory=dict)
    """What other programs say of the data set; it is not looked at."""
    seeds: Seeds | None = None
    """Instead of the comparison's."""
    leave_out: Literal["none", "each"] = "none"
    """Domains that training leaves out: none, or each once. Then a cell is a data set, a row, a seed and a domain whose
    clients evaluate only, and the report's accuracies of a domain are of models that were trained without it."""
    balanced: bool = False
    """Whether the report has tables of balanced accuracy too, the mean recall of the classes that a test set has: for data
    whose classes are unequally frequent."""
    set: Settings = Field(default_factory=dict)
    """Keys of the configuration that all of this data set's cells change."""


class RowSection(Section):
    """`[rows.NAME]`"""

    method: str
    """Name of a method: one of fedplcc's, or package.module of another package, or its entry point."""
    label: str | None = None
    """Name in the report; that of the table if not set."""
    extra: Mapping[str, Any] = Field(default_factory=dict)
    """What other programs say of the row; it is not looked at."""
    group: Names = (DEFAULT_GROUP,)
    """Groups of the report that show the row."""
    datasets: Names | None = None
    """Data sets that it is trained on; all if not set."""
    set: Settings = Field(default_factory=dict)
    """Keys of the configuration that this row changes."""
    set_for: Mapping[str, Settings] = Field(default_factory=dict)
    """Likewise on single data sets, by their names; after `set`."""


class Comparison(Section):
    """A whole file."""

    compare: CompareSection = CompareSection()
    datasets: Mapping[str, DatasetSection]
    rows: Mapping[str, RowSection]
    groups: Mapping[str, GroupSection] = Field(default_factory=dict)
    sweep: SweepSection | None = None
    """Only one that chooses; a grid whose points are rows is among the rows."""

    def seeds_of(self, dataset: str) -> tuple[int, ...]:
        """Return the seeds of a data set's cells, sorted."""
        seeds = self.datasets[dataset].seeds
        return tuple(sorted(set(self.compare.seeds if seeds is None else seeds)))

    def rows_of(self, dataset: str) -> list[str]:
        """Return the rows that are trained on a data set, in the order of the file."""
        return [name for name, row in self.rows.items() if row.datasets is None or dataset in row.datasets]

    def groups_of(self, dataset: str) -> dict[str, list[str]]:
        """Return the rows of each group on a data set; groups in the order of their first row."""
        groups: dict[str, list[str]] = {}
        for row in self.rows_of(dataset):
            for group in self.rows[row].group:
                section = self.groups.get(group)
                if section is None or section.datasets is None or dataset in section.datasets:
                    groups.setdefault(group, []).append(row)
        return groups

    def chooses_among(self, row: str) -> bool:
        """Whether a row is in a group that chooses, so that no test number of it is told."""
        return bool(choosing(self.rows[row].group, self.groups))

    def settings_of(self, dataset: str, row: str) -> dict[str, Any]:
        """Return the settings that a row changes in a data set's configuration, by dotted key."""
        section = self.rows[row]
        return {
            **flat(self.datasets[dataset].set),
            **flat(section.set),
            **flat(section.set_for.get(dataset, {})),
        }

    def label_of_dataset(self, name: str) -> str:
        """Return the data set's name in the report."""
        return self.datasets[name].label or name

    def label_of_row(self, name: str) -> str:
        """Return the row's name in the report."""
        return self.rows[name].label or name

    def title_of_group(self, name: str) -> str:
        """Return the group's name in the report."""
        section = self.groups.get(name)
        return (section and section.title) or name[:1].upper() + name[1:]

    def with_points(self, row: str, by_dataset: Mapping[str, Point]) -> RowSection:
        """Return a row with the settings of a point on each of these data sets, and on no other."""
        section = self.rows[row]
        keys = {key for point in by_dataset.values() for key in point}
        return section.model_copy(
            update={
                "datasets": tuple(by_dataset),
                "set": {key: value for key, value in flat(section.set).items() if key not in keys},
                "set_for": {
                    dataset: {**flat(section.set_for.get(dataset, {})), **point}
                    for dataset, point in by_dataset.items()
                },
            }
        )


def read_comparison(path: Path) -> Comparison:
    """Read a comparison's file.

    Raises:
        InvalidConfig: It cannot be read or is not TOML; or all problems in it, one sentence each.
    """
    document = read_document(path)
    if "run" in document and "datasets" not in document:
        raise InvalidConfig(
            f"{path} is the configuration of one run; write another file beside it with [datasets.NAME], "
            f"config = {json.dumps(path.name)} in it, and a table [rows.NAME] with a method for each row"
        )
    return parse_comparison(document)


def parse_comparison(document: Mapping[str, Any]) -> Comparison:
    """Check the content of a comparison's file.

    Raises:
        InvalidConfig: All problems in it, one sentence each.
    """
    if problems := problems_of(document):
        raise InvalidConfig("; ".join(problems))
    return _expanded(Comparison.model_validate(document))


def problems_of(document: Mapping[str, Any]) -> list[str]:
    """Return all problems of a comparison's tables, one sentence each; those of its cells are in plan.py."""
    problems = list(dict.fromkeys(_problems(document)))
    return problems or list(_rows_without_a_group(Comparison.model_validate(document)))


def _expanded(comparison: Comparison) -> Comparison:
    """Return a comparison in which each point of a grid that chooses nothing is a row."""
    sweep = comparison.sweep
    if sweep is None or sweep.chooses:
        return comparison
    rows: dict[str, RowSection] = {}
    swept = sweep.swept(comparison.rows)
    for row, section in comparison.rows.items():
        datasets = [name for name in comparison.datasets if row in comparison.rows_of(name)]
        for point in sweep.points(row) if row in swept else ():
            label = f"{comparison.label_of_row(row)}, {words_of(point)}"
            pointed = comparison.with_points(row, dict.fromkeys(datasets, point))
            rows[name_of(row, point)] = pointed.model_copy(update={"label": label})
        if row not in swept:
            rows[row] = section
    return comparison.model_copy(update={"rows": rows, "sweep": None})


def assignments(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as `--set` takes them: KEY=VALUE, the value as in TOML.

    Raises:
        InvalidConfig: A value is none of a TOML file.
    """

    def refuse(value: object) -> None:
        raise InvalidConfig(f"settings has {value!r}, a {type(value).__name__}: give texts, numbers, lists and tables")

    return [f"{key}={json.dumps(value, ensure_ascii=False, default=refuse)}" for key, value in settings.items()]


def _problems(document: Mapping[str, Any]) -> Iterator[str]:
    for section in document:
        if section not in Comparison.model_fields:
            yield unknown("section", str(section), Comparison.model_fields)
    yield from _table_problems("compare", document.get("compare", {}), CompareSection)
    kinds = {"datasets": DatasetSection, "rows": RowSection, "groups": GroupSection}
    tables: dict[str, dict[str, Any]] = {}
    for section, kind in kinds.items():
        written = document.get(section, {})
        if not isinstance(written, Mapping):
            yield f"{section} holds one table for each name; write [{section}.NAME]"
            written = {}
        elif not written and section != "groups":
            yield f"there is no table [{section}.NAME]; a comparison needs at least one"
        yield from _indistinct_names(section, written)
        tables[section] = {name: table for name, table in written.items() if isinstance(table, Mapping)}
        for name, table in written.items():
            if not re.fullmatch(NAME_PATTERN, name):
                yield f"{section}.{name}: a name is up to 64 letters, digits, '.', '_' or '-'"
            yield from _table_problems(f"{section}.{name}", table, kind)
    compare = document.get("compare", {})
    yield from _unknown_references(compare, **tables)
    yield from choice_problems(tables["groups"], tables["rows"], _baselines(compare))
    if "sweep" in document:
        yield from _of_the_sweep(document["sweep"], compare, tables["rows"], tables["datasets"])


def _of_the_sweep(table: Any, compare: Any, rows: Mapping[str, Any], datasets: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of `[sweep]`."""
    problems = list(_table_problems("sweep", table, SweepSection))
    yield from problems
    if problems:
        return
    section = SweepSection.model_validate(table)
    named = {"rows": section.rows, "grid_for": section.grid_for, "ranges_for": section.ranges_for}
    for key, names in named.items():
        for row in names:
            if row not in rows:
                yield f"sweep.{key}: {unknown('row', row, rows)}"
    for key in ("grid", "ranges"):
        yield from _setting_problems(f"sweep.{key}", table.get(key, {}))
        for row, settings in table.get(f"{key}_for", {}).items():
            yield from _setting_problems(f"sweep.{key}_for.{row}", settings)
    yield from sweep_problems(section, rows, _baselines(compare))
    for name, dataset in datasets.items() if section.chooses else ():
        if dataset.get("leave_out", "none") != "none":
            yield (
                f"datasets.{name}.leave_out: a sweep that chooses trains no left-out cells; choose without it, and then "
                "compare the chosen values in another file"
            )
    if section.chooses and TRIALS in datasets:
        yield f"datasets.{TRIALS}: trials have their folder there; give the data set another name"


def _indistinct_names(section: str, names: Iterable[str]) -> Iterator[str]:
    """Yield names that some file systems do not distinguish."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            yield f"{section}.{name}: {section}.{other} differs from it in upper and lower case alone; rename one of them"


def _table_problems(name: str, table: Any, kind: Any) -> Iterator[str]:
    return (problem.detail for problem in table_problems(name, table, kind))


def _unknown_references(
    compare: Any, datasets: Mapping[str, Any], rows: Mapping[str, Any], groups: Mapping[str, Any]
) -> Iterator[str]:
    """Yield references to rows, data sets, groups, methods and tables that do not exist."""
    for baseline in _baselines(compare):
        if baseline not in rows:
            yield f"compare.baseline: {unknown('row', baseline, rows)}"
    for name, table in datasets.items():
        yield from _setting_problems(f"datasets.{name}.set", table.get("set", {}))
    named_groups, labels = {DEFAULT_GROUP: None}, dict[str, str]()
    for name, table in rows.items():
        other = labels.setdefault(str(table.get("label", name)), name)
        if other != name:
            yield f"rows.{name}.label: row {other!r} has that name in the report already; give each its own"
        method = table.get("method")
        if isinstance(method, str) and (problem := _method_problem(method)) is not None:
            yield f"rows.{name}.method: {problem}"
        yield from _setting_problems(f"rows.{name}.set", table.get("set", {}))
        set_for = table.get("set_for", {})
        set_for = set_for if isinstance(set_for, Mapping) else {}
        for dataset, settings in set_for.items():
            yield from _setting_problems(f"rows.{name}.set_for.{dataset}", settings)
        yield from _unknown_datasets(f"rows.{name}.datasets", _texts(table.get("datasets", ())), datasets)
        yield from _unknown_datasets(f"rows.{name}.set_for", set_for, datasets)
        named_groups |= dict.fromkeys(_texts(table.get("group", ())))
    yield from _indistinct_names("groups", named_groups)
    for name, table in groups.items():
        if name not in named_groups:
            yield f"groups.{name}: {unknown('group', name, named_groups)}"
        yield from _unknown_datasets(f"groups.{name}.datasets", _texts(table.get("datasets", ())), datasets)


def _unknown_datasets(where: str, named: Iterable[str], datasets: Mapping[str, Any]) -> Iterator[str]:
    """Yield references to data sets that do not exist."""
    for dataset in named:
        if dataset not in datasets:
            yield f"{where}: {unknown('data set', str(dataset), datasets)}"


def _rows_without_a_group(comparison: Comparison) -> Iterator[str]:
    """Yield rows that would be trained on a data set without being shown in its report."""
    for dataset in comparison.datasets:
        placed = {row for rows in comparison.groups_of(dataset).values() for row in rows}
        for row in comparison.rows_of(dataset):
            if row not in placed:
                yield (
                    f"rows.{row}: no group of it stands on data set {dataset!r}; name its own data sets with "
                    f"rows.{row}.datasets, or give it a group that stands there"
                )


def _method_problem(method: str) -> str | None:
    """Return what is wrong with a row's method; one of another package is imported, because a person's own file names it."""
    if refusal(method) is not None:
        try:
            add_methods([method])
        except InvalidConfig as error:
            return error.detail
    return None if method in METHODS else unknown("method", method, METHODS)


def _setting_problems(where: str, settings: Any) -> Iterator[str]:
    for key, value in flat(settings).items() if isinstance(settings, Mapping) else ():
        if key in KEPT_FOR_THE_TABLES:
            yield f"{where}: leave out {key!r}: {KEPT_FOR_THE_TABLES[key]}"
        elif len(key.split(".")) < 2 or not all(key.split(".")):
            yield f'{where}: {key!r} is no key of a configuration; write "SECTION.KEY" = VALUE, such as "method.phi" = 1.0'
        else:
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError):
                yield f"{where}: {key} = {value}: a value is text, a number, true, false or a list of them"


def _baselines(compare: Any) -> list[str]:
    return _texts(compare.get("baseline", ())) if isinstance(compare, Mapping) else []


def _texts(value: Any) -> list[str]:
    listed = as_list(value)
    return [text for text in listed if isinstance(text, str)] if isinstance(listed, list | tuple) else []
