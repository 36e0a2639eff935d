"""Address of a request's client behind proxies. Only what a listed proxy says is believed."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from fedplcc.shared.process.address_shares import network_of

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
MAX_PROXIES = 20
"""Most addresses of X-Forwarded-For that are looked at, from the last one on."""


class ForwardedClient:
    """Middleware that puts the client that listed proxies name, and its scheme, in place of the proxy's own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http":
            trusted = scope["app"].state.services.trusted_proxies
            if trusted and is_listed(_host(scope), trusted):
                headers = Headers(scope=scope)
                named = client_of(headers.get("x-forwarded-for", ""), trusted)
                if named:
                    scope["client"] = (named, 0)
                if headers.get("x-forwarded-proto", "").strip().lower() == "https":
                    scope["scheme"] = "https"
        await self.app(scope, receive, send)


def client_of(forwarded_for: str, trusted: Collection[Network]) -> str:
    """Return the last address of X-Forwarded-For that is of no listed proxy; empty if there is none.

    What stands before it may have been written by the client itself.
    """
    for text in reversed(forwarded_for.rsplit(",", MAX_PROXIES)[-MAX_PROXIES:]):
        host = text.strip()
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return ""
        if not is_listed(host, trusted):
            return host
    return ""


def is_listed(host: str, networks: Collection[Network]) -> bool:
    """Whether an address is in one of these networks."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in networks)


def caller_address(scope: Scope) -> str:
    """Return the address that tells a request's caller apart: of IPv6, the network."""
    return network_of(_host(scope))


def _host(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""
