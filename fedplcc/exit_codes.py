"""What the command's exit code says, and the one place where an error becomes a sentence and a code.

0    it is done
1    the run failed or was stopped, or the request was refused: unknown run, a transition that is not allowed
2    the command line, a configuration file or a data set is wrong
3    nobody answers: no gateway or no aggregator at the address
4    a folder or a disk cannot be read or written
130  interrupted by Ctrl-C; the same command again goes on where that is possible
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import ParamSpec

import typer

from fedplcc.interruption import Interrupted
from shared.errors import FedplccError, InvalidArgument, StoreUnavailable, Unavailable


class ExitCode(IntEnum):
    """Codes of every `fedplcc` command; the services use 0, 2 and 4 alike."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    STORAGE = 4
    INTERRUPTED = 130


HELP = (
    "Exit codes: 0 done; 1 the run failed or the request was refused; 2 wrong usage, configuration or data; "
    "3 nobody answers there; 4 a folder cannot be used; 130 interrupted."
)

OURS = ("aggregator", "fedplcc", "gateway", "shared", "trainer")
"""Packages that are always installed: one that misses a module is a bug."""

Arguments = ParamSpec("Arguments")


def exit_code_of(error: FedplccError) -> ExitCode:
    """The exit code of an error of the tree."""
    if isinstance(error, InvalidArgument):
        return ExitCode.USAGE
    if isinstance(error, StoreUnavailable):
        return ExitCode.STORAGE
    if isinstance(error, Unavailable):
        return ExitCode.UNREACHABLE
    return ExitCode.FAILED


def explains_errors(command: Callable[Arguments, int | None]) -> Callable[Arguments, None]:
    """Decorate a command: what it returns is the exit code, and what it raises becomes one sentence on stderr.

    A traceback is left to bugs, that is to exceptions that are in nobody's contract.
    """

    @functools.wraps(command)
    def wrapped(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        try:
            code = command(*args, **kwargs) or ExitCode.OK
        except FedplccError as error:
            say(error.detail)
            code = exit_code_of(error)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] in OURS:
                raise
            say(f"this command needs {error.name}, which is not installed: pip install 'fedplcc[demo]'")
            code = ExitCode.USAGE
        except Interrupted as interruption:
            say(str(interruption) or "interrupted")
            code = ExitCode.INTERRUPTED
        except KeyboardInterrupt:
            say("interrupted")
            code = ExitCode.INTERRUPTED
        raise typer.Exit(int(code))

    return wrapped


def say(sentence: str) -> None:
    """Tell the person at the terminal what is wrong. Results go to stdout, so this goes to stderr."""
    print(f"fedplcc: {sentence}", file=sys.stderr, flush=True)
