"""The cells of a comparison: one simulation for each data set, row and seed. Every configuration is checked here.

A cell's folder OUT/DATASET/ROW/seed-SEED is that of the following command, and either command goes on with the other's:

    fedplcc simulate --config FILE --method METHOD --seed SEED --set KEY=VALUE ... --out OUT/DATASET/ROW/seed-SEED

Where domains are left out there is one for each domain too, OUT/DATASET.without-DOMAIN/ROW/seed-SEED.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedplcc.comparison import left_out as leaving
from fedplcc.comparison.file import Comparison, assignments
from fedplcc.comparison.groups import choosing
from fedplcc.comparison.sweep.section import why_fixed
from fedplcc.runs.configuration import Overrides, local_clients, override, without_validation
from fedplcc.runs.configuration_check import Verdict, judge
from fedplcc.runs.initial_model import anchored, require_file
from fedplcc.shared.config.run import FederationFile
from fedplcc.shared.config.sections import Section, read_document, unknown
from fedplcc.shared.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One training run of a comparison.

    Attributes:
        left_out: Domain whose clients evaluate only; None where all train.
        is_chosen: Whether to train it if it is missing.
        is_trial: Whether it is a trial of a sweep.
        is_candidate: Whether its row is in a group that chooses.
    """

    dataset: str
    row: str
    seed: int
    federation: FederationFile
    folder: Path
    left_out: str | None = None
    is_chosen: bool = True
    is_trial: bool = False
    is_candidate: bool = False

    @property
    def name(self) -> str:
        """Its name, which is also its folder below that of the comparison."""
        return f"{self.place}/{self.row}/seed-{self.seed}"

    @property
    def place(self) -> str:
        """Name of its data set and of the domain that is left out, which is that of their cells' folder."""
        return place_of(self.dataset, self.left_out)

    @property
    def hides_test(self) -> bool:
        """Whether validation images alone are told of it, because something is chosen by them."""
        return self.is_trial or self.is_candidate


def place_of(dataset: str, left_out: str | None) -> str:
    """Return the name of the folder of a data set's cells, without a domain where one is left out."""
    return dataset if left_out is None else f"{dataset}.without-{left_out}"


def plan(
    comparison: Comparison,
    file: Path,
    out: Path,
    *,
    only: Sequence[str] = (),
    seeds: Sequence[int] = (),
    also_known: Collection[str] = (),
) -> list[Cell]:
    """Return all cells by data set, seed and row, in the order of the file, so that a first table is soon complete.

    Args:
        file: Path of that file; paths of data sets' files are relative to its folder.
        only: Rows, or DATASET/ROW, that are chosen for training; all if empty.
        seeds: Chosen seeds; those that the file lacks are added. All of the file if empty.
        also_known: Further names that `only` may have, of rows without cells.

    Raises:
        InvalidConfig: All problems of the cells' configurations, one sentence each; or a chosen row does not exist.
    """
    _check_choice(comparison, [name for name in only if name not in also_known])
    return [
        Cell(
            dataset=dataset,
            row=row,
            seed=seed,
            federation=federation,
            folder=out / place_of(dataset, left_out) / row / f"seed-{seed}",
            left_out=left_out,
            is_candidate=comparison.chooses_among(row),
            is_chosen=(not only or row in only or f"{dataset}/{row}" in only) and (not seeds or seed in seeds),
        )
        for dataset, document in documents_of(comparison, file).items()
        for seed in sorted({*comparison.seeds_of(dataset), *seeds})
        for row in comparison.rows_of(dataset)
        for left_out, federation in _federations(comparison, dataset, row, seed, document)
    ]


def command_of(comparison: Comparison, file: Path, dataset: str, row: str) -> str:
    """Return the `fedplcc simulate` command that trains a row's cells."""
    words = ["fedplcc", "simulate", "--config", str(file.parent / comparison.datasets[dataset].config)]
    words += ["--method", comparison.rows[row].method]
    for assignment in assignments(comparison.settings_of(dataset, row)):
        words += ["--set", assignment]
    left_out = " --set clients.CLIENT.evaluate_only=true" if comparison.datasets[dataset].leave_out == "each" else ""
    return f"{shlex.join(words)}{left_out} --seed SEED --out FOLDER"


def cell_problems(comparison: Comparison, file: Path) -> list[str]:
    """Return all problems of the cells' configurations, one sentence each."""
    return _read(comparison, file)[1]


def documents_of(comparison: Comparison, file: Path) -> dict[str, dict[str, Any]]:
    """Return the data sets' configurations.

    Raises:
        InvalidConfig: All problems in them, and in the changes that rows make.
    """
    documents, problems = _read(comparison, file)
    if problems:
        raise InvalidConfig("; ".join(problems))
    return documents


