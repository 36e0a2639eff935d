"""Base class and field types of the JSON documents."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in hexadecimal digits."""


class Document(BaseModel):
    """A JSON object of the REST interface."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


def utc_time(seconds: float) -> datetime:
    """Return the UTC time of a number of seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)
