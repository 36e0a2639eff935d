"""Base class and field types of the JSON documents."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in hexadecimal digits."""


class Document(BaseModel):
    """A JSON object of the REST interface."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    @classmethod
    def like(cls, record: object, /, **given: Any) -> Self:
        """Return the document that has a record's values under equal names, and those that are given in their place."""
        return cls(**{name: getattr(record, name) for name in cls.model_fields.keys() - given.keys()}, **given)


def utc_time(seconds: float) -> datetime:
    """Return the UTC time of a number of seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)
