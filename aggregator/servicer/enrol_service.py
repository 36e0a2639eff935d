"""EnrolService, which a site calls before it has a certificate or after its certificate has ended: decode, admit, encode."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from fedplcc.aggregator.identity.admissions import SECRET_BYTES, Admissions
from fedplcc.aggregator.identity.issuing import Admitted
from fedplcc.aggregator.servicer.call_rate import CallRate, address_of
from fedplcc.aggregator.servicer.calls import Context
from fedplcc.shared.errors import MalformedRequest, Overloaded
from fedplcc.shared.gen.fedplcc.v1 import enrol_service_pb2 as enrol_pb2
from fedplcc.shared.gen.fedplcc.v1 import enrol_service_pb2_grpc as enrol_grpc
from fedplcc.shared.wire.serving.threads import Threads

_T = TypeVar("_T")

MAX_MESSAGE_BYTES = 16 << 10
"""Largest message of this service."""
CALLS, PERIOD_S = 10, 60.0
"""Calls that an address may make in so many seconds."""
MOST_WAITING = 64
"""Calls that may wait for the thread of this service at the same time."""
WAITING_OF_AN_ADDRESS = 15
"""The same of one address, whose calls take turns with others': one at a time is done or next."""


class EnrolServicer(enrol_grpc.EnrolServiceServicer):
    """Servicer of the RPCs of who has no certificate that holds."""

    def __init__(
        self,
        admissions: Admissions,
        federation: str,
        *,
        port: Callable[[], int] = int,
        clock: Callable[[], float] = time.time,
        rate: CallRate | None = None,
    ) -> None:
        """Prepare.

        Args:
            port: Returns the port of the services that demand certificates; 0 if it is not to be told.
            clock: The aggregator's time in seconds since the epoch.
            rate: Calls that each address may make; one that admits is not counted.
        """
        self._admissions, self._federation, self._port, self._clock = admissions, federation, port, clock
        self._rate = rate or CallRate(CALLS, PERIOD_S)
        # A thread of its own: strangers must not keep the threads of trainers and operators busy.
        self._thread, self._waiting = Threads(1, "enrolment", at_once=1, waiting=WAITING_OF_AN_ADDRESS), 0

    async def GetTime(self, request: enrol_pb2.GetTimeRequest, context: Context) -> enrol_pb2.GetTimeResponse:
        self._check(request, context)
        return enrol_pb2.GetTimeResponse(time=self._clock(), federation=self._federation)

    async def Enrol(self, request: enrol_pb2.EnrolRequest, context: Context) -> enrol_pb2.EnrolResponse:
        self._check(request, context)
        if len(request.secret) != SECRET_BYTES:
            raise MalformedRequest(f"secret: it has {SECRET_BYTES} bytes")
        admitted = await self._call(
            context, self._admissions.enrol, request.invitation_id, request.secret, request.certificate_request
        )
        if not admitted.is_again:
            # The owner has counted who is admitted, by inviting: many sites may stand behind one address.
            self._rate.give_back(address_of(context.peer()))
        return enrol_pb2.EnrolResponse(issued=issued_to_proto(admitted, self._port()))

    async def BeginRecovery(
        self, request: enrol_pb2.BeginRecoveryRequest, context: Context
    ) -> enrol_pb2.BeginRecoveryResponse:
        self._check(request, context)
        challenge = await self._call(context, self._admissions.begin_recovery, request.certificate)
        return enrol_pb2.BeginRecoveryResponse(challenge=challenge)

    async def FinishRecovery(
        self, request: enrol_pb2.FinishRecoveryRequest, context: Context
    ) -> enrol_pb2.FinishRecoveryResponse:
        self._check(request, context)
        admitted = await self._call(
            context,
            self._admissions.finish_recovery,
            request.certificate,
            request.challenge,
            request.signature,
            request.certificate_request,
        )
        return enrol_pb2.FinishRecoveryResponse(issued=issued_to_proto(admitted, self._port()))

    async def _call(self, context: Context, function: Callable[..., _T], *args: object) -> _T:
        if self._waiting >= MOST_WAITING:
            raise Overloaded(f"{MOST_WAITING} calls wait; try again in a moment")
        self._waiting += 1
        try:
            return await self._thread.call_for(address_of(context.peer()), function, *args)
        finally:
            self._waiting -= 1

    def _check(self, request: Any, context: Context) -> None:
        """Check the bounds of a call: how often its address calls, and how large it is."""
        self._rate.count(address_of(context.peer()))
        if request.ByteSize() > MAX_MESSAGE_BYTES:
            raise MalformedRequest(f"a message of this service has at most {MAX_MESSAGE_BYTES} bytes")


def issued_to_proto(admitted: Admitted, port: int) -> enrol_pb2.IssuedCertificate:
    """Return the message of a certificate just issued.

    Args:
        port: Port of the services that demand certificates; 0 if it is not to be told.
    """
    return enrol_pb2.IssuedCertificate(
        chain_pem=admitted.chain_pem,
        roots_pem=admitted.roots_pem,
        federation=admitted.identity.federation,
        role=admitted.identity.role.value,
        name=admitted.identity.name,
        domain=admitted.domain,
        port=port,
    )
