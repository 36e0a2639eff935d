"""AdminService.SignOn: the steps of a person's sign-on."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from fedplcc.aggregator.servicer.calls import Context
from fedplcc.aggregator.store.base import ApiKey
from fedplcc.shared.errors import FailedPrecondition, MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2 as admin_pb2
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2_grpc as admin_grpc
from fedplcc.shared.identity.principals import current_principal
from fedplcc.shared.wire.addresses import is_network

if TYPE_CHECKING:  # it needs the extra sso, which an aggregator without single sign-on lacks
    from fedplcc.aggregator.identity.sign_on.sign_ons import Beginning, SignOns


class SignOnCalls(admin_grpc.AdminServiceServicer):
    """Mixin of AdminServicer; it needs the attribute below."""

    _sign_ons: SignOns | None
    """None where no provider is set."""

    async def SignOn(self, request: admin_pb2.SignOnRequest, context: Context) -> admin_pb2.SignOnResponse:
        step, sign_ons = request.WhichOneof("step"), self._sign_ons
        if step is None:
            return admin_pb2.SignOnResponse(name="" if sign_ons is None else sign_ons.name)
        if sign_ons is None:
            raise FailedPrecondition("nobody signs on here: the aggregator's sso_issuer is not set")
        if not is_network(request.address):
            raise MalformedRequest("address: it is none of IPv4 or IPv6, and no network", field="address")
        # What is refused from here on is the person's, and not the gateway's.
        current_principal.set(replace(current_principal.get(), address=request.address))
        if step == "browser":
            return _begun(await sign_ons.begin_in_browser(request.browser.redirect_uri, request.address))
        if step == "terminal":
            return _begun(await sign_ons.begin_at_terminal(request.address))
        if step == "finish":
            found = request.finish
            return _opened(await sign_ons.finish(found.handle, found.state, found.code))
        opened = await sign_ons.poll(request.poll.handle)
        return admin_pb2.SignOnResponse() if opened is None else _opened(opened)


def _begun(beginning: Beginning) -> admin_pb2.SignOnResponse:
    return admin_pb2.SignOnResponse(
        url=beginning.url,
        user_code=beginning.user_code,
        handle=beginning.handle,
        interval_s=beginning.interval_s,
        expires_at=time.time() + beginning.life_s,
    )


def _opened(opened: tuple[ApiKey, str]) -> admin_pb2.SignOnResponse:
    session, text = opened
    return admin_pb2.SignOnResponse(text=text, expires_at=session.expires_at)
