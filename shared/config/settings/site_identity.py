"""Settings of a trainer that it knows from its identity: aggregator, client, domain and state directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.names import Identity, Role

STATE = Path("fedplcc-state")
JOINED = STATE / "trainer"
"""Folder in which `fedplcc join` keeps a client's identity unless told another."""


def with_identity(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trainer's settings, completed from the identity in its state directory, if there is one.

    Raises:
        InvalidConfig: The identity cannot be read, is none of a client, or of another client than the one given.
    """
    folder = own_folder(values)
    if not (folder / IDENTITY_FILE).exists():
        return dict(values)
    held = Credentials.load(folder / IDENTITY_FILE)
    if held.identity.role is not Role.CLIENT:
        raise InvalidConfig(f"{folder} has the identity of a {held.identity.role.value}; a trainer acts for a client")
    name, given = held.identity.name, values.get("client")
    if given is not None and given != name:
        raise InvalidConfig(
            f"client = {given!r}: {folder} has the identity of client {name}; leave the client out, or join as {given} with "
            f"`fedplcc join --state-dir {STATE / f'trainer-{given}'}`"
        )
    known = {"aggregator": held.address, "client": name, "domain": held.domain, "state_dir": folder}
    return {**{setting: value for setting, value in known.items() if value}, **values}


def folder_for(identity: Identity) -> Path:
    """Return the folder for the identity of a member that names none: its role's, or its own where another member has that.

    Raises:
        InvalidConfig: An identity that is there cannot be read.
    """
    shared = JOINED if identity.role is Role.CLIENT else STATE / identity.role.value
    if not (shared / IDENTITY_FILE).exists() or Credentials.load(shared / IDENTITY_FILE).identity == identity:
        return shared
    return shared.with_name(f"{shared.name}-{identity.name}")


def own_folder(values: Mapping[str, Any]) -> Path:
    """Return the folder for a trainer's identity: its state directory, the client's, or the one of `fedplcc join`."""
    client = values.get("client")
    if values.get("state_dir"):
        return Path(values["state_dir"])
    if not isinstance(client, str):
        return JOINED
    own = STATE / f"trainer-{client}"
    # In plain text nobody shows an identity: who joined here meanwhile must not move the client's state.
    is_joined = not _is_on(values.get("insecure")) and (JOINED / IDENTITY_FILE).exists()
    return JOINED if is_joined and not (own / IDENTITY_FILE).exists() else own


def _is_on(value: object) -> bool:
    """Whether a switch is on, as text of the environment too."""
    return str(value).lower() in ("1", "true", "t", "yes", "y", "on")
