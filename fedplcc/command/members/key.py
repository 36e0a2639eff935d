"""`fedplcc key`: keys of people and programs."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.actions import Words, check_words
from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors, say
from fedplcc.command.gateway_calls import ask_gateway, sentence_of_run
from fedplcc.command.members.state_dir import DEFAULT_STATE_DIR, StateDir
from fedplcc.command.shared_options import Way
from fedplcc.terminal.printable import printable

if TYPE_CHECKING:
    from fedplcc.remote.admin_calls import HeldKey


class ScopeName(StrEnum):
    """What a key may do."""

    READ = "read"
    RESULTS = "results"
    RUN = "run"
    ADMIN = "admin"
    METRICS = "metrics"


class KeyAction(StrEnum):
    """What is done about keys."""

    CREATE = "create"
    LIST = "list"
    REVOKE = "revoke"


WORDS = {
    KeyAction.CREATE: Words(needs=("key", "scope"), takes=("valid", "state_dir")),
    KeyAction.LIST: Words(takes=("state_dir", "as_json")),
    KeyAction.REVOKE: Words(needs=("key",), takes=("stop_runs", "state_dir", "way")),
}
EXAMPLES = examples(
    "fedplcc key create prometheus --scope metrics --valid 365d",
    "fedplcc key list",
    "fedplcc key revoke 0123456789ab --stop-runs",
)


@explains_errors
def key(
    context: typer.Context,
    *,
    action: Annotated[KeyAction, typer.Argument(help="What is done.")],
    key: Annotated[
        str,
        typer.Argument(
            metavar="LABEL|KEY",
            help="With create a name for people, with revoke the key's id, as 'fedplcc key list' shows it.",
        ),
    ] = "",
    scope: Annotated[
        list[ScopeName] | None,
        typer.Option(
            help="With create: what it may do; read, results, run and admin include those before them. May be repeated."
        ),
    ] = None,
    valid: Annotated[str, typer.Option(help="With create: how long it holds: 30m, 24h or 90d.")] = "90d",
    stop_runs: Annotated[
        bool,
        typer.Option(
            "--stop-runs",
            help="With revoke: stop open runs of the key, its sessions or its person, through the gateway; needs a login of "
            "scope admin.",
        ),
    ] = False,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    way: Way,
    as_json: bool,
) -> None:
    """Make, list and revoke the keys that a gateway asks for.

    A key is shown once, when it is made, and kept nowhere. The list has the console's sessions too, and no secrets. A
    revoked key and the sessions that go back to it are refused from then on, and their open streams end.
    """
    check_words(context, action, WORDS)
    if action is KeyAction.CREATE:
        return _create(key, scope or [], valid, state_dir)
    if action is KeyAction.LIST:
        return _list(state_dir, as_json=as_json)
    _revoke(key, state_dir, way if stop_runs else None)


def _create(label: str, scope: Sequence[ScopeName], valid: str, state_dir: Path) -> None:
    from fedplcc.command.members.durations import seconds_of
    from fedplcc.remote.admin_calls import admin_calls

    with admin_calls(state_dir) as calls:
        key, text = calls.create_key(label, [name.value for name in scope], seconds_of(valid, "--valid"))
    end = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(key.expires_at))
    say(f"the key {key.key_id} may {', '.join(key.scopes)} until {end}; it is not shown again")
    print(text)


def _list(state_dir: Path, *, as_json: bool) -> None:
    """List the keys and sessions that hold, newest first."""
    from fedplcc.remote.admin_calls import admin_calls

    with admin_calls(state_dir) as calls:
        keys = calls.keys()
    if as_json:
        print(json.dumps({"keys": [asdict(key) for key in keys]}, indent=2))
        return
    held = {f"key:{key.key_id}" for key in keys}
    for key in keys:
        end = time.strftime("%Y-%m-%d", time.gmtime(key.expires_at))
        print(f"{key.key_id}  {key.kind:<7}  until {end}  {','.join(key.scopes):<24} {printable(_told(key, held))}")


def _told(key: HeldKey, held: Collection[str]) -> str:
    """Return a key's label and its maker, who may hold no key any more."""
    is_gone = key.maker.startswith("key:") and key.maker not in held
    maker = f"{key.maker} (revoked or ended)" if is_gone else key.maker
    if key.kind == "session":
        return f"opened by {maker}"
    return f"{key.label}, made by {maker}" if maker else key.label


def _revoke(key_id: str, state_dir: Path, way: Way | None) -> None:
    """Revoke a key; with a way to the gateway also stop its open runs."""
    from fedplcc.remote.admin_calls import admin_calls
    from fedplcc.remote.runs_of_keys import stop_runs_of

    with admin_calls(state_dir) as calls:
        held = calls.keys()
        sessions = [each.key_id for each in held if each.kind == "session" and each.label == f"key:{key_id}"]
        people = [f"person:{each.label}" for each in held if (each.kind, each.key_id) == ("person", key_id)]
        calls.revoke_key(key_id)
    print(f"key {key_id} is revoked")
    if way is not None:
        reason = f"the key {key_id} was revoked"
        callers = people or [f"key:{each}" for each in (key_id, *sessions)]
        for run in ask_gateway(way, lambda there: stop_runs_of(there, callers, reason=reason)):
            print(sentence_of_run(run))
