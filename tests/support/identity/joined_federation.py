"""Members that join a running aggregator by invitations, as they do elsewhere, for tests in real processes."""

from __future__ import annotations

from pathlib import Path

from fedplcc.remote.admin_calls import admin_calls
from fedplcc.remote.joining import join_federation
from fedplcc.shared.identity.api_keys import Scope
from fedplcc.shared.identity.credentials import Credentials
from fedplcc.shared.identity.names import Role
from fedplcc.shared.wire.addresses import join_address

HOUR_S = 3600.0


def admit(state: Path, role: Role, name: str, folder: Path, *, domain: str = "", aggregator: str = "") -> Credentials:
    """Have a member join, and keep its identity in its folder.

    Args:
        state: State directory of a running aggregator.
        role: The member's role.
        name: Its name.
        folder: Its state directory.
        domain: Domain of a client's data.
        aggregator: HOST:PORT at which it dials the aggregator; the aggregator's own if empty.
    """
    with admin_calls(state) as calls:
        address = join_address("127.0.0.1", calls.enrol_port or 0)
        code, _end = calls.invite(role.value, name, address=address, domain=domain, valid_s=HOUR_S, replaces=True)
    return join_federation(code, folder, aggregator=aggregator, replace=True)[0]


def new_key(state: Path, scope: Scope = Scope.RUN) -> str:
    """Return a key that the gateway lets through."""
    with admin_calls(state) as calls:
        _key, text = calls.create_key("a test", [scope.value], HOUR_S)
    return text
