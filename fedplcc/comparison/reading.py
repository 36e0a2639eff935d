"""Reading of cells, from their folders: every round's values, or the reason why a cell is missing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from fedplcc.aggregator.rounds.validation import best_of_lines, early_stop, judged_line
from fedplcc.comparison.file import Comparison
from fedplcc.comparison.left_out import joined
from fedplcc.comparison.plan import Cell
from fedplcc.comparison.round_values import (
    RoundValues,
    by_one_score,
    classes_by_round,
    confusion_by_round,
    counts_by_round,
    measurements_of,
    round_values,
    without_test,
)
from fedplcc.comparison.sweep.records import Choice, Key
from fedplcc.runs.artifacts import EVALUATIONS, MANIFEST, METRICS, TIMINGS
from fedplcc.runs.configuration import federation_json
from fedplcc.runs.difference import differing_keys
from fedplcc.runs.run_folder import FEDERATION, RunFolder, is_untrained
from fedplcc.shared.process.disk import read_regular
from fedplcc.shared.scoring.scores import known_domains

TRAIN_AGAIN = "restore the file, or remove the folder to train the cell again"
"""Advice on a damaged file that a report needs."""
DO_WITHOUT = "restore or remove the file; the report does without it"
"""Advice on another damaged file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """A cell that has been trained to its end; without all that test images say where the cell hides it."""

    cell: Cell
    rounds: Sequence[RoundValues]
    manifest: Mapping[str, Any]
    hashes: Mapping[str, str]
    """SHA-256 of the last `model` and `prototypes`."""

    def is_balanced(self, model: str) -> bool:
        """Whether the values of a model are balanced accuracies, as the run's score is."""
        return any(model in current.scored for current in self.rounds)

    @property
    def domains(self) -> list[str]:
        """Domains of the accuracies, sorted."""
        return sorted({domain for each in self.rounds for accuracy in each.accuracy.values() for domain in accuracy})

    @property
    def scored_domains(self) -> list[set[str]]:
        """The domains that have a score, of each round that was evaluated."""
        model = next((name for each in self.rounds for name in each.accuracy), "")
        return [known_domains(values) for each in self.rounds if (values := each.accuracy.get(model))]


