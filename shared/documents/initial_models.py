"""Documents of initial models."""

from __future__ import annotations

from typing import Self

from shared import types
from shared.config.initial_model import ModelBlob
from shared.documents.document import Document, Sha256


class InitialModel(Document):
    """A model that runs can begin with."""

    sha256: Sha256
    size_bytes: int
    initial_model: str
    """What a run's configuration writes as `run.initial_model`."""

    @classmethod
    def of(cls, blob: types.BlobRef) -> Self:
        """The document of a model that the aggregator holds."""
        return cls(sha256=blob.sha256, size_bytes=blob.size_bytes, initial_model=str(ModelBlob(blob.sha256)))
