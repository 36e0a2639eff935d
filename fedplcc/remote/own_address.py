"""The address at which other hosts reach this one."""

from __future__ import annotations

import socket

from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.wire.addresses import is_host, join_address, split_address

ELSEWHERE = ("192.0.2.1", 9)
"""An address of no host (RFC 5737): a datagram socket learns the way there without sending anything."""

EVERY_ADDRESS = ("", "0.0.0.0", "::")  # nosec B104 # compared, not bound
"""Hosts of an aggregator that listens at all addresses of its machine."""


def invitation_address(given: str, host: str, enrol_port: int | None) -> str:
    """Return HOST:PORT for an invitation.

    Args:
        given: HOST or HOST:PORT that a person wrote; empty for the one below.
        host: Address at which the aggregator listens; for all of them, or none, this host's own.
        enrol_port: Port of invitations here; None if nobody can join.

    Raises:
        InvalidConfig: It is no address, or the aggregator serves no such port.
    """
    if enrol_port is None:
        raise InvalidConfig("nobody can join this aggregator: it runs with --insecure, or with --enrol-port off")
    if not given:
        return join_address(own_address() if host in EVERY_ADDRESS else host, enrol_port)
    if is_host(given):
        return join_address(given, enrol_port)
    return join_address(*split_address(given, "--address"))


def own_address() -> str:
    """Return the address of the interface that leads to other networks; of loopback if none does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ELSEWHERE)
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
