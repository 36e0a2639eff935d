"""`fedplcc run client`: which clients take part in a run, and what their sites let out of their logs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.actions import Words, check_words
from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors, say
from fedplcc.command.gateway_calls import RequestId, ask_gateway, change_run, key_of
from fedplcc.command.run.choosing import RunId
from fedplcc.command.shared_options import Way
from fedplcc.terminal.printable import printable

if TYPE_CHECKING:
    from fedplcc.gateway_client.clients import AsyncGateway
    from fedplcc.shared.documents import ClientLog, Run

EXAMPLES = examples(
    "fedplcc run client admit scans-97f12353 ward-3 ward-4",
    'fedplcc run client quarantine scans-97f12353 ward-3 --reason "broken"',
    "fedplcc run client log scans-97f12353 ward-3",
)


class ClientVerb(StrEnum):
    """What is done about a run's client."""

    ADMIT = "admit"
    RETIRE = "retire"
    QUARANTINE = "quarantine"
    RELEASE = "release"
    LOG = "log"


ALWAYS = ("run", "clients", "way", "as_json")
WORDS = {
    ClientVerb.ADMIT: Words(takes=(*ALWAYS, "request_id")),
    ClientVerb.RETIRE: Words(takes=(*ALWAYS, "request_id", "forget")),
    ClientVerb.QUARANTINE: Words(takes=(*ALWAYS, "request_id", "reason")),
    ClientVerb.RELEASE: Words(takes=(*ALWAYS, "request_id")),
    ClientVerb.LOG: Words(takes=ALWAYS),
}


@explains_errors
def client(
    context: typer.Context,
    *,
    action: Annotated[ClientVerb, typer.Argument(help="What is done.")],
    run: RunId,
    clients: Annotated[
        list[str],
        typer.Argument(metavar="CLIENT", help="The clients, as 'fedplcc run status' shows them."),
    ],
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="With retire: later pools are without its prototypes, and its trainer deletes what it keeps of the run.",
        ),
    ] = False,
    reason: Annotated[str, typer.Option(help="With quarantine: why, for the run's history and for the client.")] = "",
    request_id: RequestId = None,
    way: Way,
    as_json: bool,
) -> None:
    """Admit, retire, quarantine or release clients of a run, or read their logs. Doing it again changes nothing.

    Admitted clients take part from the next round on. A retired one's part in the open round ends, and no later round has
    it. A quarantined one is left out until it is released, with nothing held against it then. `log` prints what the owners
    of the sites let out of their trainers' logs, as far as it is about this run or about none.
    """
    check_words(context, action, WORDS)
    if action is ClientVerb.LOG:

        async def logs(there: AsyncGateway) -> list[ClientLog]:
            await there.get_run(run)  # an id with a slip in it has no lines
            return [await there.get_client_log(client_id) for client_id in clients]

        for client_id, log in zip(clients, ask_gateway(way, logs), strict=True):
            _print_log(run, client_id, log, as_json=as_json)
        return
    key = key_of(request_id)

    async def change_one(there: AsyncGateway, client_id: str) -> Run:
        of_one = _key_for(key, client_id, clients)
        if action is ClientVerb.ADMIT:
            return await there.admit_client(run, client_id, request_id=of_one)
        if action is ClientVerb.RETIRE:
            return await there.retire_client(run, client_id, forget=forget, request_id=of_one)
        if action is ClientVerb.QUARANTINE:
            return await there.quarantine_client(run, client_id, reason=reason, request_id=of_one)
        return await there.release_client(run, client_id, request_id=of_one)

    async def change(there: AsyncGateway) -> Run:
        for client_id in clients[:-1]:
            await change_one(there, client_id)
        return await change_one(there, clients[-1])

    change_run(way, change, as_json=as_json)


def _print_log(run_id: str, client_id: str, log: ClientLog, *, as_json: bool) -> None:
    """Print a client's log lines of a run and of none, or say why there are none."""
    lines = [line for line in log.lines if line.run_id in (None, run_id)]
    if as_json:
        print(log.model_copy(update={"lines": lines}).model_dump_json())
        return
    for line in lines:
        where = "" if line.round is None else f"round {line.round}  "
        facts = ", ".join(f"{name} {text}" for name, text in line.facts.items())
        print(
            printable(
                f"{line.time:%Y-%m-%d %H:%M:%SZ}  {client_id}  {line.level:<7}  {where}{line.event}  {facts}".rstrip()
            )
        )
    if log.level is None:
        say(f"no trainer of {client_id} has said what its owner lets out since the aggregator was started")
    elif log.level == "none":
        say(f"{client_id}'s owner lets no log lines out")
    elif log.left_out:
        say(f"lines of {client_id} that had to be left out: {log.left_out}")


def _key_for(key: str, client: str, clients: Sequence[str]) -> str:
    """Return the request id for one of several clients, the same in every repetition of the command."""
    return key if len(clients) == 1 else hashlib.sha256(f"{key}/{client}".encode()).hexdigest()
