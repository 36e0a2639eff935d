"""Protection of the gateway against pages of other sites in its users' browsers.

A browser reaches the gateway, with its session's cookie if there is one, on behalf of any open page, so a page of another
site could stop a run without its reader's knowledge. Browsers send the origin of a request in Sec-Fetch-Site and
Origin, which pages cannot change. A request that changes something is refused if it comes from another origin, and so is one
for a picture, a frame or a script of its page, which could begin sign-ons; programs send none of these headers and are
served. Browsers themselves refuse to read answers across origins, as no answer here allows it.

The check rests on the name in the address. The owner of a name can point it to 127.0.0.1 at any time; a page from there then
has the same origin as the gateway. A gateway that listens on loopback, or that was given its names, therefore answers only
requests for one of these names or for a name of loopback, which nobody owns.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedplcc.gateway.http.problem import respond_http
from fedplcc.shared.process.loopback import name_of, names_loopback

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
OWN_SITES = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site for requests of the gateway's own pages, and for addresses that a person typed."""
HEADERS = {"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin"}
"""Headers of every answer: browsers trust its media type, and no page of another site may embed it."""
UNLESS_SAID = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Headers of every answer that says nothing else itself: it is no page, tells nobody its address and is kept nowhere."""


class SafeAnswers:
    """Middleware that adds `HEADERS` and `UNLESS_SAID` to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        services = scope["app"].state.services

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered = MutableHeaders(scope=message)
                answered.update(HEADERS)
                for name, value in UNLESS_SAID.items():
                    answered.setdefault(name, value)
                if services.strict_transport_s and scope.get("scheme") == "https":
                    answered["Strict-Transport-Security"] = f"max-age={services.strict_transport_s}"
            await send(message)

        await self.app(scope, receive, guarded)


class CrossSiteGuard:
    """Middleware that refuses requests of pages of other origins."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request unless it comes from another site."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not is_named(headers.get("host", ""), scope["app"].state.services.host_names):
            await respond_http(421, None, scope)(scope, receive, send)
        elif comes_from_here(headers) or (scope["method"] in SAFE_METHODS and not is_embedded(headers)):
            await self.app(scope, receive, send)
        else:
            await respond_http(403, None, scope)(scope, receive, send)


def is_named(host: str, allowed: Collection[str] | None) -> bool:
    """Whether a Host header names this gateway: by one of its names, or by a name of loopback.

    Args:
        host: The header, with or without a port; every browser sends it.
        allowed: The gateway's names in lower case; None for any.
    """
    return allowed is None or names_loopback(host) or name_of(host) in allowed


def is_embedded(headers: Headers) -> bool:
    """Whether a browser asks for what it is to show within a page, as a picture, or to hand to a script of it."""
    return headers.get("sec-fetch-dest", "document") != "document"


def comes_from_here(headers: Headers) -> bool:
    """Whether a request comes from a page of this gateway or from no page, by its headers."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in OWN_SITES
    origin = headers.get("origin")
    # An older browser. A proxy in front may end TLS, so that host and port are all that can be compared.
    try:
        return origin is None or urlsplit(origin).netloc == headers.get("host")
    except ValueError:  # no address: "http://["
        return False
