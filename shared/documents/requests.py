"""Bodies of requests that control a run."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from shared.documents.document import Document

REQUEST_ID = r"^[!-~]{1,128}$"
"""What names a request, in the header Idempotency-Key."""


class PauseRequest(Document):
    """How to pause."""

    model_config = ConfigDict(extra="forbid")

    now: bool = False
    """Interrupts the open round at once; it starts again on resume from the same model with the same cohort."""


class StopRequest(Document):
    """Why to stop."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field("", max_length=500)
    """For the history."""


class QuarantineRequest(Document):
    """Why to leave a client out."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field("", max_length=500)
    """For the history, and for the client."""
