"""`fedplcc run rm`, `archive`, `tag` and `note`: keep the list of runs in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors
from fedplcc.command.gateway_calls import (
    DEFAULT_GATEWAY,
    GatewayCa,
    GatewayUrl,
    Insecure,
    Json,
    RunId,
    Way,
    Yes,
    ask_gateway,
    nothing_changed,
)

if TYPE_CHECKING:
    from fedplcc.remote.rest_client import Gateway
    from shared.documents import DeletedRun, Run

app = typer.Typer()
"""Commands of the group `run`."""

RunIds = Annotated[
    list[str], typer.Argument(metavar="RUN...", help="Runs, as 'fedplcc run list' shows them.", show_default=False)
]


@app.command(
    "rm", epilog=examples("fedplcc run rm scans-97f12353", "fedplcc run rm scans-97f12353 scans-0c41d7e2 --yes")
)
@explains_errors
def remove(
    runs: RunIds,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    yes: Yes = False,
    as_json: Json = False,
) -> int:
    """Delete runs that have ended, with every model that no other run needs.

    Their lines stay: fedplcc run list --show deleted. With --json a line for each run.
    """
    from fedplcc.doctor.findings import in_bytes
    from fedplcc.terminal.question import agreed

    named = f"run {runs[0]}" if len(runs) == 1 else f"{len(runs)} runs"
    lost = "Models, prototypes and metrics are lost for good."
    if not agreed(f"Delete {named}? {lost}", yes=yes, what="delete"):
        return nothing_changed()

    def print_deleted(deleted: DeletedRun) -> None:
        sentence = f"run {deleted.run_id} is deleted: {in_bytes(deleted.freed_bytes)} are free again"
        print(deleted.model_dump_json() if as_json else sentence, flush=True)

    async def delete(there: Gateway) -> None:
        for run_id in dict.fromkeys(runs):
            print_deleted(await there.delete(run_id))

    ask_gateway(Way(gateway, insecure, gateway_ca), delete)
    return ExitCode.OK


@app.command(epilog=examples("fedplcc run archive scans-97f12353", "fedplcc run archive scans-97f12353 --undo"))
@explains_errors
def archive(
    runs: RunIds,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the runs back into the list.")] = False,
    as_json: Json = False,
) -> int:
    """Leave runs that have ended out of lists; nothing of them is lost. See them with: fedplcc run list --show archived."""

    async def put_away(there: Gateway) -> None:
        for run_id in dict.fromkeys(runs):
            run = await there.update(run_id, is_archived=not undo)
            what = "is back in the list" if undo else "is archived"
            print(run.model_dump_json() if as_json else f"run {run_id} {what}", flush=True)

    ask_gateway(Way(gateway, insecure, gateway_ca), put_away)
    return ExitCode.OK


@app.command(
    epilog=examples("fedplcc run tag scans-97f12353 paper seed=1", "fedplcc run tag scans-97f12353 --remove paper")
)
@explains_errors
def tag(
    run: RunId,
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="[TAG]...", help="Tags to add.", show_default=False)
    ] = None,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    remove: Annotated[list[str] | None, typer.Option(help="A tag to take away; repeatable.")] = None,
    as_json: Json = False,
) -> int:
    """Add tags to a run, take some away, or show those that it has."""

    async def change(there: Gateway) -> Run:
        found = await there.get_run(run)
        wanted = (set(found.tags) | set(tags or ())) - set(remove or ())
        return found if wanted == set(found.tags) else await there.update(run, tags=sorted(wanted))

    changed = ask_gateway(Way(gateway, insecure, gateway_ca), change)
    has = f"has the tags {' '.join(changed.tags)}" if changed.tags else "has no tags"
    print(changed.model_dump_json() if as_json else f"run {run} {has}")
    return ExitCode.OK


@app.command(epilog=examples("fedplcc run note scans-97f12353 'scanner 2 was off'", "fedplcc run note scans-97f12353"))
@explains_errors
def note(
    run: RunId,
    text: Annotated[
        str | None,
        typer.Argument(
            help="The notes from now on, plain text; '' for none. Printed if not given.", show_default=False
        ),
    ] = None,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    as_json: Json = False,
) -> int:
    """Write the notes of a run, or print them."""
    from fedplcc.terminal.printable import printable

    changed = ask_gateway(
        Way(gateway, insecure, gateway_ca),
        lambda there: there.get_run(run) if text is None else there.update(run, notes=text),
    )
    if as_json:
        print(changed.model_dump_json())
    elif text is None:
        print("\n".join(map(printable, changed.notes.splitlines())))
    else:
        print(f"run {run} has {'notes' if changed.notes else 'no notes'}")
    return ExitCode.OK
