"""The key of the request that is being answered, which goes on to the aggregator with every call made for it.

Whether keys are asked for follows from `--insecure` alone: what opens a gateway may not depend on an order of starts, as the
presence of a certificate would.
"""

from __future__ import annotations

from contextvars import ContextVar

from fedplcc.shared.wire.call_logs import request_metadata
from fedplcc.shared.wire.serving.caller import KEY_METADATA

caller_key: ContextVar[str] = ContextVar("caller_key", default="")
"""Text of the key; empty without one. The gateway has no right of its own."""


def call_metadata() -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call: the request's id, and the caller's key."""
    key = caller_key.get()
    return (*request_metadata(), (KEY_METADATA, key)) if key else request_metadata()
