"""`fedplcc demo`: a whole federation as separate processes on this machine."""

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
from fedplcc.interruption import run_interruptibly
from fedplcc.shared.errors import InvalidConfig

# torch, numpy and gRPC take seconds to load: a command imports them itself, so that --help answers at once.
if TYPE_CHECKING:
    from fedplcc.runs.artifacts import RunRecord
    from fedplcc.runs.run_folder import RunFolder
    from fedplcc.simulation.watch import RunWatch
    from fedplcc.terminal.progress import RunProgress

EXAMPLES = examples("fedplcc demo", "fedplcc demo --rounds 2 --method fedavg --json", "fedplcc demo --stream")


@explains_errors
def demo(
    *,
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
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Digits 0 to 4, then 5 to 9: what the stages teach and what the model forgets, as clients come and go.",
        ),
    ] = False,
    as_json: bool,
) -> int:
    """Train with an aggregator, trainers and a gateway as separate processes on this machine.

    Starts them on loopback, starts the run through the gateway, shows the accuracy of every domain after each round, writes
    the results and ends every process.
    """
    from fedplcc.shared.config.settings import limit_threads

    if stream and config is not None:
        raise InvalidConfig("--stream is a demo of its own: leave out --config, or write [stream] into that file")
    federation = chosen_federation(config, method, rounds, seed, samples_per_class, assignments, has_stages=stream)
    limit_threads(federation.config.training.threads)  # inherited by the processes, before any of them loads a library

    def train(folder: RunFolder, progress: RunProgress, watch: RunWatch | None) -> RunRecord:
        from fedplcc.local.demo import Demo

        work = Demo(federation, folder, progress, device=device, gateway_port=gateway_port)
        return run_interruptibly(work.run(keep=keep))

    return train_in_folder(federation, out, train, keep=keep, as_json=as_json)
