"""Operations of single sign-on: in a browser by redirections, at a terminal by a code that is typed elsewhere."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import Query, Request, Response
from starlette.responses import RedirectResponse

from fedplcc.gateway.http.described.operations import Operations
from fedplcc.gateway.http.guards.cross_site_guard import comes_from_here
from fedplcc.gateway.http.guards.forwarded import caller_address
from fedplcc.gateway.http.guards.key_guard import SIGN_ON_PATH, cookie_name
from fedplcc.gateway.routes.dependencies import Aggregator, services_of
from fedplcc.shared import documents
from fedplcc.shared.documents.document import utc_time
from fedplcc.shared.errors import (
    FailedPrecondition,
    FedplccError,
    Overloaded,
    ResourceExhausted,
    SignOnRefused,
    SignOnUnavailable,
)

OPERATIONS = Operations("callers")
PAGES = Operations("callers", is_listed=False)
"""What a browser opens; a provider adds to the address what it likes."""
REFUSALS = (FailedPrecondition, Overloaded, SignOnUnavailable)
CONSOLE = "/"
SIGNED_ON = "/#signed-on"
"""The console, which is told that a session has begun."""
FAILED = "/#sign-on-failed="
"""The console, which is told by the check behind it that none has."""
BEGUN_S = 600
"""Life of the cookie that binds a sign-on to its browser."""


@OPERATIONS.add("GET", SIGN_ON_PATH)
async def get_sign_on(request: Request, aggregator: Aggregator) -> documents.SignOnOffer:
    """Tell where people sign on."""
    name = await aggregator.sign_on_provider() if services_of(request).asks_keys else ""
    return documents.SignOnOffer(name=name)


@OPERATIONS.add("POST", f"{SIGN_ON_PATH}/terminal", refusals=REFUSALS)
async def begin_terminal_sign_on(request: Request, aggregator: Aggregator) -> documents.TerminalSignOn:
    """Begin a sign-on at a terminal: a person opens the address elsewhere and types the code there."""
    begun = await aggregator.sign_on(_address_of(request), terminal={})
    return documents.TerminalSignOn(
        url=begun.url,
        user_code=begun.user_code,
        handle=begun.handle,
        interval_s=begun.interval_s,
        expires_at=utc_time(begun.expires_at),
    )


@OPERATIONS.add(
    "POST",
    f"{SIGN_ON_PATH}/terminal/poll",
    refusals=(FailedPrecondition, SignOnRefused, ResourceExhausted, SignOnUnavailable),
    http_refusals=(413,),
)
async def poll_terminal_sign_on(
    request: Request, aggregator: Aggregator, body: documents.SignOnPollRequest
) -> documents.SignOnPoll:
    """Return the session of a person who has signed on elsewhere; an empty one while the provider waits."""
    made = await aggregator.sign_on(_address_of(request), poll={"handle": body.handle})
    return documents.SignOnPoll(key=made.text, expires_at=utc_time(made.expires_at) if made.text else None)


@PAGES.add("GET", f"{SIGN_ON_PATH}/start", has_head=False)
async def begin_browser_sign_on(request: Request, aggregator: Aggregator) -> Response:
    """Lead a browser to the provider; one that a page of another site sends keeps its session, and comes to the console."""
    if not comes_from_here(request.headers):
        return RedirectResponse(CONSOLE, 303)
    back = str(request.url.replace(path=f"{SIGN_ON_PATH}/callback", query="", fragment=""))
    begun = await aggregator.sign_on(_address_of(request), browser={"redirect_uri": back})
    answer = RedirectResponse(begun.url, 303)
    is_secure = request.url.scheme == "https"
    # The provider's page leads back here, so the cookie comes along from another site, in that one case.
    answer.set_cookie(
        _begun_cookie(request), begun.handle, max_age=BEGUN_S, secure=is_secure, httponly=True, samesite="lax"
    )
    return answer


@PAGES.add("GET", f"{SIGN_ON_PATH}/callback", has_head=False)
async def finish_browser_sign_on(
    request: Request,
    aggregator: Aggregator,
    state: Annotated[str, Query(max_length=64)] = "",
    code: Annotated[str, Query(max_length=2048)] = "",
) -> Response:
    """Open the console's session of a browser that comes back from the provider."""
    handle = request.cookies.get(_begun_cookie(request), "")
    step = {"handle": handle[:64], "state": state, "code": code}
    try:
        made = await aggregator.sign_on(_address_of(request), finish=step)
    except (SignOnRefused, SignOnUnavailable) as error:
        if "text/html" not in request.headers.get("accept", ""):
            raise
        return RedirectResponse(f"{FAILED}{_check_of(error)}", 303)
    answer = RedirectResponse(SIGNED_ON, 303)
    is_secure = request.url.scheme == "https"
    answer.set_cookie(
        cookie_name(services_of(request).federation, is_secure=is_secure),
        made.text,
        max_age=max(0, int(made.expires_at - time.time())),
        secure=is_secure,
        httponly=True,
        samesite="strict",
    )
    answer.delete_cookie(_begun_cookie(request), secure=is_secure, httponly=True, samesite="lax")
    return answer


def _check_of(error: FedplccError) -> str:
    check = str(error.metadata.get("check", "")).lower()
    return check if check.isascii() and check.replace("_", "").isalpha() and len(check) <= 32 else "provider"


def _begun_cookie(request: Request) -> str:
    name = cookie_name(services_of(request).federation, is_secure=request.url.scheme == "https")
    return f"{name}-sign-on"


def _address_of(request: Request) -> str:
    """Return the caller's address. Raises FailedPrecondition where nobody is asked for a key."""
    if not services_of(request).asks_keys:
        raise FailedPrecondition("this gateway asks for no keys, so nobody needs to sign on")
    return caller_address(request.scope)
