"""`fedplcc ca`: the authority that issues the federation's certificates."""

from __future__ import annotations

from typing import Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import HELP, explains_errors
from fedplcc.command.members.state_dir import DEFAULT_STATE_DIR, StateDir

app = typer.Typer(help="Rotate the root of the federation's certificates.", epilog=HELP, no_args_is_help=True)


@app.callback()
def _group() -> None:
    """The authority that issues the federation's certificates."""


@app.command(epilog=examples("fedplcc ca rotate", "fedplcc ca rotate --finish"))
@explains_errors
def rotate(
    finish: Annotated[
        bool, typer.Option("--finish", help="Drop the older root, once every member has renewed under the new one.")
    ] = False,
    state_dir: StateDir = DEFAULT_STATE_DIR,
) -> None:
    """Add a second root: it travels with every renewal. Weeks later, `--finish` drops the older one.

    Until then both are trusted. `--finish` names the members that still need the older root, and drops nothing then.
    """
    from fedplcc.remote.admin_calls import admin_calls

    with admin_calls(state_dir) as calls:
        roots = calls.rotate(finish=finish)
    for root in roots:
        print(root)