class Absence(Enum):
    """State of a missing cell."""

    NOT_TRAINED = "not trained"
    BEGUN = "begun"
    FAILED = "failed"
    UNUSABLE = "unusable"
    """Its files are damaged, or of another configuration; they have to be removed first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingCell:
    """A cell without results, and why."""

    cell: Cell
    absence: Absence
    reason: str

    @property
    def can_be_trained(self) -> bool:
        """Whether training can begin, or go on from the files that are there."""
        return self.absence is not Absence.UNUSABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """A comparison and its cells, as every part of a report uses them.

    Attributes:
        results: What tables show: the trained cells; where domains are left out, one result of all of a row and a seed.
        choices: What a sweep has chosen, by data set and row.
        unchosen: Why a row that a sweep searches has no values yet.
    """

    comparison: Comparison
    file: Path
    results: Sequence[CellResult]
    missing: Sequence[MissingCell]
    whole: Sequence[CellResult]
    choices: Mapping[Key, Choice] = field(default_factory=dict)
    unchosen: Mapping[Key, str] = field(default_factory=dict)
    _by_row: dict[tuple[str, str], list[CellResult]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for result in self.results:
            self._by_row.setdefault((result.cell.dataset, result.cell.row), []).append(result)

    def cells(self, dataset: str, row: str) -> list[CellResult]:
        """Return the trained cells of a row on a data set, by seed."""
        return self._by_row.get((dataset, row), [])

    def heading(self, dataset: str, title: str) -> str:
        """Return the heading of a data set's part, with the data set's name unless it is the only part."""
        is_alone = len(self.comparison.datasets) == 1 and len(self.comparison.groups_of(dataset)) == 1
        return title if is_alone else f"{self.comparison.label_of_dataset(dataset)}: {title}"


def seeds_by_reason(missing: Iterable[MissingCell]) -> dict[tuple[str, str, str], list[str]]:
    """Return the seeds of missing cells by data set, row and reason."""
    seeds: dict[tuple[str, str, str], list[str]] = {}
    for each in missing:
        reason = f"failed: {each.reason}" if each.absence is Absence.FAILED else each.reason
        left_out = "" if each.cell.left_out is None else f" without {each.cell.left_out}"
        seeds.setdefault((each.cell.dataset, each.cell.row, reason), []).append(f"{each.cell.seed}{left_out}")
    return seeds


def read_findings(comparison: Comparison, file: Path, cells: Sequence[Cell], failures: Mapping[str, str]) -> Findings:
    """Read all cells of a comparison.

    Args:
        failures: Reasons of cells that could not be trained the last time, by their names.
    """
    read = [read_cell(cell, failures.get(cell.name)) for cell in cells]
    whole = [each for each in read if isinstance(each, CellResult)]
    return Findings(
        comparison=comparison,
        file=file,
        results=[*_shown(whole, cells)],
        whole=whole,
        missing=[each for each in read if isinstance(each, MissingCell)],
    )


def _shown(whole: Sequence[CellResult], cells: Sequence[Cell]) -> Iterator[CellResult]:
    """Yield the cells that leave nothing out, and one result of the others of each row and seed, if all are there."""
    found: dict[tuple[str, str, int], dict[str, CellResult]] = {}
    for each in whole:
        cell = each.cell
        if cell.left_out is None:
            yield each
        else:
            found.setdefault((cell.dataset, cell.row, cell.seed), {})[cell.left_out] = each
    planned = Counter((cell.dataset, cell.row, cell.seed) for cell in cells)
    for key, by_domain in found.items():
        if len(by_domain) == planned[key]:
            rounds = joined({domain: each.rounds for domain, each in by_domain.items()})
            first = next(iter(by_domain.values()))
            yield replace(first, cell=replace(first.cell, left_out=None), rounds=rounds)


def read_cell(cell: Cell, failure: str | None = None) -> CellResult | MissingCell:
    """Read the files of a cell.

    Args:
        failure: Why it could not be trained the last time, if so.
    """
    try:
        unusable = _difference(cell) if cell.folder.is_dir() else None
        if cell.folder.is_dir() and unusable is None and _is_whole(cell.folder):
            return _read(cell)
    except _Unreadable as error:
        unusable = str(error)
    if unusable is not None:
        return MissingCell(cell=cell, absence=Absence.UNUSABLE, reason=unusable)
    if failure is None and (cell.folder / FEDERATION).exists() and not is_untrained(cell.folder):
        reason = "begun and not finished; the same command goes on with it"
        return MissingCell(cell=cell, absence=Absence.BEGUN, reason=reason)
    if failure is None:
        return MissingCell(cell=cell, absence=Absence.NOT_TRAINED, reason="not trained yet")
    return MissingCell(cell=cell, absence=Absence.FAILED, reason=failure)


def _is_whole(folder: Path) -> bool:
    """Whether a cell's run has committed all its rounds and its files are there; False where training goes on with it."""
    manifest, metrics = folder / MANIFEST, folder / METRICS
    if not manifest.exists():
        return False
    goes_on = RunFolder(folder, False).state.exists()
    try:
        with _reading(manifest, TRAIN_AGAIN):
            ended = _object(manifest)
            num_rounds = ended["total_rounds"]
        with _reading(metrics, TRAIN_AGAIN):
            lines = read_regular(metrics).decode().splitlines()
            has_all = len(lines) == num_rounds or _stopped_early(ended, lines)
    except _Unreadable:
        if goes_on:
            return False  # training writes its files again
        raise
    if not has_all and not goes_on:
        raise _Unreadable(f"{folder}: there is a {MANIFEST} but not a line for each round in {METRICS}; {TRAIN_AGAIN}")
    return has_all


def _stopped_early(manifest: Mapping[str, Any], lines: Sequence[str]) -> bool:
    """Whether run.patience ended the run with the last of these lines of metrics.jsonl."""
    patience = manifest.get("config", {}).get("run", {}).get("patience")
    read = [_parsed(line, "it is no JSON object") for line in lines]
    best = best_of_lines(read)
    return bool(read) and early_stop(best, judged_line(read[-1], best), patience) is not None


