"""Operations on the caller itself, and on sessions of the console."""

from __future__ import annotations

import time
from typing import Literal

from fastapi import Request, Response

from fedplcc.gateway.http.described.operations import Operations
from fedplcc.gateway.http.guards.key_guard import SESSION_END_PATH, SESSIONS_PATH, cookie_name
from fedplcc.gateway.routes.dependencies import Aggregator, services_of
from fedplcc.shared import documents
from fedplcc.shared.documents.document import utc_time
from fedplcc.shared.errors import FailedPrecondition, KeyInvalid
from fedplcc.shared.identity.api_keys import Scope

OPERATIONS = Operations("callers")


@OPERATIONS.add("GET", "/v1/me", refusals=(KeyInvalid,))
async def get_caller(request: Request, aggregator: Aggregator) -> documents.Caller:
    """Tell who makes this request, what it may do, and until when."""
    services = services_of(request)
    transport: Literal["http", "https"] = "https" if request.url.scheme == "https" else "http"
    if not services.asks_keys:
        scopes = [scope.value for scope in Scope]
        return documents.Caller(
            caller="anyone",
            label="",
            scopes=scopes,
            expires_at=None,
            federation="",
            transport=transport,
            is_insecure=True,
            is_exposed=services.is_exposed,
        )
    found = await aggregator.get_caller()
    return documents.Caller(
        caller=found.caller,
        label=found.label,
        scopes=list(found.scopes),
        expires_at=utc_time(found.expires_at) if found.expires_at else None,
        federation=found.federation,
        transport=transport,
        is_insecure=False,
        is_exposed=False,
    )


@OPERATIONS.add("POST", SESSIONS_PATH, status=204, refusals=(KeyInvalid, FailedPrecondition), http_refusals=(413,))
async def open_console_session(
    request: Request, aggregator: Aggregator, body: documents.ConsoleSessionRequest
) -> Response:
    """Open a session of the console for a code, as a cookie that scripts cannot read."""
    services = services_of(request)
    if not services.asks_keys:
        raise FailedPrecondition("this gateway asks for no keys, so the console needs no session")
    text, expires_at = await aggregator.redeem_console_code(body.code)
    answer = Response(status_code=204, headers={"Cache-Control": "no-store"})
    is_secure = request.url.scheme == "https"
    answer.set_cookie(
        cookie_name(services.federation, is_secure=is_secure),
        text,
        max_age=max(0, int(expires_at - time.time())),
        secure=is_secure,
        httponly=True,
        samesite="strict",
    )
    return answer


@OPERATIONS.add("POST", SESSION_END_PATH, status=204, refusals=(KeyInvalid, FailedPrecondition))
async def end_session(request: Request, aggregator: Aggregator) -> Response:
    """End the session, or the key, of this request: it is revoked, its event streams end, and its cookie is removed."""
    services = services_of(request)
    if not services.asks_keys:
        raise FailedPrecondition("this gateway asks for no keys, so there is no session to end")
    await aggregator.revoke_own_key()
    answer = Response(status_code=204, headers={"Cache-Control": "no-store"})
    is_secure = request.url.scheme == "https"
    answer.delete_cookie(
        cookie_name(services.federation, is_secure=is_secure),
        secure=is_secure,
        httponly=True,
        samesite="strict",
    )
    return answer
