"""The one front door: every `fedplcc` command, as one list.

This module and those that it imports load in a moment; what is heavy is loaded by the command that needs it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fedplcc.command import compare, config, data, doctor, exit_codes, health, local, model, run, services, state
from fedplcc.command.examples import examples
from fedplcc.command.listing import KEEP, PREPARE, SERVE, STEER, TRY, USE, FrontDoor
from shared.version import VERSION

app = typer.Typer(
    cls=FrontDoor,
    help="Federated prototype learning over many owners' data from different domains.",
    epilog=examples("fedplcc demo", "fedplcc config init", "fedplcc run --help") + "\n\n" + exit_codes.HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

# One line per command or group of commands; listing.py names the headings under which help lists them.
app.command("demo", rich_help_panel=TRY, epilog=local.DEMO_EXAMPLES)(local.demo)
app.command("simulate", rich_help_panel=TRY, epilog=local.SIMULATE_EXAMPLES)(local.simulate)
app.command("compare", rich_help_panel=TRY, epilog=compare.EXAMPLES)(compare.compare)
app.command("health", rich_help_panel=PREPARE, epilog=health.EXAMPLES)(health.health)
app.add_typer(data.app, name="data", rich_help_panel=PREPARE)
app.add_typer(config.app, name="config", rich_help_panel=PREPARE)
app.command("doctor", rich_help_panel=PREPARE, epilog=doctor.EXAMPLES)(doctor.doctor)
for stand_in in services.STAND_INS:
    app.command(stand_in.__name__, rich_help_panel=SERVE)(stand_in)
FrontDoor.made_when_called.update(services.MADE_WHEN_CALLED)
app.add_typer(run.app, name="run", rich_help_panel=STEER)
app.add_typer(model.app, name="model", rich_help_panel=USE)
app.command("backup", rich_help_panel=KEEP, epilog=state.BACKUP_EXAMPLES)(state.backup)
app.command("restore", rich_help_panel=KEEP, epilog=state.RESTORE_EXAMPLES)(state.restore)
app.command("replay", rich_help_panel=KEEP, epilog=state.REPLAY_EXAMPLES)(state.replay)


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
