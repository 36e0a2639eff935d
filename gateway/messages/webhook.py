"""Delivery to a webhook, signed as Standard Webhooks 1.0 says: HMAC-SHA256 of id, time and body.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping

import httpx

from fedplcc.gateway.messages.message import Message
from fedplcc.gateway.messages.receivers import Receiver, Webhook
from fedplcc.gateway.messages.undelivered import SEND_S, Undelivered
from fedplcc.shared.wire.peer_versions import USER_AGENT

CONNECT_S = 10.0
"""Longest wait for a connection, and longest silence in it."""


def signed_headers(secret: bytes, message_id: str, seconds: int, body: bytes) -> Mapping[str, str]:
    """Return the headers that tell a receiver who wrote a body, and when.

    Args:
        secret: Key of the signature, without prefix and base64.
        seconds: Time of the attempt, since 1970.
    """
    digest = hmac.digest(secret, f"{message_id}.{seconds}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def post(receiver: Receiver, webhook: Webhook, message_id: str, message: Message) -> None:
    """Call a webhook once. It runs in a thread of its own with a loop of its own, so that no name that is not found holds
    up others.

    Raises:
        Undelivered: It did not answer with a status of success.
    """
    asyncio.run(_post(receiver, webhook, message_id, message))


async def _post(receiver: Receiver, webhook: Webhook, message_id: str, message: Message) -> None:
    body = json.dumps(message.document, ensure_ascii=False).encode()
    headers = {
        **signed_headers(receiver.secret, message_id, int(time.time()), body),
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
    }
    # Without the environment: no variable leads a message through a proxy that the file does not name.
    client = httpx.AsyncClient(verify=receiver.tls, trust_env=False, follow_redirects=False, timeout=CONNECT_S)
    try:
        # The status is the whole answer: no byte of the body is read.
        async with (
            asyncio.timeout(SEND_S),
            client,
            client.stream("POST", webhook.url, content=body, headers=headers) as answer,
        ):
            status = answer.status_code
    except (TimeoutError, httpx.TimeoutException):
        raise Undelivered("no answer in time") from None
    except httpx.ConnectError as error:
        raise Undelivered(f"no connection: {str(error)[:200]}") from None
    except (httpx.HTTPError, OSError) as error:
        raise Undelivered(f"the connection broke off: {type(error).__name__}") from None
    if 300 <= status < 400:
        raise Undelivered(f"HTTP status {status}: redirects are not followed")
    if not 200 <= status < 300:
        raise Undelivered(f"HTTP status {status}")
