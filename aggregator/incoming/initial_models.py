"""Initial models of runs: uploads, and the model that a configuration names.

A model is stored by its SHA-256 before a run names it, so that a crash in between leaves only an unused model. A run can
start only from an uploaded model or from one that another run committed: no configuration gives access to an update of a
client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedplcc.aggregator.computation.model_checks import check_model
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.aggregator.store.blobs.uploads import Upload
from fedplcc.shared.config.initial_model import ModelBlob, ModelFile, ModelOfRun, parse_initial_model
from fedplcc.shared.errors import (
    BlobCorrupt,
    BlobNotFound,
    BlobTooLarge,
    InvalidConfig,
    InvalidModel,
    MalformedUpdate,
    RoundNotFound,
    RunNotFound,
)
from fedplcc.shared.types import BlobRef, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The initial model of a run, and its source for the history."""

    model: BlobRef
    source: Mapping[str, Any]
    committed: CommittedModel | None = None
    """The round of another run that it comes from, if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedModel:
    """The model of a run's committed round."""

    run: Run
    number: int
    blob: BlobRef
    path: Path
    classes: tuple[str, ...]
    """Class names of the run, in the order of the model's outputs."""


FindCommitted = Callable[[str, int | None], CommittedModel]
"""Returns the model of a run's round (None: the last one); raises if there is none."""


class InitialModels:
    """Initial models that an aggregator holds for runs to come."""

    def __init__(self, blobs: BlobStore, *, max_blob_bytes: int, accepted: Callable[[str], None]) -> None:
        """Hold none.

        Args:
            accepted: Called with the SHA-256 of each uploaded model, just before it is held.
        """
        self._blobs, self._max_blob_bytes, self._accepted = blobs, max_blob_bytes, accepted

    def begin_upload(self, blob: BlobRef, name: str) -> InitialModelReceiver | None:
        """Begin to receive a model from its first byte; None if the aggregator holds it already.

        Raises:
            BlobTooLarge: The model is larger than the aggregator allows.
            BlobCorrupt: The aggregator holds a model of this SHA-256 and another size.
            StoreUnavailable: The disk has no room for the model.
        """
        if blob.size_bytes > self._max_blob_bytes:
            raise BlobTooLarge(f"a model has at most {self._max_blob_bytes} bytes here, this one {blob.size_bytes}")
        held = self._blobs.find_initial(blob.sha256)
        if held is not None:
            size_bytes = held[0].size_bytes
            if size_bytes != blob.size_bytes:
                raise BlobCorrupt(
                    f"the model of this SHA-256 has {size_bytes} bytes, not {blob.size_bytes}", sha256=blob.sha256
                )
            return None
        upload = self._blobs.begin_initial(blob)
        return InitialModelReceiver(self._blobs, upload, name, self._accepted)

    def resolve(self, text: str, find_committed: FindCommitted) -> Beginning:
        """Return the model that `run.initial_model` names, held for runs to start from.

        Raises:
            InvalidConfig: The text names a file, which only the machine that sent the request has.
            BlobNotFound, RunNotFound, RoundNotFound: There is no such model, run or round.
        """
        match parse_initial_model(text):
            case ModelFile() as file:
                raise InvalidConfig(
                    f"run.initial_model = {str(file)!r}: the aggregator reads no files of yours; start the run with "
                    "'fedplcc run start', or PUT the file to /v1/models/SHA256 and write sha256:SHA256",
                    location="run.initial_model",
                )
            case ModelBlob(sha256):
                found = self._blobs.find_initial(sha256)
                if found is None:
                    raise BlobNotFound(
                        f"run.initial_model: the aggregator holds no model sha256:{sha256}; upload the file, or name it as "
                        "file:PATH and start the run with 'fedplcc run start'",
                        sha256=sha256,
                    )
                model, name = found
                return Beginning(model=model, source={"sha256": sha256, "name": name})
            case ModelOfRun(run_id, number):
                try:
                    committed = find_committed(run_id, number)
                except (RunNotFound, RoundNotFound) as error:
                    raise type(error)(f"run.initial_model = {text!r}: {error.detail}", **error.metadata) from error
                model = committed.blob
                self._blobs.hold_initial(committed.path, model.sha256, f"{run_id}@{committed.number}")
                source = {"sha256": model.sha256, "run_id": run_id, "round": committed.number}
                return Beginning(model=model, source=source, committed=committed)

    def keep(self, model: BlobRef) -> None:
        """Store a resolved model as a blob, so that a run may name it."""
        self._blobs.keep_initial(model.sha256)


class InitialModelReceiver:
    """One model being received: bytes in order, then `finish`; `close` in any case."""

    def __init__(self, blobs: BlobStore, upload: Upload, name: str, accepted: Callable[[str], None]) -> None:
        self._blobs, self._upload, self._name, self._accepted = blobs, upload, name, accepted

    def write(self, data: bytes) -> None:
        """Append the next bytes.

        Raises:
            ChunkOutOfOrder: The bytes exceed the announced size.
        """
        self._upload.write(self._upload.offset_bytes, data)

    def finish(self) -> None:
        """Check the whole model and hold it.

        Raises:
            BlobCorrupt: Bytes are missing or do not have the announced SHA-256.
            InvalidModel: The bytes are no safetensors file of finite float32 and int64 tensors.
        """
        self._upload.finish()
        path = self._upload.complete_path
        try:
            check_model(path, None)
        except MalformedUpdate as error:
            raise InvalidModel(f"{self._name or 'the file'} is no model to begin with: {error.detail}") from error
        self._accepted(self._upload.blob.sha256)
        self._blobs.hold_initial(path, self._upload.blob.sha256, self._name)

    def close(self) -> None:
        """Close the file, and remove it unless the model is held."""
        self._blobs.discard_initial(self._upload)
