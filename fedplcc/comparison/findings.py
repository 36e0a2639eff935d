"""A comparison and what its cells came to, as everything that tells of it takes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedplcc.comparison.file import Comparison
from fedplcc.comparison.reading import Absence, CellResult, MissingCell


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """A comparison, and what its cells came to.

    Attributes:
        comparison: What the file says.
        file: Where it lies, as it was named.
        results: Cells that are whole.
        missing: Those that are not.
    """

    comparison: Comparison
    file: Path
    results: Sequence[CellResult]
    missing: Sequence[MissingCell]
    _by_row: dict[tuple[str, str], list[CellResult]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for result in self.results:
            self._by_row.setdefault((result.cell.dataset, result.cell.row), []).append(result)

    def cells(self, dataset: str, row: str) -> list[CellResult]:
        """Whole cells of a row on a data set, by seed."""
        return self._by_row.get((dataset, row), [])

    def heading(self, dataset: str, title: str) -> str:
        """The title of a part of a data set, with the data set's name where it would not be clear."""
        is_alone = len(self.comparison.datasets) == 1 and len(self.comparison.groups_of(dataset)) == 1
        return title if is_alone else f"{self.comparison.label_of_dataset(dataset)}: {title}"


def seeds_by_reason(missing: Iterable[MissingCell]) -> dict[tuple[str, str, str], list[str]]:
    """Seeds of missing cells by data set, row and why they are missing, in words."""
    seeds: dict[tuple[str, str, str], list[str]] = {}
    for each in missing:
        reason = f"failed: {each.reason}" if each.absence is Absence.FAILED else each.reason
        seeds.setdefault((each.cell.dataset, each.cell.row, reason), []).append(str(each.cell.seed))
    return seeds
