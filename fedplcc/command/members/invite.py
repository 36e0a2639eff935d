"""`fedplcc invite`: one line that admits one site, gateway or monitor to the federation."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors, say
from fedplcc.command.members.state_dir import DEFAULT_STATE_DIR, StateDir

EXAMPLES = examples(
    "fedplcc invite north --address fl.example.org",
    "fedplcc invite north --domain photo --valid 7d",
    "fedplcc invite prometheus --role monitor",
)


class InvitedRole(StrEnum):
    """Roles that are invited."""

    CLIENT = "client"
    GATEWAY = "gateway"
    MONITOR = "monitor"


@explains_errors
def invite(
    name: Annotated[str, typer.Argument(help="Whom the invitation admits.")],
    domain: Annotated[str, typer.Option(help="Label of the domain of a client's data.")] = "",
    role: Annotated[InvitedRole, typer.Option(help="What it does in the federation.")] = InvitedRole.CLIENT,
    valid: Annotated[str, typer.Option(help="How long the invitation holds: 30m, 24h or 7d.")] = "24h",
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Take the name from its holder, whose certificates are revoked when this joins."
        ),
    ] = False,
    address: Annotated[
        str,
        typer.Option(
            help="HOST or HOST:PORT at which the other host reaches this one's port of invitations; this host's own "
            "address if not given.",
            metavar="HOST[:PORT]",
            envvar="FEDPLCC_INVITE_ADDRESS",
        ),
    ] = "",
    state_dir: StateDir = DEFAULT_STATE_DIR,
) -> None:
    """Invite a site: print one line for its owner, who gives it to `fedplcc join` there.

    The line admits one key, once. Hand it over as you would a password.
    """
    from fedplcc.command.members.durations import seconds_of
    from fedplcc.remote.admin_calls import admin_calls
    from fedplcc.remote.own_address import invitation_address

    valid_s = seconds_of(valid, "--valid")
    with admin_calls(state_dir) as calls:
        where = invitation_address(address, calls.host, calls.enrol_port)
        code, expires_at = calls.invite(
            role.value, name, address=where, domain=domain, valid_s=valid_s, replaces=replace
        )
    end = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(expires_at))
    say(f"{role.value} {name} may join at {where} until {end}; run 'fedplcc join' there and paste this line")
    print(code.text)
