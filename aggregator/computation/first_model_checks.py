"""Checks of round 0's update: the run's first model, its feature size, and lists of its tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from fedplcc.aggregator.computation.checked import MAX_ENTRIES, Content
from fedplcc.aggregator.computation.model_checks import BLOCK_ELEMENTS, check_model, check_size_of_step, model_norm
from fedplcc.aggregator.computation.public_checks import check_digest
from fedplcc.aggregator.computation.update_checks import check_entries
from fedplcc.shared.bounds import MAX_FEATURES
from fedplcc.shared.config.class_map import LINEAR_HEAD_NEEDED, ClassMap, is_linear_head
from fedplcc.shared.config.declared_arrays import declared_arrays, declared_uploads
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.methods.arrays import MAX_ARRAY_BYTES, most_bytes
from fedplcc.shared.methods.parts.arrays import ServerArrays
from fedplcc.shared.tensors import TensorEntry, TensorTable, check_schema, read_blocks, read_header, sha256_hex
from fedplcc.shared.types import (
    FEATURE_DIM,
    HEAD,
    MODEL,
    PARAMETERS,
    PUBLIC_DATA,
    TENSOR_LISTS,
    BlobRef,
    PrototypeSet,
    Update,
)


def check_first_model(
    update: Update,
    contents: Mapping[BlobRef, Content],
    config: RunConfig,
    initial: Path | None = None,
    prototypes: PrototypeSet | None = None,
) -> Update:
    """Check round 0's update: a model, its feature size and lists of its tensors, nothing else.

    Args:
        initial: The initial model of the configuration, if any; the update must hold the same tensors, but for the rows of
            its head where the run has other classes.
        prototypes: Those that the run begins with, if any; the model must have as many features.

    Raises:
        MalformedUpdate: check is roles, entries, bound, initial_model, initial_prototypes, or one of `check_model` and
            `check_tensor_lists`.
        UpdateNormExceeded: The model, which no person chose, is further from 0 than float32 can compute with.
    """
    dims = update.payload.int_lists.get(FEATURE_DIM, ())
    if [blob.role for blob in update.payload.blobs] != [MODEL]:
        raise MalformedUpdate("round 0 commits exactly one blob, the model", check="roles")
    if len(dims) != 1 or dims[0] < 1 or update.num_examples:
        raise MalformedUpdate(
            "round 0 commits a model, its feature_dim and lists of its tensors, and nothing else", check="roles"
        )
    if dims[0] > MAX_FEATURES:
        raise MalformedUpdate(f"feature_dim = {dims[0]}: at most {MAX_FEATURES}", check="bound")
    check_entries(update)
    model = contents[update.payload.tensor_groups[0]]
    table = check_model(model, None)
    if initial is None:
        check_size_of_step(model_norm(model, table), "the first model")
    classes = config.initial_class_map
    if initial is not None and classes is not None:
        _check_mapped_tensors(model, table, initial, classes, update.payload.int_lists.get(HEAD, ()))
    elif initial is not None and model != initial:
        _check_same_tensors(model, table, initial)
    if prototypes is not None and len(prototypes) and prototypes.vectors.shape[1] != dims[0]:
        raise MalformedUpdate(
            f"the model has {dims[0]} features, and the prototypes that the run begins with {prototypes.vectors.shape[1]}",
            check="initial_prototypes",
        )
    check_tensor_lists(update, table, config)
    if config.algorithm.uses_public(config.method):
        check_digest(update)
    return update


def check_tensor_lists(update: Update, table: TensorTable, config: RunConfig) -> None:
    """Check round 0's lists of tensors: their names, that each ascends within the model, and that the method's are there.

    Raises:
        MalformedUpdate: check is tensor_lists, where `metadata["list"]` names the list, linear_head or bound.
    """
    others = {FEATURE_DIM, *([PUBLIC_DATA] if config.algorithm.uses_public(config.method) else [])}
    lists = {name: places for name, places in update.payload.int_lists.items() if name not in others}
    for name, places in lists.items():
        if name not in TENSOR_LISTS:
            raise _malformed_list(name, f"round 0 has no list {name[:MAX_ENTRIES]!r}, but {', '.join(TENSOR_LISTS)}")
        if any(not 0 <= place < len(table.entries) for place in places):
            raise _malformed_list(name, f"{name}: a place is outside the model's {len(table.entries)} tensors")
        if any(first >= second for first, second in pairwise(places)):
            raise _malformed_list(name, f"{name}: the places do not ascend")
    for place in lists.get(PARAMETERS, ()):
        if table.entries[place].dtype != "F32":
            raise _malformed_list(PARAMETERS, f"tensor {table.entries[place].name!r} is trained and no float32")
    method = config.algorithm
    for name in method.needed_tensor_lists(config.method):
        if name not in lists or (not lists[name] and name != method.personal_part(config.method)):
            raise _malformed_list(name, f"method {method.name} needs round 0's list {name!r}")
    personal = method.personal_part(config.method)
    if personal != "none" and len(lists[personal]) in (0, len(table.entries)):
        how_much = "all of it is" if lists[personal] else "nothing of it is"
        raise _malformed_list(
            personal,
            f"model {config.model.name!r}: {how_much} {personal}, which clients of this run keep for themselves",
        )
    arrays = method.part(ServerArrays)
    if arrays is not None and arrays.needs_linear_head:
        _check_linear_head(
            [table.entries[place] for place in lists[HEAD]], config, update.payload.int_lists[FEATURE_DIM][0]
        )
    _check_sizes(config, update.payload.int_lists[FEATURE_DIM][0])


def _check_linear_head(head: Sequence[TensorEntry], config: RunConfig, dim: int) -> None:
    """Check that the head is a weight `[M, D]` and a bias `[M]`."""
    num_classes = len(config.data.classes)
    found = sorted(((entry.dtype, entry.shape) for entry in head), key=lambda each: len(each[1]))
    if found == [("F32", (num_classes,)), ("F32", (num_classes, dim))]:
        return
    others = " of other shapes" if len(head) == 2 else ""
    raise MalformedUpdate(
        f"model {config.model.name!r} has a head of {len(head)} tensors{others}; {config.run.method} needs one linear layer "
        "(weight and bias)",
        check="linear_head",
    )


def _check_sizes(config: RunConfig, dim: int) -> None:
    """Check the size of what the server keeps, of what clients upload beside the model, and of the server's work."""
    method, num_classes = config.algorithm, len(config.data.classes)
    for what, declared in (("server arrays", declared_arrays), ("an update's arrays", declared_uploads)):
        size = most_bytes(declared(config, dim), num_classes)
        if size > MAX_ARRAY_BYTES:
            raise MalformedUpdate(
                f"{what} of method {method.name} take {size} bytes with {num_classes} classes and {dim} features; at most "
                f"{MAX_ARRAY_BYTES}",
                check="bound",
            )
    wrong = method.size_fault(config.method, num_classes, dim)
    if wrong is not None:
        raise MalformedUpdate(wrong, check="bound")


