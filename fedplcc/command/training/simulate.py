"""`fedplcc simulate`: a whole federation in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors
from fedplcc.command.training.local_training import (
    Assignments,
    Config,
    Device,
    Method,
    Out,
    Rounds,
    SamplesPerClass,
    Seed,
    chosen_federation,
    train_in_folder,
)
from fedplcc.command.training.tracking import Log
from fedplcc.interruption import interruptible
from fedplcc.shared.errors import InvalidConfig

# torch, numpy and gRPC take seconds to load: a command imports them itself, so that --help answers at once.
if TYPE_CHECKING:
    from fedplcc.runs.artifacts import RunRecord
    from fedplcc.runs.run_folder import RunFolder
    from fedplcc.simulation.watch import RunWatch
    from fedplcc.terminal.progress import RunProgress

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
EXAMPLES = examples(
    "fedplcc simulate --config run.toml --out results",
    "fedplcc simulate --seed 1 --jobs auto --log tensorboard",
    "fedplcc simulate --config run.toml --engine ray --ray-address 10.0.0.1:6379",
)


@explains_errors
def simulate(
    *,
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
        bool,
        typer.Option("--keep", help="Leave the state on the disk: the last rounds' models, and what --continue needs."),
    ] = False,
    extends: Annotated[
        bool,
        typer.Option(
            "--continue",
            help="Go on to more rounds in --out, the folder of the same run with fewer, which was trained with --keep.",
        ),
    ] = False,
    log: Log = None,
    as_json: bool,
) -> int | None:
    """Train without sockets, through the same service, store and training code as a deployment.

    Clients work one after another in this process or, with --jobs, beside each other. On one type of machine the results
    have the same bytes either way, and as those of a deployment.
    """
    from fedplcc.shared.config.settings import limit_threads
    from fedplcc.simulation.parallelism import parse_engine, parse_jobs

    engine_name = parse_engine(engine)
    num_jobs = parse_jobs(("1" if engine_name == "local" else "auto") if jobs is None else jobs)
    federation = chosen_federation(config, method, rounds, seed, samples_per_class, assignments)
    limit_threads(federation.config.training.threads)  # torch looks when it loads, which is below

    if extends and out is None:
        raise InvalidConfig("--continue needs --out, the folder of the run that is to go on")

    # Loaded late, for their libraries look at the number of threads too.
    from fedplcc.tracking.destinations import make_trackers

    trackers = make_trackers(log or ())

    def train(folder: RunFolder, progress: RunProgress, watch: RunWatch | None) -> RunRecord:
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
                watch=watch,
            )

    return train_in_folder(federation, out, train, keep=keep, as_json=as_json, extends=extends, watched_by=trackers)
