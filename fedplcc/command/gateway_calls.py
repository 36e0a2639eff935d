"""Options of the commands that call a gateway, and the steps that they share."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from fedplcc.command.exit_codes import ExitCode, say
from fedplcc.interruption import run_interruptibly

if TYPE_CHECKING:
    from fedplcc.remote.rest_client import Gateway
    from shared.documents import Run

Result = TypeVar("Result")

GatewayUrl = Annotated[
    str,
    typer.Option(
        "--gateway", envvar="FEDPLCC_GATEWAY", help="Where the gateway is: https://HOST:PORT, or http:// on loopback."
    ),
]
DEFAULT_GATEWAY = "http://127.0.0.1:8080"
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        envvar="FEDPLCC_INSECURE",
        help="Accept plain text to a gateway on another machine; trust the network.",
    ),
]
GatewayCa = Annotated[
    Path | None,
    typer.Option(
        "--gateway-ca",
        envvar="FEDPLCC_GATEWAY_CA",
        help="Certificates that an https gateway is checked against, in PEM, or a member's identity.pem; those that "
        "'fedplcc login' kept if not given, else the system's.",
        dir_okay=False,
        show_default=False,
    ),
]
RunId = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, as 'fedplcc run list' shows it.", show_default=False)
]
ClientId = Annotated[
    str,
    typer.Argument(metavar="CLIENT", help="The client's id, as 'fedplcc run status' shows it.", show_default=False),
]
RequestId = Annotated[
    str | None,
    typer.Option(
        "--request-id",
        help="Names this request: the same one again changes nothing, whatever came since. A random one if not given.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout; everything else goes to stderr.")]


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first; needed where nobody sits at a terminal.")]


class Way(NamedTuple):
    """How a gateway is reached."""

    url: str
    insecure: bool
    ca: Path | None


def key_of(request_id: str | None) -> str:
    """A request's id: as given, or a random one.

    Raises:
        InvalidConfig: The gateway would refuse it; an empty id too, which is a variable that is not set.
    """
    from shared.documents import REQUEST_ID
    from shared.errors import InvalidConfig

    if request_id is None:
        return uuid.uuid4().hex
    if re.fullmatch(REQUEST_ID, request_id) is None:
        raise InvalidConfig("--request-id: write 1 to 128 letters, digits and signs of ASCII, without spaces")
    return request_id


def ask_gateway(way: Way, question: Callable[[Gateway], Coroutine[Any, Any, Result]]) -> Result:
    """Run a coroutine with a connected gateway; returns its result."""
    from fedplcc.remote.rest_client import Gateway

    async def ask() -> Result:
        async with Gateway(way.url, insecure=way.insecure, ca=way.ca) as there:
            return await question(there)

    return run_interruptibly(ask())


def change_run(way: Way, change: Callable[[Gateway], Coroutine[Any, Any, Run]], *, as_json: bool) -> int:
    """Change a run through a gateway, and print what it is then."""
    run = ask_gateway(way, change)
    print_run(run, sentence_of_run(run), as_json=as_json)
    return ExitCode.OK


def nothing_changed() -> int:
    """Say that a question was answered with no; returns the exit code."""
    say("nothing was changed")
    return ExitCode.FAILED


def print_run(run: Run, sentence: str, *, as_json: bool) -> None:
    """Print a run as JSON, or as a sentence."""
    print(run.model_dump_json() if as_json else sentence)


def sentence_of_run(run: Run) -> str:
    """A run's method, status, reason and round in a sentence."""
    where = "not begun" if run.round < 0 else f"round {run.round} of {run.total_rounds} {run.phase}"
    waits = ", a pause waits for the round to commit" if run.is_pause_requested else ""
    reason = f" ({run.reason})" if run.reason else ""
    return f"run {run.run_id}: {run.method}, {run.status}{reason}, {where}{waits}"
