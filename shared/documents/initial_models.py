"""Document of a model that runs can begin with."""

from __future__ import annotations

from typing import Self

from fedplcc.shared import types
from fedplcc.shared.config.initial_model import ModelBlob
from fedplcc.shared.documents.document import Document, Sha256


class InitialModel(Document):
    """A model that runs can begin with."""

    sha256: Sha256
    size_bytes: int
    initial_model: str
    """Value of `run.initial_model` in a run's configuration."""

    @classmethod
    def of(cls, blob: types.BlobRef) -> Self:
        """Return the document of a model that the aggregator holds."""
        return cls(sha256=blob.sha256, size_bytes=blob.size_bytes, initial_model=str(ModelBlob(blob.sha256)))