def _check_same_tensors(model: Content, table: TensorTable, initial: Path) -> None:
    """Check that two blobs hold bitwise equal tensors, in any order."""
    with model.open("rb") as file, initial.open("rb") as other:
        known = read_header(other)
        check_schema(table.schema, known.schema)
        others = {entry.name: entry for entry in known.entries}
        for entry in table.entries:
            _check_equal(file, entry, other, others[entry.name])


def _check_equal(file: BinaryIO, entry: TensorEntry, other: BinaryIO, known: TensorEntry) -> None:
    blocks = zip(read_blocks(file, entry, BLOCK_ELEMENTS), read_blocks(other, known, BLOCK_ELEMENTS), strict=True)
    if any(block.tobytes() != known_block.tobytes() for block, known_block in blocks):
        raise _not_initial(entry)


def _check_mapped_tensors(
    model: Content, table: TensorTable, initial: Path, classes: ClassMap, head: Sequence[int]
) -> None:
    """Check a model of other classes than the initial one: equal but for its head, whose rows go by class.

    Rows of classes that are new to the initial model may be any.

    Args:
        head: Places of the head's tensors in the table, as the update lists them.
    """
    heads = {table.entries[place].name for place in head if 0 <= place < len(table.entries)}
    with model.open("rb") as file, initial.open("rb") as other:
        known = {entry.name: entry for entry in read_header(other).entries}
        mine = [entry.shape for entry in table.entries if entry.name in heads]
        theirs = [entry.shape for name, entry in known.items() if name in heads]
        if not (is_linear_head(mine, len(classes.rows)) and is_linear_head(theirs, classes.known)):
            raise MalformedUpdate(LINEAR_HEAD_NEEDED, check="linear_head")
        mapped = {
            name: (entry.dtype, (len(classes.rows), *entry.shape[1:]) if name in heads else entry.shape)
            for name, entry in known.items()
        }
        check_schema(table.schema, mapped)
        for entry in table.entries:
            if entry.name not in heads:
                _check_equal(file, entry, other, known[entry.name])
                continue
            row_elements = math.prod(entry.shape[1:])
            initially = [sha256_hex(row.tobytes()) for row in read_blocks(other, known[entry.name], row_elements)]
            for row, place in zip(read_blocks(file, entry, row_elements), classes.rows, strict=True):
                if place is not None and sha256_hex(row.tobytes()) != initially[place]:
                    raise _not_initial(entry)


def _not_initial(entry: TensorEntry) -> MalformedUpdate:
    return MalformedUpdate(f"tensor {entry.name!r} is not the initial model's", check="initial_model")


def _malformed_list(name: str, detail: str) -> MalformedUpdate:
    return MalformedUpdate(detail, check="tensor_lists", list=name[:MAX_ENTRIES])
