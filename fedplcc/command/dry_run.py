"""`--dry-run` of `simulate` and `compare`: what would run, what is there already, and how long it takes. Writes nothing."""

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
    from fedplcc.simulation.parallelism import EngineName
    from shared.config.run import FederationFile

DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Train and write nothing: say what would run, what is there already, and the minutes that it takes, measured "
        "by a short sample of the training unless they are known.",
    ),
]
NOTHING = "nothing was written"


def foresee_cells(
    comparison: Comparison,
    file: Path,
    folder: Path,
    cells: Sequence[Cell],
    *,
    only: Sequence[str],
    jobs: int,
    device: str,
    as_json: bool,
) -> int:
    """Print what `compare` would train; returns the exit code, which tells of data that cannot be opened."""
    from shared.config.settings import limit_threads

    _stay_quiet()
    if cells:
        limit_threads(cells[0].federation.config.training.threads)  # torch looks when it loads, which is below
    from fedplcc.comparison.forecast import forecast, trials_left
    from fedplcc.comparison.training import data_problems, data_sentences
    from fedplcc.comparison.writing import read_failures
    from fedplcc.terminal.progress import console_for, shown_steps
    from shared.config.run import canonical_json

    failures = read_failures(folder) if folder.is_dir() else {}
    with shown_steps(console_for(json=True), len({(cell.dataset, cell.row) for cell in cells})) as step:
        trials = trials_left(comparison, folder, only)
        found = forecast(cells, failures, jobs=jobs, device=device, trials=trials, on_step=step)
    wanted = [cell for row in found.rows for cell in row.trainable]
    problems = data_problems(wanted)
    for sentence in data_sentences(wanted, problems):
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


def foresee_run(
    federation: FederationFile,
    out: Path | None,
    *,
    device: str,
    jobs: int | None,
    engine: EngineName,
    extends: bool,
    as_json: bool,
) -> int:
    """Print what `simulate` would train; returns the exit code.

    Raises:
        InvalidConfig: The run could not begin: of its clients, its first model or its folder.
        InvalidData: A client's data cannot be used.
    """
    _stay_quiet()
    from fedplcc.runs.configuration import local_clients, require_validation
    from fedplcc.runs.initial_model import require_file
    from fedplcc.runs.run_folder import foreseen_folder, seconds_taken
    from fedplcc.simulation.sample import timed_sample
    from fedplcc.terminal.progress import console_for
    from shared.config.run import canonical_json

    clients = local_clients(federation)
    require_validation(federation)
    require_file(federation)
    folder, state = foreseen_folder(out, federation, extends=extends)
    config = federation.config
    console, steps = console_for(json=as_json), console_for(json=True)
    seconds, source = (seconds_taken(folder), "as it took") if state == "finished" else (None, "")
    if state != "finished" and engine == "local":
        steps.print("training a sample, nothing of which is kept")
        sample = timed_sample(federation, device=device, jobs=jobs)
        if sample is not None:
            seconds = sample.seconds
            source = "by a sample here" if sample.num_rounds else "roughly, by a part of a round here"
    minutes = "unknown" if seconds is None else f"about {seconds / 60:.1f} ({source})"
    run = config.run
    console.print(
        f"{run.name}: {run.method}, {run.rounds} round{'' if run.rounds == 1 else 's'}, {len(clients)} "
        f"client{'' if len(clients) == 1 else 's'}, {len(config.data.classes)} classes, seed {run.seed}"
    )
    for name, client in clients.items():
        few = f", {client.samples_per_class} samples of a class" if client.samples_per_class else ""
        few += f", {client.fraction:g} of its training samples" if client.fraction else ""
        console.print(f"  {name}: {client.data}{few}")
    console.print(f"folder: {folder}, {_STATES[state]}")
    console.print(f"minutes: {minutes}")
    console.print(NOTHING)
    if as_json:
        answer = {
            "run": run.model_dump(mode="json"),
            "config_hash": config.hash,
            "clients": {name: client.data for name, client in clients.items()},
            "directory": str(folder),
            "state": state,
            "minutes": None if seconds is None else round(seconds / 60, 2),
            "source": source,
        }
        print(canonical_json(answer))
    return ExitCode.OK


_STATES = {
    "new": "where nothing is yet",
    "begun": "where this run has begun and would go on",
    "finished": "which holds this run already, so nothing would be trained",
    "shorter": "which holds this run with fewer rounds, and it would go on to more",
}


def _stay_quiet() -> None:
    from aggregator.coordinator import event_log
    from shared.process.log import set_up

    set_up("error", silent=[event_log.NAME])
