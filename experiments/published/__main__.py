"""`python -m experiments.published FILE FOLDER`: the report of trained cells, with published numbers beside ours."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.published import names
from experiments.published.parts import PUBLISHED
from fedplcc.comparison.file import read_comparison
from fedplcc.comparison.plan import plan
from fedplcc.comparison.running import write_report
from fedplcc.comparison.sweep.search import search


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the report that `fedplcc compare --report-only` writes, and its parts on published numbers."""
    parser = argparse.ArgumentParser(prog="python -m experiments.published", description=main.__doc__)
    parser.add_argument("file", type=Path, help="the comparison")
    parser.add_argument("folder", type=Path, help="folder of its cells and of the report")
    given = parser.parse_args(arguments)
    comparison = read_comparison(given.file)
    names.check(comparison)
    found = search(comparison, given.file, given.folder, only=(), train=None)
    cells = plan(found.comparison, given.file, given.folder, also_known=found.names_without_cells)
    _, files = write_report(found, given.file, cells, given.folder, PUBLISHED)
    print(f"{given.folder}: {len(files)} files")


if __name__ == "__main__":
    main()
