"""Documents of requests that steer a run."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from fedplcc.shared.bounds import MAX_NOTES, MAX_TAGS, TAG_PATTERN
from fedplcc.shared.documents.document import Document

REQUEST_ID = r"^[!-~]{1,128}$"
"""Pattern of a request id, in the header Idempotency-Key."""


class _Request(Document):
    """What is asked for: `true` and "4" are no whole numbers, and a name that is not known is a mistake."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PauseRequest(_Request):
    """Way of pausing a run."""

    now: bool = False
    """Interrupts the open round at once; on resume the round starts again from the same model with the same cohort."""


class StopRequest(_Request):
    """Reason to stop a run."""

    reason: str = Field("", max_length=500)
    """For the history."""


class ExtendRequest(_Request):
    """Number of rounds that a completed run goes on to."""

    rounds: int = Field(ge=1, le=100_000)
    """Rounds after round 0, with those that the run has."""


class QuarantineRequest(_Request):
    """Reason to quarantine a client."""

    reason: str = Field("", max_length=500)
    """For the history, and for the client."""


class RunChange(_Request):
    """Change of what people note about a run. What is left out stays."""

    tags: list[Annotated[str, Field(pattern=TAG_PATTERN)]] | None = Field(None, max_length=MAX_TAGS)
    """Its tags from now on."""
    notes: str | None = Field(None, max_length=MAX_NOTES, pattern=r"^[^\x00]*$")
    """Its notes from now on, plain text."""
    is_archived: bool | None = None
    """Whether it is archived: left out of lists that do not ask for it. Only a run that has ended can be."""
