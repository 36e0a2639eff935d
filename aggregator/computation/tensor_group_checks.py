"""Checks of the declared tensor groups that an update has beside its model."""

from __future__ import annotations

from collections.abc import Mapping

from fedplcc.aggregator.computation.checked import Content
from fedplcc.shared.config.declared_arrays import declared_uploads
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.methods.arrays import ArrayGroup, group_fault, most_bytes
from fedplcc.shared.tensors import MAX_HEADER_BYTES, from_bytes
from fedplcc.shared.types import BlobRef, Update


def check_uploads(update: Update, contents: Mapping[BlobRef, Content], config: RunConfig, dim: int) -> None:
    """Check the declared tensor groups of an update; its roles are checked already.

    Args:
        dim: The run's feature size D.

    Raises:
        MalformedUpdate: check is size, keys, dtype, shape or finite, or upload for what the method itself refuses;
            `metadata["group"]` names the group, and `metadata["tensor"]` the tensor if it is of one.
    """
    method, num_classes = config.algorithm, len(config.data.classes)
    arrays: dict[str, ArrayGroup] = {}
    for name, schema in declared_uploads(config, dim).items():
        blob = update.payload.tensor_group(name)
        assert blob is not None, "roles are checked first"
        most = most_bytes({name: schema}, num_classes) + MAX_HEADER_BYTES
        if blob.size_bytes > most:
            raise MalformedUpdate(
                f"tensor group {name!r} has at most {most} bytes in this run", check="size", group=name
            )
        arrays[name] = from_bytes(contents[blob].read_bytes())
        fault = group_fault(arrays[name], schema, num_classes)
        if fault is not None:
            check, tensor, sentence = fault
            raise MalformedUpdate(f"tensor group {name!r} {sentence}", check=check, group=name, tensor=tensor[:64])
    wrong = method.upload_fault(arrays, update.class_counts, config.method)
    if wrong is not None:
        raise MalformedUpdate(wrong, check="upload")
