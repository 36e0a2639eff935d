"""Environment variables of ours that mean nothing: a misspelt one would leave its setting at the default, silently."""

from __future__ import annotations

import os
from collections.abc import Iterable

from fedplcc.shared.config.sections import nearest_of, unknown
from fedplcc.shared.config.settings import AggregatorSettings, GatewaySettings, Settings, TrainerSettings
from fedplcc.shared.process.failpoints import VARIABLE as FAILPOINTS
from fedplcc.shared.process.log import get_logger

PREFIX = str(Settings.model_config["env_prefix"])
OF_COMMANDS = ("ADDRESS", "GATEWAY", "GATEWAY_CA", "INVITE_ADDRESS", "JOIN", FAILPOINTS.removeprefix(PREFIX))
"""Variables, without the prefix, that are no setting of a service; one environment may serve commands too."""
MAX_SAID = 16
"""Most variables that are named."""

log = get_logger("fedplcc.shared.config.variables")


def warn_of_unknown_variables() -> None:
    """Log a line for each variable of the environment that begins like ours and that nothing reads."""
    for sentence in unknown_variables(os.environ)[:MAX_SAID]:
        log.warning("unknown_variable", detail=sentence)


def unknown_variables(names: Iterable[str], *, misspelt: bool = False) -> list[str]:
    """Return a sentence for each name that begins like ours and that nothing reads, with the nearest known one.

    Args:
        misspelt: Whether those that are like no known one are left out.
    """
    kinds = (AggregatorSettings, GatewaySettings, TrainerSettings)
    known = {name.upper() for kind in kinds for name in kind.model_fields} | {*OF_COMMANDS}
    ours = sorted(name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX))
    found = [name for name in ours if name not in known and not (misspelt and nearest_of(name, sorted(known)) is None)]
    return [unknown("variable", name, known, PREFIX) for name in found]
