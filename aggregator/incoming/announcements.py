"""Limits of what clients announce: the blobs of an update are as large as the run's layout says, and no larger. Pure."""

from __future__ import annotations

from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.shared.config.declared_arrays import declared_uploads
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.encoded_models import encoded_size
from fedplcc.shared.errors import BlobTooLarge, MalformedUpdate
from fedplcc.shared.methods.arrays import most_bytes
from fedplcc.shared.methods.parts.prototypes import MAX_ROWS, MAX_ROWS_PER_CLASS
from fedplcc.shared.tensors import TensorTable
from fedplcc.shared.types import CLASS_MEAN, ENCODED, MODEL, BlobRef, Run

SLACK_BYTES = 1 << 16
"""Bytes beyond the layout that pass: a wrong header or tensor is then named by the checks of the whole update."""
ROW_BYTES = 8 + 4 + 8
"""Class id, weight and group id of a prototype, beside its vector."""


def payload_limits(
    run: Run, number: int, *, feature_dim: int, max_blob_bytes: int, sent: TensorTable | None = None
) -> dict[str, int]:
    """Return the largest size in bytes of each blob that an update of a round may have, by role.

    Args:
        feature_dim: The run's feature size D; 0 in round 0.
        sent: Layout of the model in an update, where models travel encoded: their size is then known to the byte.
    """
    if number == 0:
        known = max_blob_bytes if run.model is None else run.model.size_bytes + SLACK_BYTES
        return {MODEL: min(known, max_blob_bytes)}
    config, limits = config_of(run), {}
    if sent is not None:
        limits[ENCODED] = encoded_size(sent.schema, config.wire.precision)
    elif config.algorithm.shares_model(config.method) and run.model is not None:
        limits[MODEL] = run.model.size_bytes + SLACK_BYTES  # every round's model has the layout of round 0's
    if config.algorithm.prototype_kind is not None:
        limits[config.algorithm.prototype_kind] = _most_rows(config) * (4 * feature_dim + ROW_BYTES) + SLACK_BYTES
    num_classes = len(config.data.classes)
    for name, schema in declared_uploads(config, feature_dim).items():
        limits[name] = most_bytes({name: schema}, num_classes) + SLACK_BYTES
    return {role: min(limit, max_blob_bytes) for role, limit in limits.items()}


def check_announcement(blob: BlobRef, limits: dict[str, int], *, max_blob_bytes: int) -> None:
    """Check the size of a blob that a client wants to send, before its first byte.

    Raises:
        BlobTooLarge: It is larger than this aggregator takes any blob.
        MalformedUpdate: Updates of the round have no blob of this role (check "roles"), or a smaller one ("size").
    """
    if blob.size_bytes > max_blob_bytes:
        raise BlobTooLarge(f"a blob has at most {max_blob_bytes} bytes, this one {blob.size_bytes}")
    if blob.role not in limits:
        if blob.role == MODEL and ENCODED not in limits:
            detail = "an update has no tensor group in this run: its clients keep their models"
        else:
            detail = (
                f"an update of this round has no blob {blob.role[:64]!r}, but {', '.join(sorted(limits)) or 'none'}"
            )
        raise MalformedUpdate(detail, check="roles")
    if blob.size_bytes > limits[blob.role]:
        raise MalformedUpdate(
            f"the blob {blob.role!r} has at most {limits[blob.role]} bytes in this run, announced are {blob.size_bytes}",
            check="size",
        )


def _most_rows(config: RunConfig) -> int:
    num_classes = len(config.data.classes)
    if config.algorithm.prototype_kind == CLASS_MEAN:
        return num_classes
    return min(MAX_ROWS, num_classes * MAX_ROWS_PER_CLASS)
