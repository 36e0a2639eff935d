"""Operations on the receivers of messages."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request

from fedplcc.gateway.http.described.operations import Operations
from fedplcc.gateway.messages.receivers import Webhook
from fedplcc.gateway.routes.dependencies import Aggregator, needs, services_of
from fedplcc.shared import documents
from fedplcc.shared.bounds import NAME_PATTERN
from fedplcc.shared.documents.document import utc_time
from fedplcc.shared.errors import NotFound, Overloaded
from fedplcc.shared.identity.api_keys import Scope

OPERATIONS = Operations("messages")
ReceiverName = Annotated[str, Path(pattern=NAME_PATTERN, description="The receiver's name.", examples=["operators"])]


@OPERATIONS.add("GET", "/v1/messages/receivers", dependencies=(needs(Scope.READ),))
async def list_message_receivers(request: Request) -> documents.MessageReceivers:
    """List who is told of what, and how the last delivery went."""
    couriers = services_of(request).couriers
    found = []
    for receiver, lanes in () if couriers is None else couriers.receivers:
        last = max(
            (lane.place for lane in lanes if lane.place is not None), key=lambda place: place.delivered_at, default=None
        )
        choice, has_last = receiver.choice, last is not None and last.delivered_at > 0
        found.append(
            documents.MessageReceiver(
                name=receiver.name,
                kind="webhook" if isinstance(choice, Webhook) else "mail",
                host=choice.host,
                events=[kind.value for kind in choice.events],
                runs=list(choice.runs),
                clients=list(choice.clients),
                last_kind=last.delivered if last is not None and has_last else None,
                last_at=utc_time(last.delivered_at) if last is not None and has_last else None,
                failure=next((lane.failure for lane in lanes if lane.failure), ""),
            )
        )
    return documents.MessageReceivers(receivers=found)


@OPERATIONS.add(
    "POST",
    "/v1/messages/receivers/{receiver}/test",
    refusals=(NotFound, Overloaded),
    dependencies=(needs(Scope.ADMIN),),
)
async def test_message_receiver(
    request: Request, aggregator: Aggregator, receiver: ReceiverName
) -> documents.MessageTest:
    """Send a receiver a message of the kind test, once, and tell how that went.

    The gateway's log keeps who asked.
    """
    services = services_of(request)
    caller = (await aggregator.get_caller()).caller if services.asks_keys else "anyone"
    if services.couriers is None:
        raise NotFound("this gateway has no receivers; its owner names them with --messages")
    failure = await services.couriers.test(receiver, caller)
    return documents.MessageTest(is_delivered=not failure, failure=failure)
