"""`fedplcc client`: who has a certificate, how it is taken away, and how a client is forgotten."""

from __future__ import annotations

from typing import Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import HELP, ExitCode, explains_errors, say
from fedplcc.command.gateway_calls import Yes, ask_gateway, nothing_changed
from fedplcc.command.members.invite import InvitedRole
from fedplcc.command.members.state_dir import DEFAULT_STATE_DIR, StateDir
from fedplcc.command.shared_options import Way

app = typer.Typer(
    help="List the members that have a certificate, revoke one's, or forget a client.",
    epilog=HELP,
    no_args_is_help=True,
)


@app.command("list", epilog=examples("fedplcc client list", "fedplcc client list --json"))
@explains_errors
def list_(
    *,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    as_json: bool,
) -> int:
    """List the certificates that have not ended, newest first for each holder."""
    import json
    import time
    from dataclasses import asdict

    from fedplcc.remote.admin_calls import OPEN, admin_calls, is_open
    from fedplcc.terminal.printable import printable

    if is_open(state_dir):
        say(OPEN)
        holders = []
    else:
        with admin_calls(state_dir) as calls:
            holders = calls.holders()
    if as_json:
        print(json.dumps({"certificates": [asdict(holder) for holder in holders]}, indent=2))
        return ExitCode.OK
    for holder in holders:
        end = time.strftime("%Y-%m-%d", time.gmtime(holder.not_after))
        state = "revoked" if holder.revoked_at else f"until {end}"
        print(f"{holder.role:<8} {printable(holder.name):<24} {state:<17} {holder.serial}")
    return ExitCode.OK


@app.command(epilog=examples("fedplcc client revoke north", "fedplcc client revoke console --role gateway"))
@explains_errors
def revoke(
    name: Annotated[str, typer.Argument(help="Holder of the certificates.", show_default=False)],
    role: Annotated[InvitedRole, typer.Option(help="What it does in the federation.")] = InvitedRole.CLIENT,
    state_dir: StateDir = DEFAULT_STATE_DIR,
) -> int:
    """Revoke every certificate of a member: its open calls end at once, and only another invitation admits it again."""
    from fedplcc.remote.admin_calls import admin_calls

    with admin_calls(state_dir) as calls:
        revoked = calls.revoke(role.value, name)
    print(f"{role.value} {name}: {revoked} certificate{'' if revoked == 1 else 's'} revoked")
    return ExitCode.OK


@app.command(epilog=examples("fedplcc client forget ward-3", "fedplcc client forget ward-3 --yes --json"))
@explains_errors
def forget(
    *,
    client: Annotated[
        str, typer.Argument(metavar="CLIENT", help="The client, as the console shows it.", show_default=False)
    ],
    yes: Yes = False,
    way: Way,
    as_json: bool,
) -> int:
    """Forget a client that takes part in no open run. If it joins again, it is new.

    What it did in runs that have ended stays. Its certificate holds on: fedplcc client revoke takes it away.
    """
    from fedplcc.terminal.question import agreed

    if not agreed(f"Forget client {client}? Its entry and its uploads go.", yes=yes, what="forget it"):
        return nothing_changed()
    forgotten = ask_gateway(way, lambda there: there.forget_client(client))
    print(forgotten.model_dump_json() if as_json else f"client {client} is forgotten; if it joins again, it is new")
    return ExitCode.OK