def strays(out: Path, cells: Iterable[Cell]) -> list[str]:
    """Return the names of runs in a comparison's folder that are none of its cells, sorted."""
    planned = {cell.name for cell in cells}
    found = {path.parent.relative_to(out).as_posix() for path in out.glob(f"*/*/seed-*/{MANIFEST}")}
    return sorted(found - planned)


def _difference(cell: Cell) -> str | None:
    """Return a sentence if a folder holds the run of another configuration; None otherwise, or if nothing of it is trained.

    Both federation.json, which need not be kept, and the hash in run.json must be of the configuration.
    """
    path = cell.folder / FEDERATION
    if not path.exists():
        return _difference_of_hash(cell)
    with _reading(path, "see that it can be read"):
        held = read_regular(path).decode(errors="replace")
    wanted = federation_json(cell.federation)
    if held == wanted:
        return _difference_of_hash(cell)
    if is_untrained(cell.folder):
        return None  # training replaces it
    named = differing_keys(held, wanted)
    return _of_another_configuration(cell.folder, f" ({named})" if named else "")


def _difference_of_hash(cell: Cell) -> str | None:
    try:
        found = _object(cell.folder / MANIFEST).get("config_hash")
    except (OSError, ValueError):
        return None  # missing, or damaged: reading the whole file reports that
    if found in (None, cell.federation.config.hash):
        return None
    return _of_another_configuration(cell.folder, f" (by the config_hash in {MANIFEST})")


def _of_another_configuration(folder: Path, how: str) -> str:
    return (
        f"{folder} holds a run of another configuration than the file has now{how}; "
        "remove that folder to train the cell again, or choose another with --out"
    )


class _Unreadable(Exception):
    """A file of a cell cannot be used; the sentence says what to do."""


@contextmanager
def _reading(path: Path, remedy: str) -> Iterator[None]:
    """Within the block, name the file of an error, and what to do about it."""
    try:
        yield
    except OSError as error:
        raise _Unreadable(f"{path.parent}: cannot read {path.name} ({error.strerror or error}); {remedy}") from error
    except KeyError as error:
        raise _Unreadable(f"{path.parent}: {path.name} does not say {error}; {remedy}") from error
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise _Unreadable(f"{path.parent}: {path.name} is damaged ({error}); {remedy}") from error


def _read(cell: Cell) -> CellResult:
    """Read a whole cell."""
    folder = cell.folder
    with _reading(folder / TIMINGS, DO_WITHOUT):
        measured = {line["round"]: measurements_of(line) for line in _lines(folder / TIMINGS, is_optional=True)}
    with _reading(folder / EVALUATIONS, DO_WITHOUT):
        reports = _lines(folder / EVALUATIONS, is_optional=True)
        counts, classes = counts_by_round(reports), classes_by_round(reports)
        confusion = confusion_by_round(reports)
    with _reading(folder / MANIFEST, TRAIN_AGAIN):
        manifest = _object(folder / MANIFEST)
        _ = manifest["config_hash"]  # the report needs it
    with _reading(folder / METRICS, TRAIN_AGAIN):
        metrics = _lines(folder / METRICS)
        rounds = [
            round_values(
                line,
                measured.get(number, {}),
                counts.get(number, {}),
                classes.get(number, {}),
                confusion.get(number, {}),
            )
            for line in metrics
            if (number := line["round"]) is not None
        ]
        hashes = {"model": metrics[-1]["model_sha256"], "prototypes": metrics[-1]["prototypes_sha256"]}
    rounds = by_one_score(rounds)
    if cell.hides_test:
        rounds = [*map(without_test, rounds)]
    return CellResult(cell=cell, rounds=rounds, manifest=manifest, hashes=hashes)


def _lines(path: Path, *, is_optional: bool = False) -> list[dict[str, Any]]:
    """Return the objects of a JSON Lines file."""
    if is_optional and not path.exists():
        return []
    return [
        _parsed(line, f"line {number} is no JSON object")
        for number, line in enumerate(read_regular(path).decode().splitlines(), start=1)
    ]


def _object(path: Path) -> dict[str, Any]:
    return _parsed(read_regular(path).decode(), "it is no JSON object")


def _parsed(text: str, complaint: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(complaint) from error
    if not isinstance(found, dict):
        raise ValueError(complaint)
    return found