def _read(comparison: Comparison, file: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the data sets' configurations, and all problems in them and in the changes that rows make."""
    documents: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    for dataset, section in comparison.datasets.items():
        path = file.parent / section.config
        try:
            documents[dataset] = anchored(read_document(path), path.parent)
        except InvalidConfig as error:
            problems.append(f"datasets.{dataset}: {error.detail}")
    problems += _problems(comparison, documents)
    return documents, list(dict.fromkeys(problems))


def _check_choice(comparison: Comparison, only: Sequence[str]) -> None:
    known = [*comparison.rows]
    known += [f"{dataset}/{row}" for dataset in comparison.datasets for row in comparison.rows_of(dataset)]
    for name in only:
        if name not in known:
            raise InvalidConfig(f"--only: {unknown('row', name, known if '/' in name else comparison.rows)}")


def judge_cell(comparison: Comparison, dataset: str, row: str, seed: int, document: Mapping[str, Any]) -> Verdict:
    """Return a cell's configuration, or all of its problems; `document` is that of its data set."""
    overrides = Overrides(
        method=comparison.rows[row].method,
        seed=seed,
        assignments=assignments(comparison.settings_of(dataset, row)),
    )
    try:
        verdict = judge(override(document, overrides))
        if verdict.federation is not None and verdict.federation.clients:
            local_clients(verdict.federation)
            require_file(verdict.federation)
    except InvalidConfig as error:
        return Verdict(None, (error.detail,))
    if verdict.federation is not None and not verdict.federation.clients:
        advice = "add a table [clients.NAME] for each, or one table [partition]"
        return Verdict(None, (f"datasets.{dataset}: its file makes no clients; {advice}",))
    return verdict


def _federation(
    comparison: Comparison, dataset: str, row: str, seed: int, document: Mapping[str, Any]
) -> FederationFile:
    """Return a cell's configuration."""
    verdict = judge_cell(comparison, dataset, row, seed, document)
    if verdict.federation is None:
        raise InvalidConfig("; ".join(verdict.problems))
    return verdict.federation


def _federations(
    comparison: Comparison, dataset: str, row: str, seed: int, document: Mapping[str, Any]
) -> list[tuple[str | None, FederationFile]]:
    """Return the configuration of a row and a seed, or one for each domain that is left out, with the domain."""
    whole = _federation(comparison, dataset, row, seed, document)
    if comparison.datasets[dataset].leave_out == "none":
        return [(None, whole)]
    return [(domain, leaving.without(whole, domain)) for domain in leaving.domains_of(whole)]


def _problems(comparison: Comparison, documents: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the problems of all cells' configurations; those of a data set's file itself only once."""
    for dataset, document in documents.items():
        seed = comparison.seeds_of(dataset)[0]
        own = judge(_with_a_method(comparison, dataset, document)).problems
        for problem in own:
            yield f"{comparison.datasets[dataset].config}: {problem}"
        if own:
            continue
        federations = dict[str, FederationFile]()
        for row in comparison.rows_of(dataset):
            try:
                federation = federations[row] = _federations(comparison, dataset, row, seed, document)[0][1]
            except InvalidConfig as error:
                yield f"row {row} on data set {dataset}: {error.detail}"
                continue
            if comparison.chooses_among(row) and (client := without_validation(federation)) is not None:
                yield (
                    f"row {row} on data set {dataset}: its group chooses on validation images, and client {client} has "
                    "none; set data.validation_every in its file, or validation_per_class for each client"
                )
        for group, rows in comparison.groups_of(dataset).items():
            if choosing([group], comparison.groups):
                for problem in _incomparable({row: federations[row] for row in rows if row in federations}):
                    yield f"group {group} on data set {dataset}: {problem}"


def _incomparable(federations: Mapping[str, FederationFile]) -> Iterator[str]:
    """Yield, of each row that other images or rounds would choose than the first one, the first key that says so."""
    settings = {row: _fixed_settings(federation) for row, federation in federations.items()}
    rows = [*settings]
    for row in rows[1:]:
        first, own = settings[rows[0]], settings[row]
        key = next((key for key in {**first, **own} if first.get(key) != own.get(key)), None)
        if key is not None:
            yield (
                f"{key} is {_written(first.get(key))} in row {rows[0]} and {_written(own.get(key))} in row {row}; "
                f"{why_fixed(key)}, so give both rows the same value, or one of them another group"
            )


def _fixed_settings(federation: FederationFile) -> dict[str, Any]:
    """Return the settings in which the rows of a group that chooses must not differ, by dotted key."""
    sections: dict[str, Section] = {"data": federation.config.data, "evaluation": federation.config.evaluation}
    sections |= {f"clients.{name}": client for name, client in federation.clients.items()}
    return {
        f"{name}.{key}": value
        for name, section in sections.items()
        for key, value in section.model_dump(mode="json").items()
        if why_fixed(f"{name}.{key}") is not None
    }


def _written(value: Any) -> str:
    return "not set" if value is None else json.dumps(value)


def _with_a_method(comparison: Comparison, dataset: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a data set's configuration, with the method of its first row if it names none itself."""
    run, rows = document.get("run"), comparison.rows_of(dataset)
    if not rows or not isinstance(run, Mapping) or "method" in run:
        return document
    return override(document, Overrides(method=comparison.rows[rows[0]].method))
