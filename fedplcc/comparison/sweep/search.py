"""Search of a sweep's points: its trials are trained, judged on validation images, and the best of each row is written down.

    OUT/trials/DATASET/ROW_POINT/seed-SEED    the trials, cells like others
    OUT/trials/proposals.json                 the points of each study, written before they are trained
    OUT/chosen.json                           the choices, written before a cell with chosen values is trained or read

The same command goes on where it stopped. Accuracies on test images of trials are neither shown nor read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedplcc.comparison.file import TRIALS, Comparison
from fedplcc.comparison.plan import Cell, plan
from fedplcc.comparison.reading import CellResult, MissingCell, read_cell
from fedplcc.comparison.sweep.choosing import (
    seeds_of,
    trials_of,
    with_choices,
)
from fedplcc.comparison.sweep.point_check import require_points
from fedplcc.comparison.sweep.records import Choice, Key
from fedplcc.comparison.sweep.section import Point, SweepSection, name_of
from fedplcc.comparison.sweep.study import Basis, Study
from fedplcc.runs.atomic_file import disk_errors, make_folder, write_text
from fedplcc.runs.configuration import federation_json
from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.errors import InvalidData
from fedplcc.shared.process.disk import read_regular

CHOSEN, PROPOSALS = "chosen.json", "proposals.json"
TrainTrials = Callable[[Sequence[Cell], Path], bool]
"""Trains cells, with the failures in a folder; returns whether it was interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search has found.

    Attributes:
        choices: The choices by data set and row.
        was_interrupted: Whether a person ended the training of trials.
    """

    comparison: Comparison
    choices: Mapping[Key, Choice] = field(default_factory=dict)
    unchosen: Mapping[Key, str] = field(default_factory=dict)
    was_interrupted: bool = False

    @property
    def names_without_cells(self) -> list[str]:
        """The rows without values, as `--only` names them."""
        return [name for key in self.unchosen for name in (key[1], "/".join(key))]

    def wanted(self, only: Sequence[str]) -> dict[Key, str]:
        """Return those of `unchosen` that were to be searched."""
        return {key: why for key, why in self.unchosen.items() if is_named(key, only)}


def is_named(key: Key, only: Sequence[str]) -> bool:
    """Whether ROW or DATASET/ROW is among the chosen names; all are if none is chosen."""
    return not only or key[1] in only or "/".join(key) in only


def search(
    comparison: Comparison,
    file: Path,
    out: Path,
    *,
    only: Sequence[str] = (),
    train: TrainTrials | None,
) -> Found:
    """Choose values for the rows of a sweep; a comparison without one is returned as it is.

    Args:
        only: Rows, or DATASET/ROW, whose values are searched now; all if empty. Others keep what was chosen.
        train: Trains trials; None to take what was chosen before, and search nothing.

    Raises:
        InvalidConfig: A client has no validation images, Optuna is missing, or a trial's configuration is wrong.
        InvalidData: A file of the search is damaged.
        StoreUnavailable: A file cannot be written.
    """
    sweep = comparison.sweep
    if sweep is None:
        return Found(comparison=comparison)
    bases = _checked(comparison, sweep, file, out)
    kept = _read(out / CHOSEN)
    choices = {key: choice for key, basis in bases.items() if (choice := _kept(kept, key, basis, out)) is not None}
    unchosen = {key: "its values are not chosen yet" for key in bases if key not in choices}
    wanted = [key for key in unchosen if is_named(key, only)] if train is not None else []
    studies = [Study(sweep, key, bases[key], seeds_of(comparison, key[0])) for key in wanted]
    was_interrupted = train is not None and _train_studies(comparison, studies, file, out, train)
    for study in () if was_interrupted else studies:
        if (choice := study.choice()) is None:
            unchosen[study.key] = f"none of its trials has an accuracy: {study.trials[0].reason}"
        else:
            choices[study.key] = choice
            del unchosen[study.key]
    if studies and not was_interrupted:
        # Before a cell with these values is trained or read: what test images say cannot change it any more.
        _write(out / CHOSEN, {"/".join(key): choices[key].document() for key in bases if key in choices})
    found = with_choices(comparison, choices)
    _adopt(found, choices, file, out)
    return Found(comparison=found, choices=choices, unchosen=unchosen, was_interrupted=was_interrupted)


def _train_studies(comparison: Comparison, studies: Sequence[Study], file: Path, out: Path, train: TrainTrials) -> bool:
    """Propose, train and judge until each study has its trials; returns whether it was interrupted."""
    folder = out / TRIALS
    if studies:
        make_folder(folder)
    proposed = _read(folder / PROPOSALS)
    sweep = comparison.sweep
    for study in studies if sweep and sweep.is_study else ():
        known = proposed.get("/".join(study.key))
        if isinstance(known, Mapping) and known.get("basis") == study.basis.proposals:
            study.points = list(known["points"])[: sweep.trials if sweep else None]
    while True:
        if any([study.propose() for study in studies]):
            of_studies = {
                "/".join(study.key): {"basis": study.basis.proposals, "points": study.points} for study in studies
            }
            _write(folder / PROPOSALS, proposed | of_studies)
        points = {study.key: study.unjudged for study in studies if study.unjudged}
        if not points:
            return False
        cells = _trial_cells(comparison, points, file, out)
        if train(cells, folder):
            return True
        by_row: dict[Key, list[CellResult | MissingCell]] = {}
        for cell in cells:
            by_row.setdefault((cell.dataset, cell.row), []).append(read_cell(cell))
        for study in studies:
            for point in study.unjudged:
                study.judge(point, by_row[study.key[0], study.name(point)])


def _trial_cells(comparison: Comparison, points: Mapping[Key, Sequence[Point]], file: Path, out: Path) -> list[Cell]:
    """Return the cells of trials."""
    cells = plan(trials_of(comparison, points), file, out / TRIALS)
    return [replace(cell, is_trial=True) for cell in cells]


def _checked(comparison: Comparison, sweep: SweepSection, file: Path, out: Path) -> dict[Key, Basis]:
    """Return what each choice depends on, by data set and row in the order of the file."""
    require_points(comparison, file)
    rows = sweep.swept(comparison.rows)
    points = {
        (dataset, row): sweep.corners(row) if sweep.is_study else sweep.points(row)
        for dataset in comparison.datasets
        for row in comparison.rows_of(dataset)
        if row in rows
    }
    cells = {(cell.dataset, cell.row): cell for cell in _trial_cells(comparison, points, file, out)}
    found: dict[Key, Basis] = {}
    for key, of_row in points.items():
        space = {
            name: axis if isinstance(axis, tuple) else axis.model_dump() for name, axis in sweep.space(key[1]).items()
        }
        federation = federation_json(cells[key[0], name_of(key[1], of_row[0])].federation)
        judged_by = [sweep.view, sweep.objective, seeds_of(comparison, key[0])]
        proposals = _digest(sweep.sampler, sweep.seed, sweep.batch, judged_by, space, federation)
        found[key] = Basis(_digest(sweep.trials, proposals), proposals)
    return found


def _adopt(comparison: Comparison, choices: Mapping[Key, Choice], file: Path, out: Path) -> None:
    """Copy the cells of chosen trials whose seed the comparison has too: they are the same training."""
    for cell in plan(comparison, file, out) if choices else ():
        choice = choices.get((cell.dataset, cell.row))
        if choice is None or cell.seed not in choice.seeds or cell.folder.exists():
            continue
        trial = out / TRIALS / cell.dataset / choice.chosen.name / cell.folder.name
        if isinstance(read_cell(replace(cell, folder=trial)), CellResult) and trial.is_dir():
            with disk_errors(cell.folder):
                copy = cell.folder.with_name(f".{cell.folder.name}.copy")
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(trial, copy)
                copy.rename(cell.folder)


def _kept(kept: Mapping[str, Any], key: Key, basis: Basis, out: Path) -> Choice | None:
    """Return what was chosen before on the same basis."""
    written = kept.get("/".join(key))
    if not isinstance(written, Mapping) or written.get("basis") != basis.choice:
        return None
    try:
        return Choice.of(written)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidData(f"{out / CHOSEN} is damaged; remove it to choose again from the trials") from error


def _read(path: Path) -> dict[str, Any]:
    """Return the object of a file; an empty one where there is no file."""
    try:
        found = json.loads(read_regular(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidData(f"{path} cannot be read ({error}); restore or remove it") from error
    if not isinstance(found, dict):
        raise InvalidData(f"{path} cannot be read (it is no JSON object); restore or remove it")
    return found


def _write(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=1) + "\n")


def _digest(*parts: Any) -> str:
    return sha256(canonical_json([*parts]).encode()).hexdigest()
