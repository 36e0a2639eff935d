"""Options and steps that `demo` and `simulate` have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command import completion
from fedplcc.command.exit_codes import ExitCode, say
from fedplcc.interruption import Interrupted, end_if_interrupted

# torch, numpy and gRPC take seconds to load: a command imports them itself, so that --help answers at once.
if TYPE_CHECKING:
    from fedplcc.runs.artifacts import RunRecord
    from fedplcc.runs.run_folder import RunFolder
    from fedplcc.shared.config.run import FederationFile
    from fedplcc.simulation.watch import RunWatch
    from fedplcc.terminal.progress import RunProgress
    from fedplcc.tracking.callbacks import Callback

Config = Annotated[
    Path | None,
    typer.Option(
        help="Configuration file with a table [clients.NAME] for each client, or one table [partition]; digits of four "
        "domains if not given.",
        dir_okay=False,
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        help="Method, instead of the file's; it begins with its own defaults.", autocompletion=completion.methods
    ),
]
Rounds = Annotated[int | None, typer.Option(help="Number of rounds, instead of the file's.")]
Seed = Annotated[int | None, typer.Option(help="Seed, instead of the file's.")]
SamplesPerClass = Annotated[
    int | None, typer.Option(help="Training images per class of every client, instead of the file's.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other key, for instance training.batch_size=16."),
]
Device = Annotated[
    str,
    typer.Option(help="Device of every client: auto, cpu, cuda or cuda:N.", autocompletion=completion.devices),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for the results; fedplcc-runs/NAME if not given. The same command on the same folder goes on where "
        "it stopped.",
        file_okay=False,
    ),
]


def chosen_federation(
    config: Path | None,
    method: str | None,
    rounds: int | None,
    seed: int | None,
    samples_per_class: int | None,
    assignments: list[str] | None,
    *,
    has_stages: bool = False,
) -> FederationFile:
    """The configuration of a file, or of one of the demos, with the options in it."""
    from fedplcc.runs.configuration import Overrides, demo_file, read_federation, stream_demo_file
    from fedplcc.runs.initial_model import doubts
    from fedplcc.runs.readiness import idle_settings

    overrides = Overrides(
        method=method,
        rounds=rounds,
        seed=seed,
        samples_per_class=samples_per_class,
        assignments=assignments or (),
    )
    federation = read_federation(config or (stream_demo_file() if has_stages else demo_file()), overrides)
    for doubt in (*doubts(federation), *idle_settings([federation])):
        say(doubt)
    return federation


def train_in_folder(
    federation: FederationFile,
    out: Path | None,
    train: Callable[[RunFolder, RunProgress, RunWatch | None], RunRecord],
    *,
    keep: bool,
    as_json: bool,
    watched_by: Sequence[Callback] = (),
    extends: bool = False,
) -> int:
    """Choose the folder, train unless its results are there already, and print them; returns the exit code."""
    from fedplcc.aggregator.ledger import event_log
    from fedplcc.runs.artifacts import read_record
    from fedplcc.runs.changed_files import changed_since
    from fedplcc.runs.configuration import local_clients, require_validation
    from fedplcc.runs.initial_model import require_file
    from fedplcc.runs.run_folder import claimed_folder
    from fedplcc.shared.process.log import set_up
    from fedplcc.terminal.progress import RunProgress, console_for

    set_up("error", silent=[event_log.NAME])
    local_clients(federation)  # their mistakes are reported before a folder is made
    require_validation(federation)
    require_file(federation)
    console = console_for(json=as_json, outlasts_reader=True)
    end_if_interrupted()
    watch = None
    if watched_by:
        from fedplcc.simulation.watch import RunWatch
        from fedplcc.tracking.observation import Observation

        watch = RunWatch(Observation(watched_by, say))
    with (
        closing(watch) if watch is not None else nullcontext(),
        claimed_folder(out, federation, extends=extends) as folder,
    ):
        if (changed := changed_since(federation, folder.path)) is not None:
            say(changed)
        if folder.is_finished:
            console.print(f"{folder.path} holds this run already; choose another folder with --out to train it again")
            record = read_record(folder.path)
            if watch is not None:
                watch.ended_before(record, folder.path)
            return _conclude(record, folder.path, as_json=as_json)
        folder.prepare()
        try:
            config = federation.config
            with RunProgress(
                console,
                total_rounds=config.run.rounds,
                config=config.model_dump(mode="json"),
                method=config.run.method,
            ) as progress:
                record = train(folder, progress, watch)
        except (Interrupted, KeyboardInterrupt):
            raise Interrupted(
                f"interrupted; what was committed is kept: the same command with --out {folder.path} goes on from there"
            ) from None
        if watch is not None:
            watch.ends(record, folder.path)
        if record.status == "completed" and not keep:
            folder.remove_state()
        return _conclude(record, folder.path, as_json=as_json)


def _conclude(record: RunRecord, folder: Path, *, as_json: bool) -> int:
    """Print what stages taught, the run's end, its accuracy and the folder of its results; returns the exit code."""
    from fedplcc.runs.artifacts import describe, ending_of, summary
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.progress import console_for
    from fedplcc.terminal.stage_lines import StageMatrix

    console = console_for(json=as_json, outlasts_reader=True)
    stages = StageMatrix.of(record.metrics)
    for line in () if stages is None else stages.lines():
        console.print(line)
    for line in describe(record, folder):
        console.print(line)
    if as_json:
        print(canonical_json(summary(record, folder)), flush=True)
    if record.status != "completed":
        say(ending_of(record.manifest["run_id"], record.status, record.reason))
        return ExitCode.FAILED
    return ExitCode.OK
