"""Documents of requests that steer a run."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from shared.documents.document import Document

REQUEST_ID = r"^[!-~]{1,128}$"
"""Pattern of a request id, in the header Idempotency-Key."""


class PauseRequest(Document):
    """Way of pausing a run."""

    model_config = ConfigDict(extra="forbid")

    now: bool = False
    """Interrupts the open round at once; on resume the round starts again from the same model with the same cohort."""


class StopRequest(Document):
    """Reason to stop a run."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field("", max_length=500)
    """For the history."""


class QuarantineRequest(Document):
    """Reason to quarantine a client."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field("", max_length=500)
    """For the history, and for the client."""
