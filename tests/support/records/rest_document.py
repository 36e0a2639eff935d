"""The OpenAPI document of the gateway, made once in a process."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from fedplcc.gateway.app import create_app
from fedplcc.shared.config.settings import GatewaySettings


def rest_document() -> dict[str, Any]:
    """Return a copy of it that is the caller's own."""
    return copy.deepcopy(_made())


@cache
def _made() -> dict[str, Any]:
    return create_app(GatewaySettings(insecure=True)).openapi()
