"""The list of all `fedplcc` commands.

This module and its imports load in a moment; a command loads heavy libraries itself.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fedplcc.command import (
    audit,
    backup,
    ca,
    client,
    compare,
    config,
    data,
    demo,
    doctor,
    exit_codes,
    health,
    invite,
    join,
    key,
    login,
    model,
    plugin,
    replay,
    restore,
    run,
    run_upkeep,
    runs,
    services,
    simulate,
)
from fedplcc.command.examples import examples
from fedplcc.command.listing import ADMIT, KEEP, PREPARE, SERVE, STEER, TRY, USE, AllCommands
from shared.version import VERSION

app = typer.Typer(
    cls=AllCommands,
    help="Federated prototype learning over many owners' data from different domains.",
    epilog=examples("fedplcc demo", "fedplcc config init", "fedplcc run --help") + "\n\n" + exit_codes.HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

# One line per command or group of commands; listing.py names the headings under which the help lists them.
app.command("demo", rich_help_panel=TRY, epilog=demo.EXAMPLES)(demo.demo)
app.command("simulate", rich_help_panel=TRY, epilog=simulate.EXAMPLES)(simulate.simulate)
app.add_typer(compare.app, name="compare", rich_help_panel=TRY)
app.command("health", rich_help_panel=PREPARE, epilog=health.EXAMPLES)(health.health)
app.add_typer(data.app, name="data", rich_help_panel=PREPARE)
app.add_typer(config.app, name="config", rich_help_panel=PREPARE)
app.add_typer(plugin.app, name="plugin", rich_help_panel=PREPARE)
app.command("doctor", rich_help_panel=PREPARE, epilog=doctor.EXAMPLES)(doctor.doctor)
for service in services.SERVICES:
    app.command(service.__name__, rich_help_panel=SERVE)(service)
AllCommands.built_when_called.update(services.BUILDERS)
app.command("invite", rich_help_panel=ADMIT, epilog=invite.EXAMPLES)(invite.invite)
app.command("join", rich_help_panel=ADMIT, epilog=join.EXAMPLES)(join.join)
app.add_typer(client.app, name="client", rich_help_panel=ADMIT)
app.add_typer(ca.app, name="ca", rich_help_panel=ADMIT)
app.command("login", rich_help_panel=STEER, epilog=login.LOGIN_EXAMPLES)(login.login)
app.command("logout", rich_help_panel=STEER, epilog=login.LOGOUT_EXAMPLES)(login.logout)
app.command("console", rich_help_panel=STEER, epilog=login.CONSOLE_EXAMPLES)(login.console)
app.add_typer(key.app, name="key", rich_help_panel=ADMIT)
run.app.add_typer(run_upkeep.app)
app.add_typer(run.app, name="run", rich_help_panel=STEER)
app.command("runs", rich_help_panel=USE, epilog=runs.EXAMPLES)(runs.runs)
app.add_typer(model.app, name="model", rich_help_panel=USE)
app.command("audit", rich_help_panel=KEEP, epilog=audit.EXAMPLES)(audit.audit)
app.command("backup", rich_help_panel=KEEP, epilog=backup.EXAMPLES)(backup.backup)
app.command("restore", rich_help_panel=KEEP, epilog=restore.EXAMPLES)(restore.restore)
app.command("replay", rich_help_panel=KEEP, epilog=replay.EXAMPLES)(replay.replay)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fedplcc {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options of `fedplcc` itself."""


def main() -> None:
    """Run the command named on the command line; ends the process with its exit code."""
    app(prog_name="fedplcc")


if __name__ == "__main__":
    main()
