"""The list of all `fedplcc` commands.

This module and its imports load in a moment; a command loads heavy libraries itself.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from fedplcc.command import doctor, exit_codes, services, shared_options
from fedplcc.command.examples import examples
from fedplcc.command.files import config, config_init, data, deploy, weights
from fedplcc.command.listing import ADMIT, KEEP, PREPARE, SERVE, STEER, TRY, USE, AllCommands
from fedplcc.command.members import ca, client, invite, join, key, login
from fedplcc.command.model import drawing, using
from fedplcc.command.run import clients, editing, fetching, lists, starting, status, steering, watching
from fedplcc.command.site import approving, log
from fedplcc.command.state import audit, backup, restore
from fedplcc.command.training import compare, demo, simulate
from fedplcc.shared.version import VERSION


def _group(help_text: str) -> typer.Typer:
    return typer.Typer(help=help_text, epilog=exit_codes.HELP, no_args_is_help=True)


app = typer.Typer(
    cls=AllCommands,
    help="Federated prototype learning over many owners' data from different domains.",
    epilog=examples("fedplcc demo", "fedplcc config init", "fedplcc run --help") + "\n\n" + exit_codes.HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _of_actions(name: str, command: Callable[..., None], panel: str, epilog: str) -> None:
    """Add a command of several actions, which has its help without one."""
    app.command(name, rich_help_panel=panel, epilog=epilog, no_args_is_help=True)(command)


# One line per command or group of commands; listing.py names the headings under which the help lists them.
app.command("demo", rich_help_panel=TRY, epilog=demo.EXAMPLES)(demo.demo)
app.command("simulate", rich_help_panel=TRY, epilog=simulate.EXAMPLES)(simulate.simulate)
app.command("compare", rich_help_panel=TRY, epilog=compare.EXAMPLES)(compare.compare)
data_group = _group("Look at data sets, and download public ones.")
data_group.command("describe", epilog=data.EXAMPLES)(data.describe)
app.add_typer(data_group, name="data", rich_help_panel=PREPARE)
config_group = _group("Write and check configuration files.")
config_group.command("init", epilog=config_init.EXAMPLES)(config_init.init)
config_group.command("check", epilog=config.EXAMPLES)(config.check)
app.add_typer(config_group, name="config", rich_help_panel=PREPARE)
_of_actions("weights", weights.weights, PREPARE, weights.EXAMPLES)
app.command("doctor", rich_help_panel=PREPARE, epilog=doctor.EXAMPLES)(doctor.doctor)
deploy_group = _group("Get what a deployment needs besides the program.")
deploy_group.command("files", epilog=deploy.EXAMPLES)(deploy.files)
app.add_typer(deploy_group, name="deploy", rich_help_panel=SERVE)
for service in services.SERVICES:
    app.command(service.__name__, rich_help_panel=SERVE)(service)
AllCommands.built_when_called.update(services.BUILDERS)
site_group = _group("Decide what this site takes part in, and see what left it.")
site_group.command("pending", epilog=approving.PENDING_EXAMPLES)(approving.pending)
site_group.command("approve", epilog=approving.APPROVE_EXAMPLES)(approving.approve)
site_group.command("reject", epilog=approving.REJECT_EXAMPLES)(approving.reject)
site_group.command("log", epilog=log.EXAMPLES)(log.log)
app.add_typer(site_group, name="site", rich_help_panel=SERVE)
app.command("invite", rich_help_panel=ADMIT, epilog=invite.EXAMPLES)(invite.invite)
app.command("join", rich_help_panel=ADMIT, epilog=join.EXAMPLES)(join.join)
_of_actions("client", client.client, ADMIT, client.EXAMPLES)
app.add_typer(ca.app, name="ca", rich_help_panel=ADMIT)
_of_actions("key", key.key, ADMIT, key.EXAMPLES)
app.command("login", rich_help_panel=STEER, epilog=login.LOGIN_EXAMPLES)(login.login)
app.command("console", rich_help_panel=STEER, epilog=login.CONSOLE_EXAMPLES)(login.console)
run_group = _group("Start and control runs through a gateway.")
run_group.command("start", epilog=starting.EXAMPLES)(starting.start)
run_group.command("list", epilog=lists.EXAMPLES)(lists.list_runs)
run_group.command("status", epilog=status.EXAMPLES)(status.status)
run_group.command("watch", epilog=watching.EXAMPLES)(watching.watch)
run_group.command("pause", epilog=steering.PAUSE_EXAMPLES)(steering.pause)
run_group.command("resume", epilog=steering.RESUME_EXAMPLES)(steering.resume)
run_group.command("stop", epilog=steering.STOP_EXAMPLES)(steering.stop)
run_group.command("client", epilog=clients.EXAMPLES)(clients.client)
run_group.command("fetch", epilog=fetching.EXAMPLES)(fetching.fetch)
run_group.command("edit", epilog=editing.EDIT_EXAMPLES)(editing.edit)
app.add_typer(run_group, name="run", rich_help_panel=STEER)
using.app.command("map", epilog=drawing.EXAMPLES)(drawing.draw_map)
app.add_typer(using.app, name="model", rich_help_panel=USE)
state_group = _group("Keep an aggregator's state safe, and look into its record.")
state_group.command("audit", epilog=audit.EXAMPLES)(audit.audit)
state_group.command("backup", epilog=backup.EXAMPLES)(backup.backup)
state_group.command("restore", epilog=restore.EXAMPLES)(restore.restore)
app.add_typer(state_group, name="state", rich_help_panel=KEEP)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fedplcc {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    gateway: shared_options.GatewayUrl = None,
    gateway_ca: shared_options.GatewayCa = None,
    insecure: shared_options.Insecure = False,
    as_json: shared_options.Json = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options of `fedplcc` itself, which may stand after a command's name too."""
    typed: tuple[str, ...] = context.obj or ()
    way = shared_options.Way(gateway, insecure, gateway_ca, is_named=shared_options.GATEWAY in typed)
    shared_options.keep(shared_options.SharedOptions(way, as_json, typed))


def main() -> None:
    """Run the command named on the command line; ends the process with its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a letter that the terminal has not is no end of a command
    app(prog_name="fedplcc")


if __name__ == "__main__":
    main()
