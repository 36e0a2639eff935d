"""Members of a local federation: each joins by an invitation, as a member elsewhere does, and a key opens the gateway."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fedplcc.remote.admin_calls import AdminCalls, admin_calls
from fedplcc.remote.joining import join_federation
from fedplcc.shared.identity.api_keys import Scope
from fedplcc.shared.identity.names import Role
from fedplcc.shared.wire.addresses import join_address

HOST = "127.0.0.1"
INVITATION_S = 600.0
"""Life of an invitation, which is used at once."""
KEY_S = 90 * 86_400.0
"""Life of the key, in memory of the process that made it."""
THREADS = 4
"""Members that join at the same time."""


@dataclass(frozen=True, slots=True)
class Member:
    """A process that needs a certificate."""

    role: Role
    name: str
    folder: Path
    """Its state directory, where the identity is kept."""
    domain: str = ""
    """Domain of a client's data."""


def admit(aggregator_state: Path, members: Sequence[Member]) -> None:
    """Have every member join the federation of a running aggregator.

    A member that joined before joins anew: its folder may be without the certificate that the aggregator made, or with one
    that has ended; ports have changed, too.

    Raises:
        FedplccError: The aggregator refuses, or a folder cannot be used.
    """
    with admin_calls(aggregator_state) as calls, ThreadPoolExecutor(THREADS, "joining") as threads:
        for _joined in threads.map(lambda member: _join(calls, member), members):
            pass


def new_key(aggregator_state: Path) -> str:
    """Return a key that starts runs and fetches their results; it is kept nowhere.

    Raises:
        FedplccError: The aggregator refuses.
    """
    with admin_calls(aggregator_state) as calls:
        _key, text = calls.create_key("demo", [Scope.RUN.value], KEY_S)
    return text


def console_address(aggregator_state: Path, gateway_url: str) -> str:
    """Return an address that opens the console in a browser once, within five minutes.

    Raises:
        FedplccError: The aggregator refuses.
    """
    with admin_calls(aggregator_state) as calls:
        return f"{gateway_url}/#code={calls.console_code()}"


def _join(calls: AdminCalls, member: Member) -> None:
    address = join_address(HOST, calls.enrol_port or 0)
    code, _ends_at = calls.invite(
        member.role.value, member.name, address=address, domain=member.domain, valid_s=INVITATION_S, replaces=True
    )
    join_federation(code, member.folder, replace=True)
