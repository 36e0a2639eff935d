"""Keys of requests: from `Authorization: Bearer`, or from the cookie of the console's session.

The gateway only looks for a key and passes it on; the aggregator decides what it allows (`SCOPE_OF_CALL`). A browser sends
cookies by itself, so a request that changes something on a session's behalf needs a header as well, which no page of another
site can set.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from fedplcc.gateway.caller_key import caller_key
from fedplcc.gateway.http.guards.cross_site_guard import SAFE_METHODS
from fedplcc.gateway.http.problem import PROBLEMS_PATH, respond, respond_http
from fedplcc.shared.errors import KeyInvalid
from fedplcc.shared.identity.api_keys import parse_api_key

SESSIONS_PATH = "/v1/console/sessions"
SESSION_END_PATH = "/v1/session/end"
SIGN_ON_PATH = "/v1/sign-on"
OPENING_PATHS = frozenset({SESSIONS_PATH, f"{SIGN_ON_PATH}/callback", f"{SIGN_ON_PATH}/terminal/poll"})
"""Paths that give a session to who shows something: what is refused there is a guess."""
OPEN_PATHS = frozenset({"/", "/livez", "/readyz", "/openapi.json", "/docs", PROBLEMS_PATH, SESSIONS_PATH, SIGN_ON_PATH})
OPEN_FOLDERS = ("/console/", f"{PROBLEMS_PATH}/", f"{SIGN_ON_PATH}/")
"""Paths that need no key: what probes, browsers before a login and readers of the interface's description ask for."""
CONSOLE_HEADER = "X-Fedplcc-Console"
MAX_COOKIES = 8192
"""Most characters of a Cookie header that is read."""


def cookie_name(federation: str, *, is_secure: bool) -> str:
    """Return the name of the session's cookie: browsers send a host's cookies to all its ports.

    Over HTTPS it has the prefix by which browsers take it from this host alone, and never from plain text.
    """
    return f"{'__Host-' if is_secure else ''}fedplcc-{federation}"


class KeyGuard:
    """Middleware that keeps the key of each request for the calls made for it, and refuses requests without one."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that has a key or needs none."""
        services = scope["app"].state.services
        if scope["type"] != "http" or not services.asks_keys or is_open(scope["path"]):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        bearer = _bearer(headers)
        key = key_of(scope)
        try:
            if not key:
                raise KeyInvalid(
                    "this needs a key: send Authorization: Bearer KEY; `fedplcc login` makes one for the command line, "
                    "`fedplcc console` opens the console, both on the aggregator's host"
                )
            parse_api_key(key)
        except KeyInvalid as error:
            scope["app"].state.services.metrics.refused(error)
            await respond(error, scope)(scope, receive, send)
            return
        if not bearer and scope["method"] not in SAFE_METHODS and CONSOLE_HEADER not in headers:
            detail = f"a change on a session's behalf needs the header {CONSOLE_HEADER}"
            await respond_http(403, detail, scope)(scope, receive, send)
            return
        token = caller_key.set(key)
        try:
            await self.app(scope, receive, send)
        finally:
            caller_key.reset(token)


def key_of(scope: Scope) -> str:
    """Return the key that a request shows, whatever it is worth; empty if it shows none."""
    headers = Headers(scope=scope)
    name = cookie_name(scope["app"].state.services.federation, is_secure=scope.get("scheme") == "https")
    return _bearer(headers) or _cookie(headers, name)


def is_open(path: str) -> bool:
    """Whether a path needs no key."""
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDERS)


def _bearer(headers: Headers) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _cookie(headers: Headers, name: str) -> str:
    text = headers.get("cookie", "")
    if not text or len(text) > MAX_COOKIES:
        return ""
    try:
        found = SimpleCookie(text).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
