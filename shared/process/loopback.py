"""Which addresses and Host headers name this machine alone. Pure."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def name_of(host_header: str) -> str | None:
    """Return the name in a Host header, in lower case and without port and last dot; None where it is none."""
    try:
        return (urlsplit(f"//{host_header}").hostname or "").removesuffix(".")
    except ValueError:
        return None


def names_loopback(host_header: str) -> bool:
    """Whether a Host header names this machine as nobody else can: who owns any other name may lead it to 127.0.0.1.

    A page of such a name in a browser here would be of the same origin as what it asks for. Programs send none, or a name.
    """
    name = name_of(host_header) if host_header else "localhost"
    return name is not None and (name.endswith(".localhost") or is_loopback(name))
