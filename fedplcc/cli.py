"""The one front door: every `fedplcc` command, as one list.

This module and those that it imports load in a moment; what is heavy is loaded by the command that needs it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fedplcc import (
    compare_command,
    config_commands,
    data_commands,
    doctor_command,
    exit_codes,
    health,
    local_commands,
    model_commands,
    run_commands,
    service_commands,
    state_commands,
)
from fedplcc.examples import examples
from fedplcc.front_door import KEEP, PREPARE, SERVE, STEER, TRY, USE, FrontDoor
from shared.version import VERSION

app = typer.Typer(
    cls=FrontDoor,
    help="Federated prototype learning over many owners' data from different domains.",
    epilog=examples("fedplcc demo", "fedplcc config init", "fedplcc run --help") + "\n\n" + exit_codes.HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

# One line per command or group of commands; front_door.py names the headings under which help lists them.
app.command("demo", rich_help_panel=TRY, epilog=local_commands.DEMO_EXAMPLES)(local_commands.demo)
app.command("simulate", rich_help_panel=TRY, epilog=local_commands.SIMULATE_EXAMPLES)(local_commands.simulate)
app.command("compare", rich_help_panel=TRY, epilog=compare_command.EXAMPLES)(compare_command.compare)
app.command("health", rich_help_panel=PREPARE, epilog=health.EXAMPLES)(health.health)
app.add_typer(data_commands.app, name="data", rich_help_panel=PREPARE)
app.add_typer(config_commands.app, name="config", rich_help_panel=PREPARE)
app.command("doctor", rich_help_panel=PREPARE, epilog=doctor_command.EXAMPLES)(doctor_command.doctor)
for stand_in in service_commands.STAND_INS:
    app.command(stand_in.__name__, rich_help_panel=SERVE)(stand_in)
FrontDoor.made_when_called.update(service_commands.MADE_WHEN_CALLED)
app.add_typer(run_commands.app, name="run", rich_help_panel=STEER)
app.add_typer(model_commands.app, name="model", rich_help_panel=USE)
app.command("backup", rich_help_panel=KEEP, epilog=state_commands.BACKUP_EXAMPLES)(state_commands.backup)
app.command("restore", rich_help_panel=KEEP, epilog=state_commands.RESTORE_EXAMPLES)(state_commands.restore)
app.command("replay", rich_help_panel=KEEP, epilog=state_commands.REPLAY_EXAMPLES)(state_commands.replay)


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"fedplcc {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Say the version and exit.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    """Options of no command."""


def main() -> None:
    """Run the command that the command line names; ends the process with its exit code."""
    app(prog_name="fedplcc")


if __name__ == "__main__":
    main()
