"""What keeps pages of other sites from using a gateway that their reader's browser can reach.

There is no login yet, so whoever reaches the gateway may steer. A browser reaches it for any page that is open in it: one
from elsewhere could stop a run behind its reader's back. Browsers say where a request comes from, in Sec-Fetch-Site and in
Origin, and no page can change that. What changes something is refused when it comes from another origin; programs, which
send neither, are let through. Reading across origins is what browsers refuse on their own, as no answer here allows it.

All of this rests on the name in the address. Who owns a name can let it lead to 127.0.0.1 from one moment to the next, and
a page that came from there is then of the same origin as the gateway. So a gateway that listens on loopback, or was told its
names, answers only when it is asked for by one of those or by a name of loopback, which nobody owns.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.problem import respond_http
from shared.wire.addresses import is_loopback

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""What changes nothing."""
OWN_SITES = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site for requests of the gateway's own pages, and for those that a person typed."""
HEADERS = {"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin"}
"""With every answer: it is what it says it is, and no page of another site may embed it."""


class CrossSiteGuard:
    """Refuse what a page of another origin wants, and tell browsers how to treat answers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that does not come from elsewhere."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        headers = Headers(scope=scope)
        if not is_named(headers.get("host", ""), scope["app"].state.services.host_names):
            await respond_http(421, None, scope)(scope, receive, guarded)
        elif scope["method"] in SAFE_METHODS or comes_from_here(headers):
            await self.app(scope, receive, guarded)
        else:
            await respond_http(403, None, scope)(scope, receive, guarded)


def is_named(host: str, allowed: Collection[str] | None) -> bool:
    """Whether a Host header asks for this gateway: by a name that it has, or one of loopback for everybody who reads it.

    Args:
        host: The header, with or without a port; without the header no browser asks.
        allowed: Its names in lower case; None where it may have any.
    """
    if allowed is None or not host:
        return True
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    return name in allowed or name.endswith(".localhost") or is_loopback(name)


def comes_from_here(headers: Headers) -> bool:
    """Whether a request is of a page of this gateway or of no page at all, by what browsers say of it."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in OWN_SITES
    origin = headers.get("origin")
    # An older browser. A proxy in front may end TLS, so that host and port are all that can be compared.
    return origin is None or urlsplit(origin).netloc == headers.get("host")
