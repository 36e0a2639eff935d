"""`fedplcc.simulate`: a run in this process, with the bytes of the command."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from fedplcc.interruption import Interrupted, interruptible_by_ctrl_c
from fedplcc.python_api.client import Client
from fedplcc.python_api.federation import ConfigSource, federation_of
from fedplcc.python_api.result import Result
from fedplcc.python_api.torch_settings import kept_torch_settings
from fedplcc.runs.artifacts import read_record
from fedplcc.runs.changed_files import changed_since
from fedplcc.runs.run_folder import claimed_folder
from fedplcc.shared.process.log import stay_quiet
from fedplcc.simulation import simulate_in_folder
from fedplcc.simulation.parallelism import EngineName, parse_engine, parse_jobs
from fedplcc.simulation.watch import RunWatch
from fedplcc.terminal.progress import RunProgress, console_for
from fedplcc.tracking.callbacks import Callback, RoundResult, RunEnd, RunStart
from fedplcc.tracking.destinations import make_trackers
from fedplcc.tracking.observation import Observation

OnRound = Callable[[RoundResult], object]


def simulate(
    config: ConfigSource | None = None,
    *,
    clients: Mapping[str, Client] | None = None,
    callbacks: Sequence[Callback | OnRound] = (),
    out: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    log: str | Sequence[str] = (),
    device: str = "auto",
    jobs: int | Literal["auto"] = 1,
    engine: str = "local",
    ray_address: str | None = None,
    keep: bool = False,
    progress: bool = False,
) -> Result:
    """Train a federation and return its result; equal configurations and data give the bytes of `fedplcc simulate`.

    The same call on the same folder goes on where it stopped, and returns the result at once where that is there. Works in a
    notebook and in a script without `if __name__ == "__main__"`: worker processes import no code of yours but what the
    configuration names.

    Args:
        config: A TOML file, its tables as a mapping, a RunConfig, or a recipe's name; if None the recipe for the clients'
            images, without clients the digits of four domains.
        clients: Clients with their data by name, instead of the configuration's tables and roster.
        callbacks: Told of each round, see `fedplcc.Callback`; a function takes the `RoundResult` alone.
        out: Folder for the results; `fedplcc-runs/NAME`, or the next free one, if None.
        settings: Keys to change, such as `{"run.rounds": 5, "training.batch_size": 16}`.
        log: Trackers, KIND or KIND:WHERE with the kinds tensorboard, mlflow, wandb and jsonl.
        device: Device of every client: auto, cpu, cuda or cuda:N.
        jobs: How many clients work at a time, more than one in processes of their own. Changes no byte.
        engine: "local", or "ray" for a Ray cluster. Changes no byte.
        ray_address: Which Ray cluster; one of this machine is started if None.
        keep: Whether the state stays on the disk, with the models of the last rounds.
        progress: Whether to print what the command prints; nothing is printed otherwise.

    Raises:
        InvalidConfig, InvalidData: The configuration or the data are wrong, with a sentence for every problem.
        KeyboardInterrupt: Ctrl-C; what was committed is kept, and the same call goes on from there.
        Exception: That of a callback, with a note which it was; likewise.
        Unavailable: The run is done and written, but a tracker lacks rounds; the same call sends them.
    """
    stay_quiet()
    num_jobs = None if jobs == "auto" else parse_jobs(str(jobs))
    engine_name: EngineName = parse_engine(engine)
    folder_wanted = None if out is None else Path(out)
    trackers = make_trackers([log] if isinstance(log, str) else log)
    told = [*trackers, *(_Kept(each if isinstance(each, Callback) else _Function(each)) for each in callbacks)]
    watch = RunWatch(Observation(told, _warn))
    federation = federation_of(config, clients, settings, folder_wanted)
    with closing(watch), kept_torch_settings(), claimed_folder(folder_wanted, federation) as folder:
        if (changed := changed_since(federation, folder.path)) is not None:
            _warn(f"{changed}; another out= trains anew")
        if folder.is_finished:
            record = read_record(folder.path)
            watch.ended_before(record, folder.path)
            return Result(folder.path, record=record, is_own=True)
        folder.prepare()
        console = console_for(json=False) if progress else Console(quiet=True)
        total_rounds = federation.config.run.rounds
        shown = (
            RunProgress(console, total_rounds=total_rounds) if progress else _Quiet(console, total_rounds=total_rounds)
        )
        try:
            with shown, interruptible_by_ctrl_c() as wished:
                record = simulate_in_folder(
                    federation,
                    folder,
                    shown,
                    device=device,
                    should_stop=wished.is_set,
                    jobs=num_jobs,
                    engine=engine_name,
                    ray_address=ray_address,
                    watch=watch,
                )
        except Interrupted:
            raise KeyboardInterrupt(
                f"what was committed is kept: the same call with out={str(folder.path)!r} goes on from there"
            ) from None
        watch.ends(record, folder.path)
        if record.status == "completed" and not keep:
            folder.remove_state()
        return Result(folder.path, record=record, is_own=True)


class _Kept(Callback):
    """A caller's callback: whatever it does to torch's settings is undone, so that it changes no byte of the run."""

    def __init__(self, inner: Callback) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """See `Callback`, as for the others."""
        return self._inner.name

    def on_start(self, run: RunStart) -> None:
        with kept_torch_settings():
            self._inner.on_start(run)

    def on_round(self, result: RoundResult) -> None:
        with kept_torch_settings():
            self._inner.on_round(result)

    def on_end(self, end: RunEnd) -> None:
        with kept_torch_settings():
            self._inner.on_end(end)


class _Function(Callback):
    """A function of a round."""

    def __init__(self, function: OnRound) -> None:
        self._function = function

    @property
    def name(self) -> str:
        return getattr(self._function, "__qualname__", type(self._function).__name__)

    def on_round(self, result: RoundResult) -> None:
        self._function(result)


class _Quiet(RunProgress):
    """Shows nothing; what a person should know of becomes a warning."""

    def problem(self, text: str) -> None:
        _warn(text)


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=2)
