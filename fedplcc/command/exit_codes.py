"""Exit codes, and the one place that turns an error into a sentence and a code."""

from __future__ import annotations

import errno
import functools
import inspect
import os
import sys
from collections.abc import Callable
from enum import IntEnum
from traceback import walk_tb
from typing import Any, Self

import typer

from fedplcc.command import shared_options
from fedplcc.command.examples import LINE_END
from fedplcc.extras import EXTRAS
from fedplcc.interruption import Interrupted, was_interrupted
from fedplcc.shared.errors import FedplccError, InvalidArgument, StoreUnavailable, Unavailable
from fedplcc.terminal.printable import printable

PARSERS = ("json.", "tomllib.")
"""Modules that read files which others may have written."""


class ExitCode(IntEnum):
    """Exit codes of every `fedplcc` command; the services use 0, 2 and 4 in the same sense."""

    OK = 0, "done"
    FAILED = 1, "the run failed or was stopped, a check found a problem, or the request was refused"
    USAGE = (
        2,
        "the command line, a configuration or data are wrong, a package is missing, or open files or memory too few",
    )
    UNREACHABLE = 3, "nobody answers: no gateway or no aggregator at the address"
    STORAGE = 4, "a folder or a disk cannot be read or written"
    COLLECTED = 5, "what is asked for was collected, as the aggregator's settings keep_models and keep_updates say"
    INTERRUPTED = 130, "interrupted; the same command again goes on where that is possible"

    meaning: str
    """Its meaning for people."""

    def __new__(cls, code: int, meaning: str) -> Self:
        """A code with its meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


HELP = LINE_END.join(("Exit codes:", *(f"{code.value}: {code.meaning}" for code in ExitCode)))
"""The codes at the end of a help text."""

SHARED = ("way", "as_json")
"""Parameters of commands that are filled in from the shared options."""


def exit_code_of(error: FedplccError) -> ExitCode:
    """The exit code of an error from the tree of shared/errors.py."""
    if isinstance(error, InvalidArgument):
        return ExitCode.USAGE
    if isinstance(error, StoreUnavailable):
        return ExitCode.STORAGE
    if isinstance(error, Unavailable):
        return ExitCode.UNREACHABLE
    return ExitCode.FAILED


def explains_errors(command: Callable[..., int | None]) -> Callable[..., None]:
    """Decorate a command: its result is the exit code, its error becomes one sentence on stderr.

    Its parameters `way` and `as_json` come from the shared options and are no options of its own. Only bugs keep their
    traceback: exceptions that no contract names.
    """
    signature = inspect.signature(command, eval_str=True)
    shared = [name for name in SHARED if name in signature.parameters]

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            code = command(*args, **kwargs, **shared_options.values_for(shared)) or ExitCode.OK
            sys.stdout.flush()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
            if error.filename is None and sys.stdout is sys.__stdout__:  # what is left of the output is lost
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            say(f"cannot write {error.filename or 'the output'}: {os.strerror(error.errno).lower()}")
            code = ExitCode.STORAGE
        except FedplccError as error:
            say(error.detail)
            code = exit_code_of(error)
        except RecursionError as error:
            if not any(frame.f_globals["__name__"].startswith(PARSERS) for frame, _ in walk_tb(error.__traceback__)):
                raise
            say("a file has lists or tables nested deeper than any that fedplcc writes: it is another's")
            code = ExitCode.USAGE
        except Interrupted as interruption:
            say(str(interruption) or "interrupted")
            code = ExitCode.INTERRUPTED
        except KeyboardInterrupt:
            say("interrupted")
            code = ExitCode.INTERRUPTED
        except ModuleNotFoundError as error:
            if was_interrupted() or error.name is None or error.name.partition(".")[0] == "fedplcc":
                raise
            say(f"this command needs {error.name}, which is not installed: pip install '{_extra_of(error.name)}'")
            code = ExitCode.USAGE
        except ImportError as error:  # of a library that is installed
            if "failed to map segment" not in str(error):
                raise
            say(
                "this process has too little memory or address space for a library that it needs; raise the limit: ulimit -v"
            )
            code = ExitCode.USAGE
        raise typer.Exit(int(code))

    own = [parameter for name, parameter in signature.parameters.items() if name not in shared]
    wrapped.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    wrapped.__doc__ = "\n\n".join(filter(None, (inspect.getdoc(command), shared_options.taken_note(shared))))
    return wrapped


def say(sentence: str) -> None:
    """Print an error or a warning on one line of stderr; stdout is for results."""
    print(f"fedplcc: {printable(sentence)}", file=sys.stderr, flush=True)


def _extra_of(module: str) -> str:
    name = module.partition(".")[0]
    return f"fedplcc[{next((extra for extra, modules in EXTRAS.items() if name in modules), 'demo')}]"
