"""The option for the state directory of a trainer on this host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedplcc.shared.config.settings.site_identity import JOINED, STATE
from fedplcc.shared.errors import FedplccError, InvalidConfig

TrainerStateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        help="State directory of the trainer; the only one below fedplcc-state if not given.",
        file_okay=False,
        envvar="FEDPLCC_STATE_DIR",
    ),
]


def client_of(folder: Path) -> str:
    """Return the client of a trainer's state directory, as its identity says; `CLIENT` where there is none to read."""
    from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials

    try:
        return Credentials.load(folder / IDENTITY_FILE).identity.name
    except (FedplccError, OSError):
        return "CLIENT"


def trainer_folder(given: Path | None) -> Path:
    """Return the state directory of the trainer that a command is about.

    Raises:
        InvalidConfig: There is none, or there are several and none was given.
    """
    if given is not None:
        if not given.is_dir():
            raise InvalidConfig(f"{given} is no folder; a trainer makes its state directory when it starts")
        return given
    found = sorted(each for each in STATE.glob(f"{JOINED.name}*") if each.is_dir())
    if not found:
        raise InvalidConfig(f"there is no state directory of a trainer below {STATE}; name it with --state-dir")
    if len(found) > 1:
        raise InvalidConfig(f"choose one with --state-dir: {', '.join(map(str, found))}")
    return found[0]
