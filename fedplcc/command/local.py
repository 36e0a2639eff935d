"""`fedplcc demo` and `fedplcc simulate`: a whole federation on this machine, as processes or in one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command import completion
from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors, say
from fedplcc.interruption import Interrupted, interruptible, run_interruptibly

# torch, numpy and gRPC take seconds to load: only a command that needs them does, so that --help answers at once.
if TYPE_CHECKING:
    from fedplcc.runs.artifacts import RunRecord
    from fedplcc.runs.run_folder import RunFolder
    from fedplcc.terminal.progress import RunProgress
    from shared.config.run import FederationFile

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
Json = Annotated[
    bool, typer.Option("--json", help="End with one JSON object as the last line of stdout; the rest goes to stderr.")
]
DEMO_EXAMPLES = examples("fedplcc demo", "fedplcc demo --rounds 2 --method fedavg --json")
Jobs = Annotated[
    str | None,
    typer.Option(
        metavar="N|auto",
        help="How many clients work at a time, each in a process of its own; auto for as many as there are processor cores "
        "for. 1 if not given, on Ray auto. Changes no result.",
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        metavar="local|ray",
        help="Where the clients work: on this machine, or on a Ray cluster (pip install 'fedplcc[ray]'). Changes no result.",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        envvar="RAY_ADDRESS",
        metavar="HOST:PORT",
        help="Ray cluster to work on; without one a cluster of this machine alone is started and ended.",
    ),
]
SIMULATE_EXAMPLES = examples(
    "fedplcc simulate --config run.toml --out results",
    "fedplcc simulate --seed 1 --set training.batch_size=16 --jobs auto",
    "fedplcc simulate --config run.toml --engine ray --ray-address 10.0.0.1:6379",
)


@explains_errors
def demo(
    config: Config = None,
    method: Method = None,
    rounds: Rounds = None,
    seed: Seed = None,
    samples_per_class: SamplesPerClass = None,
    assignments: Assignments = None,
    device: Device = "auto",
    out: Out = None,
    gateway_port: Annotated[
        int, typer.Option(help="Port of the gateway; 0 takes any free one.", min=0, max=65535, metavar="PORT")
    ] = 0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the processes running until Ctrl-C, and their state on the disk.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Train with an aggregator, trainers and a gateway as separate processes on this machine.

    Starts them on loopback, starts the run through the gateway, shows the accuracy of every domain after each round, writes
    the results and ends every process.
    """
    from shared.config.settings import limit_threads

    federation = _federation(config, method, rounds, seed, samples_per_class, assignments)
    limit_threads(federation.config.training.threads)  # inherited by the processes, before any of them loads a library

    def train(folder: RunFolder, progress: RunProgress) -> RunRecord:
        from fedplcc.local.demo import Demo

        work = Demo(federation, folder, progress, device=device, gateway_port=gateway_port)
        return run_interruptibly(work.run(keep=keep))

    return _train_in_folder(federation, out, train, keep=keep, as_json=as_json)


@explains_errors
def simulate(
    config: Config = None,
    method: Method = None,
    rounds: Rounds = None,
    seed: Seed = None,
    samples_per_class: SamplesPerClass = None,
    assignments: Assignments = None,
    device: Device = "auto",
    jobs: Jobs = None,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    out: Out = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the state on the disk: the models of the last rounds.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Train without sockets, through the same service, store and training code as a deployment.

    Clients work one after another in this process or, with --jobs, beside each other. On one type of machine the results
    have the same bytes either way, and as those of a deployment.
    """
    from fedplcc.simulation.parallelism import parse_engine, parse_jobs
    from shared.config.settings import limit_threads

    engine_name = parse_engine(engine)
    num_jobs = parse_jobs(("1" if engine_name == "local" else "auto") if jobs is None else jobs)
    federation = _federation(config, method, rounds, seed, samples_per_class, assignments)
    limit_threads(federation.config.training.threads)  # torch looks when it loads, which is below

    def train(folder: RunFolder, progress: RunProgress) -> RunRecord:
        from fedplcc.simulation import simulate_in_folder

        with interruptible() as wished:
            return simulate_in_folder(
                federation,
                folder,
                progress,
                device=device,
                should_stop=wished.is_set,
                jobs=num_jobs,
                engine=engine_name,
                ray_address=ray_address,
            )

    return _train_in_folder(federation, out, train, keep=keep, as_json=as_json)


def _federation(
    config: Path | None,
    method: str | None,
    rounds: int | None,
    seed: int | None,
    samples_per_class: int | None,
    assignments: list[str] | None,
) -> FederationFile:
    from fedplcc.runs.configuration import Overrides, demo_file, read_federation

    overrides = Overrides(
        method=method,
        rounds=rounds,
        seed=seed,
        samples_per_class=samples_per_class,
        assignments=assignments or (),
    )
    return read_federation(config or demo_file(), overrides)


def _train_in_folder(
    federation: FederationFile,
    out: Path | None,
    train: Callable[[RunFolder, RunProgress], RunRecord],
    *,
    keep: bool,
    as_json: bool,
) -> int:
    """Choose the folder, train unless the results are there already, and show them; returns the exit code."""
    from aggregator.coordinator import event_log
    from fedplcc.runs.artifacts import read_record
    from fedplcc.runs.configuration import local_clients
    from fedplcc.runs.initial_model import require_file
    from fedplcc.runs.run_folder import claimed_folder
    from fedplcc.terminal.progress import RunProgress, console_for
    from shared.process.log import set_up

    set_up("error", silent=[event_log.NAME])
    local_clients(federation)  # what is wrong with them is said before a folder is made
    require_file(federation)
    console = console_for(json=as_json)
    with claimed_folder(out, federation) as folder:
        if folder.is_finished:
            console.print(f"{folder.path} holds this run already; choose another folder with --out to train it again")
            return _conclude(read_record(folder.path), folder.path, as_json=as_json)
        folder.prepare()
        try:
            with RunProgress(console, total_rounds=federation.config.run.rounds) as progress:
                record = train(folder, progress)
        except (Interrupted, KeyboardInterrupt):
            raise Interrupted(
                f"interrupted; what was committed is kept: the same command with --out {folder.path} goes on from there"
            ) from None
        if record.status == "completed" and not keep:
            folder.remove_state()
        return _conclude(record, folder.path, as_json=as_json)


def _conclude(record: RunRecord, folder: Path, *, as_json: bool) -> int:
    """Say how the run ended, how good it is and where the results are; returns the exit code."""
    from fedplcc.runs.artifacts import describe, ending_of, summary
    from fedplcc.terminal.progress import console_for
    from shared.config.run import canonical_json

    console = console_for(json=as_json)
    for line in describe(record, folder):
        console.print(line)
    if as_json:
        print(canonical_json(summary(record, folder)), flush=True)
    if record.status != "completed":
        say(ending_of(record.manifest["run_id"], record.status, record.reason))
        return ExitCode.FAILED
    return ExitCode.OK
