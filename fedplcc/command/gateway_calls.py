"""Steps that the commands share that call a gateway."""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fedplcc.command.exit_codes import ExitCode, say
from fedplcc.command.shared_options import Way
from fedplcc.interruption import run_interruptibly
from fedplcc.shared.errors import InvalidConfig
from fedplcc.terminal.printable import printable

if TYPE_CHECKING:
    from fedplcc.gateway_client.clients import AsyncGateway
    from fedplcc.shared.documents import Run

Result = TypeVar("Result")

RequestId = Annotated[
    str | None,
    typer.Option(
        "--request-id",
        help="Names this request: the same one again changes nothing, whatever came since. A random one if not given.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first; needed where nobody sits at a terminal.")]


def key_of(request_id: str | None) -> str:
    """A request's id: as given, or a random one.

    Raises:
        InvalidConfig: The gateway would refuse it; an empty id too, which is a variable that is not set.
    """
    from fedplcc.shared.documents import REQUEST_ID

    if request_id is None:
        return uuid.uuid4().hex
    if re.fullmatch(REQUEST_ID, request_id) is None:
        raise InvalidConfig("--request-id: write 1 to 128 letters, digits and signs of ASCII, without spaces")
    return request_id


def ask_gateway(way: Way, question: Callable[[AsyncGateway], Coroutine[Any, Any, Result]]) -> Result:
    """Run a coroutine with a connected gateway; returns its result."""
    from fedplcc.gateway_client.clients import AsyncGateway

    async def ask() -> Result:
        async with AsyncGateway(way.url, insecure=way.insecure, ca=way.ca) as there:
            return await question(there)

    return run_interruptibly(ask())


def change_run(way: Way, change: Callable[[AsyncGateway], Coroutine[Any, Any, Run]], *, as_json: bool) -> None:
    """Change a run through a gateway, and print what it is then."""
    run = ask_gateway(way, change)
    print_run(run, sentence_of_run(run), as_json=as_json)


def is_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def require_yes(question: str, *, yes: bool, what: str) -> None:
    """Ask on the terminal before what cannot be undone, unless `yes` answers; end the command on any other answer.

    Raises:
        InvalidConfig: Nobody sits at a terminal, and the answer was not given: add --yes to `what`.
    """
    if yes:
        return
    if not is_terminal():
        raise InvalidConfig(f"nobody can be asked here: add --yes to {what}")
    # To stderr: stdout is for results.
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say("nothing was changed")
        raise typer.Exit(ExitCode.FAILED)


def print_run(run: Run, sentence: str, *, as_json: bool) -> None:
    """Print a run as JSON, or as a sentence."""
    print(run.model_dump_json() if as_json else sentence)


def sentence_of_run(run: Run) -> str:
    """A run's method, status, reason and round in a sentence that a terminal can be given."""
    where = "not begun" if run.round < 0 else f"round {run.round} of {run.total_rounds} {run.phase}"
    waits = ", a pause waits for the round to commit" if run.is_pause_requested else ""
    reason = f" ({run.reason})" if run.reason else ""
    return printable(f"run {run.run_id}: {run.method}, {run.status}{reason}, {where}{waits}")
