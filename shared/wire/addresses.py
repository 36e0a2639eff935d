"""HOST:PORT, and the rule that plain text stays on this machine without `--insecure`. Imports no gRPC."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.process.address_shares import plain_host
from fedplcc.shared.process.loopback import is_loopback

MAX_URL = 2048
"""Most characters of a URL that a setting or another process names."""


def split_address(address: str, name: str = "aggregator") -> tuple[str, int]:
    """Return host and port of HOST:PORT or [IPV6]:PORT.

    Args:
        name: Name of the setting, for the error's sentence.

    Raises:
        InvalidConfig: The text has neither form.
    """
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise InvalidConfig(f"{name} = {address!r}: write HOST:PORT, with a port from 1 to 65535")
    return host, int(port)


def is_host(text: str) -> bool:
    """Whether the text is a host name or an IP address, without port and brackets."""
    if ":" not in text:
        return re.fullmatch(r"[A-Za-z0-9._-]+", text) is not None
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def join_address(host: str, port: int) -> str:
    """Return HOST:PORT, or [IPV6]:PORT."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def plain_peer(peer: str) -> tuple[str, int]:
    """Return address and port of HOST:PORT or [IPV6]:PORT as a socket names them, the address without its zone."""
    host, _, port = peer.rpartition(":")
    return plain_host(host.strip("[]")), int(port) if port.isascii() and port.isdigit() else 0


def require_secure(host: str, *, insecure: bool, what: str) -> None:
    """Refuse plain text off loopback unless `insecure` is set.

    Raises:
        InvalidConfig: The host is not this machine and `insecure` is not set.
    """
    if not insecure and not is_loopback(host):
        raise InvalidConfig(
            f"{what}: traffic off this machine would be plain text; use --insecure to accept that on a trusted network"
        )


def is_network(text: str) -> bool:
    """Whether a text is an IP address, or a network with the bits of its hosts zero."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return "%" not in text


def is_trustworthy(url: str) -> bool:
    """Whether nobody on the way can read or change what is sent to a URL without a query: https, or http on loopback."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    is_plain = url.isascii() and url.isprintable() and " " not in url and not (parts.username or parts.password)
    if not (is_plain and host and len(url) <= MAX_URL and not parts.query and not parts.fragment):
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
