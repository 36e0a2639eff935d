"""`fedplcc key`: keys of people and programs."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import HELP, ExitCode, explains_errors, say
from fedplcc.command.gateway_calls import ask_gateway, sentence_of_run
from fedplcc.command.members.state_dir import DEFAULT_STATE_DIR, StateDir
from fedplcc.command.shared_options import Way

if TYPE_CHECKING:
    from fedplcc.remote.admin_calls import HeldKey

app = typer.Typer(help="Make, list and revoke the keys that a gateway asks for.", epilog=HELP, no_args_is_help=True)


class ScopeName(StrEnum):
    """What a key may do."""

    READ = "read"
    RESULTS = "results"
    RUN = "run"
    ADMIN = "admin"
    METRICS = "metrics"


@app.command(
    epilog=examples(
        "fedplcc key create dashboard --scope read", "fedplcc key create prometheus --scope metrics --valid 365d"
    )
)
@explains_errors
def create(
    label: Annotated[str, typer.Argument(help="A name for people.", show_default=False)],
    scope: Annotated[
        list[ScopeName],
        typer.Option(
            help="What it may do; read, results, run and admin include those before them. May be repeated.",
            show_default=False,
        ),
    ],
    valid: Annotated[str, typer.Option(help="How long it holds: 30m, 24h or 90d.")] = "90d",
    state_dir: StateDir = DEFAULT_STATE_DIR,
) -> int:
    """Make a key and print it; it is shown this once and kept nowhere."""
    import time

    from fedplcc.command.members.durations import seconds_of
    from fedplcc.remote.admin_calls import admin_calls

    with admin_calls(state_dir) as calls:
        key, text = calls.create_key(label, [name.value for name in scope], seconds_of(valid, "--valid"))
    end = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(key.expires_at))
    say(f"the key {key.key_id} may {', '.join(key.scopes)} until {end}; it is not shown again")
    print(text)
    return ExitCode.OK


@app.command("list", epilog=examples("fedplcc key list", "fedplcc key list --json"))
@explains_errors
def list_(
    *,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    as_json: bool,
) -> int:
    """List the keys and the console's sessions that hold, newest first; without their secrets."""
    import json
    import time
    from dataclasses import asdict

    from fedplcc.remote.admin_calls import admin_calls
    from fedplcc.terminal.printable import printable

    with admin_calls(state_dir) as calls:
        keys = calls.keys()
    if as_json:
        print(json.dumps({"keys": [asdict(key) for key in keys]}, indent=2))
        return ExitCode.OK
    held = {f"key:{key.key_id}" for key in keys}
    for key in keys:
        end = time.strftime("%Y-%m-%d", time.gmtime(key.expires_at))
        print(f"{key.key_id}  {key.kind:<7}  until {end}  {','.join(key.scopes):<24} {printable(_told(key, held))}")
    return ExitCode.OK


def _told(key: HeldKey, held: Collection[str]) -> str:
    """Return a key's label and its maker, who may hold no key any more."""
    is_gone = key.maker.startswith("key:") and key.maker not in held
    maker = f"{key.maker} (revoked or ended)" if is_gone else key.maker
    if key.kind == "session":
        return f"opened by {maker}"
    return f"{key.label}, made by {maker}" if maker else key.label


@app.command(epilog=examples("fedplcc key revoke 0123456789ab", "fedplcc key revoke 0123456789ab --stop-runs"))
@explains_errors
def revoke(
    *,
    key_id: Annotated[str, typer.Argument(metavar="KEY", help="Id of the key, as 'fedplcc key list' shows it.")],
    stop_runs: Annotated[
        bool,
        typer.Option(
            "--stop-runs",
            help="Stop open runs of the key, its sessions or its person, through the gateway; needs a login of scope admin.",
        ),
    ] = False,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    way: Way,
) -> int:
    """Revoke a key: it and the sessions that go back to it are refused from now on, and their open streams end."""
    from fedplcc.remote.admin_calls import admin_calls
    from fedplcc.remote.runs_of_keys import stop_runs_of

    with admin_calls(state_dir) as calls:
        held = calls.keys()
        sessions = [each.key_id for each in held if each.kind == "session" and each.label == f"key:{key_id}"]
        people = [f"person:{each.label}" for each in held if (each.kind, each.key_id) == ("person", key_id)]
        calls.revoke_key(key_id)
    print(f"key {key_id} is revoked")
    if stop_runs:
        reason = f"the key {key_id} was revoked"
        callers = people or [f"key:{each}" for each in (key_id, *sessions)]
        for run in ask_gateway(way, lambda there: stop_runs_of(there, callers, reason=reason)):
            print(sentence_of_run(run))
    return ExitCode.OK
