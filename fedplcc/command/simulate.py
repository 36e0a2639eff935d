"""`fedplcc simulate`: a whole federation in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors
from fedplcc.command.local_training import (
    Assignments,
    Config,
    Device,
    Json,
    Method,
    Out,
    Rounds,
    SamplesPerClass,
    Seed,
    chosen_federation,
    train_in_folder,
)
from fedplcc.interruption import interruptible

# torch, numpy and gRPC take seconds to load: a command imports them itself, so that --help answers at once.
if TYPE_CHECKING:
    from fedplcc.runs.artifacts import RunRecord
    from fedplcc.runs.run_folder import RunFolder
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
    "fedplcc simulate --seed 1 --set training.batch_size=16 --jobs auto",
    "fedplcc simulate --config run.toml --engine ray --ray-address 10.0.0.1:6379",
)


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
    federation = chosen_federation(config, method, rounds, seed, samples_per_class, assignments)
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

    return train_in_folder(federation, out, train, keep=keep, as_json=as_json)
