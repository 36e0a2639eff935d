"""The command by which a member that has joined is started."""

from __future__ import annotations

import shlex
from pathlib import Path

from fedplcc.shared.config.settings.site_identity import JOINED, STATE
from fedplcc.shared.identity.names import Identity, Role


def start_command(identity: Identity, folder: Path) -> str:
    """Return the command that starts a member with the identity in a folder; empty for a monitor, which has no process."""
    if identity.role is Role.MONITOR:
        return ""
    usual = JOINED if identity.role is Role.CLIENT else STATE / identity.role.value
    where = [] if folder == usual else ["--state-dir", str(folder)]
    words = ["trainer", "--data", "folder:PATH"] if identity.role is Role.CLIENT else ["gateway"]
    return shlex.join(["fedplcc", *words, *where])
