"""Options of a simulation's parallelism: `--jobs` and `--engine`. Loads nothing heavy."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal, get_args

from fedplcc.shared.errors import InvalidConfig

EngineName = Literal["local", "ray"]
"""Place of the clients' work: this machine, or a Ray cluster."""
AUTO = "auto"


def parse_engine(text: str) -> EngineName:
    """Return the engine that `--engine` names.

    Raises:
        InvalidConfig: There is no such engine.
        ModuleNotFoundError: Its package is not installed.
    """
    names: tuple[EngineName, ...] = get_args(EngineName)
    name = next((name for name in names if name == text), None)
    if name is None:
        raise InvalidConfig(f"there is no engine {text!r}; write {' or '.join(names)}")
    if name == "ray" and find_spec("ray") is None:
        raise ModuleNotFoundError("No module named 'ray'", name="ray")
    return name


def parse_jobs(text: str) -> int | None:
    """Return the number that `--jobs` gives; None for "auto".

    Raises:
        InvalidConfig: It is neither a number from 1 on nor "auto".
    """
    if text == AUTO:
        return None
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise InvalidConfig(f"--jobs {text}: write how many clients work at a time, from 1 on, or auto")
    return int(text)


def num_workers(jobs: int | None, *, num_clients: int, threads: int, num_cores: int) -> int:
    """Return how many clients work at a time.

    Args:
        jobs: Upper limit; None for as many as the processor cores allow.

    Raises:
        InvalidConfig: `jobs` is below 1.
    """
    if jobs is not None and jobs < 1:
        raise InvalidConfig(f"jobs = {jobs}: at least one client works at a time")
    return max(1, min(num_cores // threads if jobs is None else jobs, num_clients))
