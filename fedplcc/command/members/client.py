"""`fedplcc client`: who has a certificate, how it is taken away, and how a client is forgotten."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedplcc.command.actions import Words, check_words
from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors, say
from fedplcc.command.gateway_calls import Yes, ask_gateway, require_yes
from fedplcc.command.members.invite import InvitedRole
from fedplcc.command.members.state_dir import DEFAULT_STATE_DIR, StateDir
from fedplcc.command.shared_options import Way
from fedplcc.terminal.printable import printable


class MemberAction(StrEnum):
    """What is done about members."""

    LIST = "list"
    REVOKE = "revoke"
    FORGET = "forget"


WORDS = {
    MemberAction.LIST: Words(takes=("state_dir", "as_json")),
    MemberAction.REVOKE: Words(needs=("name",), takes=("role", "state_dir")),
    MemberAction.FORGET: Words(needs=("name",), takes=("yes", "way", "as_json")),
}
EXAMPLES = examples(
    "fedplcc client list",
    "fedplcc client revoke console --role gateway",
    "fedplcc client forget ward-3",
)


@explains_errors
def client(
    context: typer.Context,
    *,
    action: Annotated[MemberAction, typer.Argument(help="What is done.")],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="With revoke the holder of the certificates, with forget the client, as the console shows it.",
        ),
    ] = "",
    role: Annotated[
        InvitedRole, typer.Option(help="With revoke: what it does in the federation.")
    ] = InvitedRole.CLIENT,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    yes: Yes = False,
    way: Way,
    as_json: bool,
) -> None:
    """List the members that have a certificate, revoke one's, or forget a client.

    The list has the certificates that have not ended. Revoking takes every certificate of a member: its open calls end at
    once, and only another invitation admits it again. Forgetting asks the gateway, for a client that takes part in no open
    run: its entry and its uploads go, what it did in runs that have ended stays, its certificate holds on, and if it joins
    again, it is new.
    """
    check_words(context, action, WORDS)
    if action is MemberAction.LIST:
        _list(state_dir, as_json=as_json)
    elif action is MemberAction.REVOKE:
        _revoke(name, role, state_dir)
    else:
        _forget(name, way, yes=yes, as_json=as_json)


def _list(state_dir: Path, *, as_json: bool) -> None:
    """List the certificates that have not ended, newest first for each holder."""
    from fedplcc.remote.admin_calls import OPEN, admin_calls, is_open

    if is_open(state_dir):
        say(OPEN)
        holders = []
    else:
        with admin_calls(state_dir) as calls:
            holders = calls.holders()
    if as_json:
        print(json.dumps({"certificates": [asdict(holder) for holder in holders]}, indent=2))
        return
    for holder in holders:
        end = time.strftime("%Y-%m-%d", time.gmtime(holder.not_after))
        state = "revoked" if holder.revoked_at else f"until {end}"
        print(f"{holder.role:<8} {printable(holder.name):<24} {state:<17} {holder.serial}")


def _revoke(name: str, role: InvitedRole, state_dir: Path) -> None:
    from fedplcc.remote.admin_calls import admin_calls

    with admin_calls(state_dir) as calls:
        revoked = calls.revoke(role.value, name)
    print(f"{role.value} {name}: {revoked} certificate{'' if revoked == 1 else 's'} revoked")


def _forget(client: str, way: Way, *, yes: bool, as_json: bool) -> None:
    require_yes(f"Forget client {client}? Its entry and its uploads go.", yes=yes, what="forget it")
    forgotten = ask_gateway(way, lambda there: there.forget_client(client))
    print(forgotten.model_dump_json() if as_json else f"client {client} is forgotten; if it joins again, it is new")
