"""How many clients of a simulation work at a time, and where, as people say it. Loads nothing heavy."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal, get_args

from shared.errors import InvalidConfig

EngineName = Literal["local", "ray"]
"""Where clients work: on this machine, or on a Ray cluster."""
AUTO = "auto"


def parse_engine(text: str) -> EngineName:
    """Where clients are to work, as a person writes it.

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
    """How many clients are to work at a time, as a person writes it; None for "auto".

    Raises:
        InvalidConfig: It is neither a number from 1 on nor "auto".
    """
    if text == AUTO:
        return None
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise InvalidConfig(f"--jobs {text}: write how many clients work at a time, from 1 on, or auto")
    return int(text)


def num_workers(jobs: int | None, *, num_clients: int, threads: int, num_cores: int) -> int:
    """How many clients work at a time.

    Args:
        jobs: How many were asked for, at most; None for as many as there are processor cores for.
        num_clients: How many clients there are.
        threads: Processor threads of one client's training.
        num_cores: Processor cores.

    Raises:
        InvalidConfig: Nobody would work.
    """
    if jobs is not None and jobs < 1:
        raise InvalidConfig(f"jobs = {jobs}: at least one client works at a time")
    return max(1, min(num_cores // threads if jobs is None else jobs, num_clients))
