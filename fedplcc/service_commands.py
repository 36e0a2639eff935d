"""`fedplcc aggregator`, `fedplcc trainer` and `fedplcc gateway`: the services, as `python -m PACKAGE` starts them.

Their flags are the settings of shared/config.py themselves, so they are parsed there; nothing is said twice.
"""

from __future__ import annotations

import typer

from fedplcc.exit_codes import explains_errors

PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Typer hands every flag on, --help too."""


@explains_errors
def aggregator(context: typer.Context) -> int:
    """Run the aggregator: runs, rounds, and everything that is kept."""
    from aggregator.app import run
    from shared.config import AggregatorSettings, from_command_line

    return run(from_command_line(AggregatorSettings, "fedplcc aggregator", aggregator.__doc__ or "", context.args))


@explains_errors
def trainer(context: typer.Context) -> int:
    """Run a trainer: act for one client, beside its data."""
    from shared.config import TrainerSettings, from_command_line
    from trainer.app import run

    return run(from_command_line(TrainerSettings, "fedplcc trainer", trainer.__doc__ or "", context.args))


@explains_errors
def gateway(context: typer.Context) -> int:
    """Run the gateway: run control by REST, progress by server-sent events."""
    from gateway.app import run
    from shared.config import GatewaySettings, from_command_line

    return run(from_command_line(GatewaySettings, "fedplcc gateway", gateway.__doc__ or "", context.args))
