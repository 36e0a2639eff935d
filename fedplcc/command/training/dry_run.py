"""`--dry-run` of `simulate` and `compare`: what would run, and what is there already. Trains and writes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.exit_codes import ExitCode, say

# What loads numpy, torch or gRPC is imported where it is needed, so that --help answers at once.
if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedplcc.comparison.file import Comparison
    from fedplcc.comparison.plan import Cell
    from fedplcc.shared.config.run import FederationFile

DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Train and write nothing: say what would run, and what is there already."),
]
NOTHING = "nothing was written"


def foresee_cells(
    comparison: Comparison, file: Path, folder: Path, cells: Sequence[Cell], *, only: Sequence[str], as_json: bool
) -> int:
    """Print what `compare` would train; returns the exit code, which tells of data that cannot be opened."""
    from fedplcc.comparison.report.writing import read_failures
    from fedplcc.comparison.training import problems_of_cells, sentences_of
    from fedplcc.comparison.untrained import trials_left, untrained
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.progress import console_for

    failures = read_failures(folder) if folder.is_dir() else {}
    found = untrained(cells, failures, trials=trials_left(comparison, folder, only))
    wanted = [cell for row in found.rows for cell in row.trainable]
    problems = problems_of_cells(wanted)
    for sentence in sentences_of(wanted, problems):
        say(sentence)
    code = ExitCode.USAGE if problems else ExitCode.OK
    if as_json:
        print(canonical_json({"config": str(file), "directory": str(folder), **found.as_json()}))
        return code
    console = console_for(json=False)
    console.print(f"{file}: {sum(len(row.cells) for row in found.rows)} cells; results in {folder}")
    for line in found.lines():
        console.print(line)
    console.print(NOTHING)
    return code


def foresee_run(federation: FederationFile, out: Path | None, *, extends: bool, as_json: bool) -> None:
    """Print what `simulate` would train.

    Raises:
        InvalidConfig: The run could not begin: of its clients, its first model or its folder.
        InvalidData, InvalidModel, WeightsMissing: As `Readiness.check`.
    """
    from fedplcc.runs.configuration import local_clients, require_validation
    from fedplcc.runs.foreseen_bytes import foreseen_bytes
    from fedplcc.runs.initial_model import require_file
    from fedplcc.runs.run_folder import foreseen_folder
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.progress import console_for
    from fedplcc.terminal.round_bytes_lines import foreseen_line

    clients = local_clients(federation)
    require_validation(federation)
    require_file(federation)
    folder, state = foreseen_folder(out, federation, extends=extends)
    examples = _require_data(federation)
    config = federation.config
    moved = foreseen_bytes(config, examples)
    console = console_for(json=as_json)
    run = config.run
    console.print(
        f"{run.name}: {run.method}, {run.rounds} round{'' if run.rounds == 1 else 's'}, {len(clients)} "
        f"client{'' if len(clients) == 1 else 's'}, {len(config.data.classes)} classes, seed {run.seed}"
    )
    for name, client in clients.items():
        few = f", {client.samples_per_class} samples of a class" if client.samples_per_class else ""
        few += f", {client.fraction:g} of its training samples" if client.fraction else ""
        console.print(f"  {name}: {client.data}{few}")
    if moved is not None:
        console.print(foreseen_line(moved))
    console.print(f"folder: {folder}, {_STATES[state]}")
    console.print(NOTHING)
    if as_json:
        answer = {
            "run": run.model_dump(mode="json"),
            "config_hash": config.hash,
            "clients": {name: client.data for name, client in clients.items()},
            "round_bytes": None if moved is None else moved.as_json(),
            "directory": str(folder),
            "state": state,
        }
        print(canonical_json(answer))


def _require_data(federation: FederationFile) -> list[int | None]:
    """Open each client's data; headers and labels are read, no image.

    Returns how many images each may train on at most, None of one that evaluates only.

    Raises:
        FedplccError: As `Readiness.check`.
    """
    from fedplcc.runs.configuration import local_clients
    from fedplcc.runs.readiness import Readiness
    from fedplcc.trainer.data.specs import opened_once

    with opened_once():
        found = Readiness().check(federation)
    clients = local_clients(federation).values()
    return [None if client.evaluate_only else number for client, number in zip(clients, found, strict=True)]


_STATES = {
    "new": "where nothing is yet",
    "begun": "where this run has begun and would go on",
    "finished": "which holds this run already, so nothing would be trained",
    "shorter": "which holds this run with fewer rounds, and it would go on to more",
}
