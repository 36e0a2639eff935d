"""A comparison's file to start from: every key with its value, range and meaning. Pure.

It is generated from the records that check such a file, so it has every key.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from fedplcc.comparison.file import CompareSection, Comparison, DatasetSection, RowSection
from fedplcc.runs.configuration_text import explained
from fedplcc.shared.config.sections import Section
from fedplcc.shared.config.toml_text import toml_assignment, toml_key

EXAMPLES: Mapping[str, Any] = {
    "compare.title": "Shops",
    "datasets.label": "Shops",
    "datasets.seeds": [0, 1],
    "rows.label": "FedAvg",
    "rows.datasets": ["shops"],
    "groups.title": "What each part is worth",
    "groups.notes": ["Each row leaves one part out."],
    "groups.datasets": ["shops"],
    "groups.choose": "validation",
    "sweep.rows": ["fedavg"],
    "sweep.choose": "validation",
    "sweep.grid": {"training.learning_rate": [0.01, 0.1]},
    "sweep.trials": 20,
    "sweep.seeds": [0],
}
"""Values to show for keys that are not set."""
HEADINGS = {
    "compare": "The comparison: seeds, and rows that the others are compared with.",
    "datasets": "A data set: the configuration that `fedplcc simulate` trains, with clients of its own.",
    "rows": "The rows: a method each, and what it changes. A cell is a data set, a row and a seed.",
    "groups": "A group of rows has a part of the report of its own; rows name it with group = NAME.",
    "sweep": "Values that rows try: a grid, or a study of ranges that chooses on validation images.",
}


def template(
    name: str,
    datasets: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, Mapping[str, Any]],
    *,
    seeds: Sequence[int],
    baseline: Sequence[str],
) -> str:
    """Return the text of a comparison's file.

    Args:
        datasets: Keys of each data set by name; one at least.
        rows: Keys of each row by name; one at least.
    """
    lines = [
        "# A comparison of fedplcc: every row is trained on every data set with every seed. Keys that are left out take",
        "# their defaults. Check a change with `fedplcc config check FILE`, and see what the cells take with:",
        "#     fedplcc compare --config FILE --dry-run",
        "",
        f"# {HEADINGS['compare']}",
        "[compare]",
        *_keys("compare", CompareSection, {"name": name, "seeds": list(seeds), "baseline": list(baseline)}),
        *_tables("datasets", DatasetSection, datasets),
        *_tables("rows", RowSection, rows),
    ]
    for section, kind in _other_sections():
        lines += ["", f"# {HEADINGS.get(section) or (inspect.getdoc(kind) or section).splitlines()[0]}"]
        heading = f"{section}.NAME" if section == "groups" else section
        lines += [f"# [{heading}]", *_keys(section, kind, {}, is_used=False)]
    return "\n".join(lines) + "\n"


def _tables(section: str, kind: type[Section], tables: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of named tables; only the first has every key."""
    for number, (name, table) in enumerate(tables.items()):
        yield ""
        if number == 0:
            yield f"# {HEADINGS[section]}"
        yield f"[{section}.{toml_key(name)}]"
        if number == 0:
            yield from _keys(section, kind, table)
        else:
            yield from (toml_assignment(key, value) for key, value in table.items())


def _keys(section: str, kind: type[Section], values: Mapping[str, Any], *, is_used: bool = True) -> Iterator[str]:
    for key, field in kind.model_fields.items():
        place = f"{section}.{key}"
        has_default = not field.is_required() and (is_used or place not in EXAMPLES)
        value = values.get(key, field.get_default(call_default_factory=True) if has_default else None)
        yield from explained(place, kind, key, value, is_used=is_used, examples=EXAMPLES)


def _other_sections() -> Iterator[tuple[str, type[Section]]]:
    """Yield the sections that a first comparison has no use for, with the records of their tables."""
    for name, field in Comparison.model_fields.items():
        parts = (field.annotation, *get_args(field.annotation))
        kinds = [part for part in parts if isinstance(part, type) and issubclass(part, Section)]
        if kinds and kinds[0] not in (CompareSection, DatasetSection, RowSection):
            yield name, kinds[0]
