"""`fedplcc client`: who has a certificate, and how it is taken away."""

from __future__ import annotations

from typing import Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors
from fedplcc.command.invite import InvitedRole
from fedplcc.command.state_dir import DEFAULT_STATE_DIR, StateDir

app = typer.Typer(help="List the members that have a certificate, or revoke one's.", no_args_is_help=True)


@app.command("list", epilog=examples("fedplcc client list", "fedplcc client list --json"))
@explains_errors
def list_(
    state_dir: StateDir = DEFAULT_STATE_DIR,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> int:
    """List the certificates that have not ended, newest first for each holder."""
    import json
    import time
    from dataclasses import asdict

    from fedplcc.remote.admin_calls import admin_calls
    from fedplcc.terminal.printable import printable

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
