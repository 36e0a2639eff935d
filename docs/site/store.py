"""Write the tables of schema.py into the store's README.md, or check with --check that they are current.

python -m docs.site.store [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sqlalchemy import Column, Table, UniqueConstraint

from fedplcc.aggregator.store.database.schema import REVISION, metadata

README = Path(__file__).parents[2] / "aggregator" / "store" / "README.md"
BEGIN = "<!-- Generated from schema.py by `python -m docs.site.store`; do not edit. -->"
END = "<!-- End of what is generated. -->"


def picture() -> str:
    """Return the tables and their references as a Mermaid diagram."""
    lines = ["```mermaid", "erDiagram"]
    for table in metadata.sorted_tables:
        for column in table.columns:
            lines += [
                f"    {key.column.table.name} ||--o{{ {table.name} : {column.name}" for key in column.foreign_keys
            ]
    for table in metadata.sorted_tables:
        lines.append(f"    {table.name} {{")
        for column in table.columns:
            lines.append(f"        {_type(column)} {column.name} {', '.join(_keys(table, column))}".rstrip())
        lines.append("    }")
    return "\n".join([*lines, "```"])


def tables() -> str:
    """Return every table with its columns and their meanings."""
    parts = []
    for table in metadata.sorted_tables:
        lines = [f"### `{table.name}`", "", table.comment or "", "", "| column | type | |", "|---|---|---|"]
        for column in table.columns:
            keys = "".join(f"**{key}** " for key in _keys(table, column))
            null = ", or null" if column.nullable else ""
            lines.append(f"| `{column.name}` | {_type(column)}{null} | {keys}{column.comment or ''} |")
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            columns = ", ".join(f"`{column.name}`" for column in index.columns)
            lines += ["", f"Index `{index.name}` on {columns}."]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def generated() -> str:
    """Return the generated part of the README, markers included."""
    return "\n\n".join([BEGIN, f"Revision {REVISION}.", picture(), tables(), END])


def with_generated(text: str) -> str:
    """Return a README with its generated part replaced.

    Raises:
        ValueError: The markers are missing.
    """
    before, begin, rest = text.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{README} needs the two lines between which the tables stand: {BEGIN} and {END}")
    return before + generated() + after


def main() -> None:
    """Write or check the README."""
    parser = argparse.ArgumentParser(prog="python -m docs.site.store", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the README is not current")
    text = README.read_text(encoding="utf-8")
    current = with_generated(text)
    if not parser.parse_args().check:
        README.write_text(current, encoding="utf-8")
    elif text != current:
        sys.exit(f"{README.name} of the store is not current; run `python -m docs.site.store`")


def _type(column: Column[object]) -> str:
    return str(column.type).partition("(")[0].lower()


def _keys(table: Table, column: Column[object]) -> list[str]:
    """Return the markers PK, FK and UK that apply to a column."""
    unique = any(
        isinstance(constraint, UniqueConstraint) and list(constraint.columns) == [column]
        for constraint in table.constraints
    )
    return [
        key for key, holds in (("PK", column.primary_key), ("FK", bool(column.foreign_keys)), ("UK", unique)) if holds
    ]


if __name__ == "__main__":
    main()
