"""Calls of AdminService about keys, sessions and the caller itself."""

from __future__ import annotations

from collections.abc import Callable

from fedplcc.aggregator.identity.keys import KEY_S, Keys
from fedplcc.aggregator.servicer.calls import Context
from fedplcc.aggregator.servicer.calls import control_call as call
from fedplcc.aggregator.store.base import ApiKey
from fedplcc.shared.convert.reading.fields import limited
from fedplcc.shared.errors import KeyInvalid, MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2 as admin_pb2
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2_grpc as admin_grpc
from fedplcc.shared.identity.api_keys import Scope
from fedplcc.shared.identity.principals import current_principal


class KeyCalls(admin_grpc.AdminServiceServicer):
    """Mixin of AdminServicer; it needs the attributes below."""

    _keys: Keys
    _federation: str
    """Id of the federation."""
    _roots_pem: Callable[[], bytes]
    """Returns the federation's roots in PEM."""

    async def GetCaller(self, request: admin_pb2.GetCallerRequest, context: Context) -> admin_pb2.GetCallerResponse:
        caller = current_principal.get()
        key = self._keys.find(caller.key_id) if caller.key_id else None
        return admin_pb2.GetCallerResponse(
            caller=caller.caller,
            label="" if key is None else key.label,
            scopes=[scope.value for scope in Scope if scope in caller.scopes],
            expires_at=caller.ends_at if key is None else key.expires_at,
            federation=self._federation,
            roots_pem=self._roots_pem().decode(),
        )

    async def CreateKey(self, request: admin_pb2.CreateKeyRequest, context: Context) -> admin_pb2.CreateKeyResponse:
        scopes = [_scope(name) for name in limited("scopes", request.scopes, len(Scope))]
        key, text = await call(self._keys.create, request.label, scopes, request.valid_s or KEY_S)
        return admin_pb2.CreateKeyResponse(key=_to_proto(key, current_principal.get().caller), text=text)

    async def ListKeys(self, request: admin_pb2.ListKeysRequest, context: Context) -> admin_pb2.ListKeysResponse:
        keys, makers = await call(self._keys.list), await call(self._keys.makers)
        return admin_pb2.ListKeysResponse(keys=[_to_proto(key, makers.get(key.key_id, "")) for key in keys])

    async def RevokeKey(self, request: admin_pb2.RevokeKeyRequest, context: Context) -> admin_pb2.RevokeKeyResponse:
        await call(self._keys.revoke, request.key_id)
        return admin_pb2.RevokeKeyResponse()

    async def RevokeOwnKey(
        self, request: admin_pb2.RevokeOwnKeyRequest, context: Context
    ) -> admin_pb2.RevokeOwnKeyResponse:
        key_id = current_principal.get().key_id
        if not key_id:
            raise KeyInvalid("this call ends the caller's own key, and has none")
        await call(self._keys.revoke, key_id)
        return admin_pb2.RevokeOwnKeyResponse()

    async def CreateConsoleCode(
        self, request: admin_pb2.CreateConsoleCodeRequest, context: Context
    ) -> admin_pb2.CreateConsoleCodeResponse:
        return admin_pb2.CreateConsoleCodeResponse(
            code=await call(self._keys.create_console_code, current_principal.get())
        )

    async def RedeemConsoleCode(
        self, request: admin_pb2.RedeemConsoleCodeRequest, context: Context
    ) -> admin_pb2.RedeemConsoleCodeResponse:
        session, text = await call(self._keys.redeem_console_code, request.code)
        return admin_pb2.RedeemConsoleCodeResponse(text=text, expires_at=session.expires_at)


def _scope(name: str) -> Scope:
    try:
        return Scope(name)
    except ValueError:
        raise MalformedRequest(f"scopes: {name[:32]!r} is none of {', '.join(Scope)}") from None


def _to_proto(key: ApiKey, maker: str) -> admin_pb2.Key:
    return admin_pb2.Key(
        key_id=key.key_id,
        label=key.label,
        scopes=key.scopes,
        created_at=key.created_at,
        expires_at=key.expires_at,
        kind=key.kind,
        maker=maker,
    )
