"""Checks of updates and reports, which keep a bad client from damaging a run.

Each refusal is a `MalformedUpdate` whose `metadata["check"]` names the check. Models are read block by block.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import numpy as np

from fedplcc.aggregator.computation.public_checks import DIGEST_BYTES, check_public_data
from fedplcc.aggregator.computation.upload_checks import check_uploads
from fedplcc.shared.bounds import MAX_EXAMPLES, MAX_VALUE, is_bounded
from fedplcc.shared.config.declared_arrays import declared_uploads
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.stream import Place
from fedplcc.shared.errors import FirstModelDiffers, MalformedUpdate, UpdateNormExceeded
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.prototypes import (
    MAX_ROWS,
    MAX_ROWS_PER_CLASS,
    PrototypeExchange,
    excess_rows,
    per_class_counts,
)
from fedplcc.shared.score_histograms import fault_of
from fedplcc.shared.tensors import (
    DTYPES,
    TensorEntry,
    TensorTable,
    check_schema,
    prototypes_from_bytes,
    read_blocks,
    read_header,
)
from fedplcc.shared.types import (
    ALONE_MODEL,
    CLASS_MEAN,
    FEATURE_DIM,
    GLOBAL_MODEL,
    HISTOGRAM_SETS,
    LOCAL_MODEL,
    MODEL,
    PUBLIC_DATA,
    STAGE_DATA,
    STREAM_PLACE,
    TENSOR_LISTS,
    BlobRef,
    Client,
    Evaluation,
    EvaluationCounts,
    PrototypeSet,
    Update,
)

MAX_ENTRIES = 64
"""Most named scalars, lists, losses or timings in a message."""
MAX_SETS = 16
"""Most evaluation sets of a report."""
MAX_PROTOTYPE_BYTES = 2**28
"""Largest prototype set; unlike a model it is read whole into memory."""
PROTOTYPE_HEADER_BYTES = 4096
"""More than the header of a prototype set needs."""
BYTES_BESIDE_VECTOR = 20
"""Bytes of a prototype's class, weight and group."""
SMALL_BYTES = 1 << 18
"""Most bytes of a model that is read as one to measure its norm."""
MAX_TOTAL_RATIO = 100
"""Most test images for each training sample: by them a client weighs in accuracies, and nobody else can count them."""
FREE_TOTAL = 100_000
"""Test images that any client may have."""
BLOCK_ELEMENTS = 1 << 18
MAX_STEP_NORM = 1e18
"""Largest norm of an update's step, and of a first model, in any run: squares and products of larger weights are infinite in
float32, so no client could train on them."""


class Content(Protocol):
    """Content of one of an update's blobs: a file, or bytes in memory."""

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        """Open it for reading."""

    def read_bytes(self) -> bytes:
        """Return all of it."""


def check_update(
    update: Update,
    contents: Mapping[BlobRef, Content],
    client: Client,
    config: RunConfig,
    table: TensorTable,
    int_lists: Mapping[str, Sequence[int]],
    start: Path,
    place: Place | None = None,
) -> Update:
    """Check a round's update against the run's contract; returns it with its number of prototypes and its norm.

    Args:
        update: The update.
        contents: The content of each of its blobs.
        client: Its sender.
        config: The run's configuration.
        table: Layout of the model in an update: the run's, or what of it clients send.
        int_lists: Lists of round 0's update: the run's feature size D, and what else it says.
        start: The global model that the round started from, whole.
        place: Pass and stage of the round, in a run with stages.

    Raises:
        MalformedUpdate: check is roles (also for a model in a run whose clients keep theirs, or a missing one in others),
            size, or one of `check_counts`, `check_stage`, `check_model`, `check_uploads` and `check_prototypes`.
        PublicDataDiffers: The client has other public images than the run.
        UpdateNormExceeded: The model is further from `start`, or a prototype from 0, than the configuration allows, or
            further than float32 can compute with.
        FirstModelDiffers: The client finds other lists of the model's tensors than round 0's update has.
    """
    method, (dim,) = config.algorithm, int_lists[FEATURE_DIM]
    kinds = [] if method.prototype_kind is None else [method.prototype_kind]
    shares_model = method.shares_model(config.method)
    uploads = sorted(declared_uploads(config, dim))
    _check_first_lists(update, int_lists)
    _check_roles(update, kinds, uploads, shares_model=shares_model)
    check_counts(update, client, len(config.data.classes), config.admission.max_num_examples)
    if shares_model:
        model = contents[update.payload.tensor_groups[0]]
        check_model(model, table)
        update = replace(update, norm=update_norm(model, start, table))
        check_size_of_step(update.norm)
        if config.admission.max_update_norm is not None:
            check_norm(update.norm, config.admission.max_update_norm)
    if place is None:
        _check_classes(update, client, config.data.classes)
    else:
        check_stage(update, place)
    if method.uses_public(config.method):
        check_public_data(update, int_lists[PUBLIC_DATA])
    if uploads:
        check_uploads(update, contents, config, dim)
    if not kinds:
        return update
    blob, max_bytes = update.payload.prototype_sets[0], max_prototype_bytes(config, dim)
    if blob.size_bytes > max_bytes:
        raise _malformed("size", f"a prototype set has at most {max_bytes} bytes in this run")
    prototypes = prototypes_from_bytes(contents[blob].read_bytes())
    check_prototypes(
        prototypes,
        update,
        method=method,
        dim=dim,
        class_counts=update.class_counts,
        max_per_class=config.max_prototypes_per_class,
    )
    if config.admission.max_prototype_norm is not None:
        check_prototype_norms(prototypes, config.admission.max_prototype_norm)
    return replace(update, num_prototypes=len(prototypes))


def _check_first_lists(update: Update, int_lists: Mapping[str, Sequence[int]]) -> None:
    """Check that a client finds the lists of round 0's update, where it says its own: in the round after it."""
    for name in (FEATURE_DIM, *TENSOR_LISTS):
        found, first = update.payload.int_lists.get(name), int_lists.get(name)
        if found is not None and first is not None and tuple(found) != tuple(first):
            raise FirstModelDiffers(
                f"list {name!r} of the first model is not the one that this client makes of specification and seed",
                check="tensor_lists",
                list=name,
            )


def check_stage(update: Update, place: Place) -> None:
    """Check that an update is of the data of the round's stage.

    Raises:
        MalformedUpdate: check is stage: it is of another stage, or does not say the digest of its data.
    """
    found = update.payload.int_lists.get(STREAM_PLACE, ())
    if found != (place.number, place.stage):
        raise _malformed(
            "stage",
            f"the update needs the list {STREAM_PLACE!r} with pass {place.number} and stage {place.stage} of its round",
        )
    digest = update.payload.int_lists.get(STAGE_DATA, ())
    if len(digest) != DIGEST_BYTES or not all(0 <= number <= 255 for number in digest):
        raise _malformed("stage", f"the update needs the list {STAGE_DATA!r}: {DIGEST_BYTES} bytes, each from 0 to 255")


def check_model(model: Content, expected: TensorTable | None) -> TensorTable:
    """Check a model blob: a correct header, the run's layout, finite numbers.

    Args:
        model: The blob's content.
        expected: Layout of the run's model; None for the first model, which sets it.

    Raises:
        MalformedUpdate: check is header, keys, dtype, shape, offsets, layout, elements or finite.
    """
    with model.open("rb") as file:
        table = _expected_header(file, expected) or read_header(file)
        if expected is not None and table is not expected:
            check_schema(table.schema, expected.schema)
            # Tensors without elements may stand in another order: all others are where they are to be.
            if set(table.entries) != set(expected.entries):
                raise _malformed("layout", "the model's tensors are not laid out as the global model's")
        if expected is None and not any(entry.num_elements for entry in table.entries):
            raise _malformed("elements", "no tensor of the model has an element")
        for dtype, neighbours in groupby(table.entries, key=lambda entry: entry.dtype):
            if np.issubdtype(DTYPES[dtype], np.floating):
                _check_finite_tensors(file, list(neighbours))
    return table


def _check_finite_tensors(file: BinaryIO, entries: Sequence[TensorEntry]) -> None:
    """Check tensors of one dtype that lie one behind the other; read as one, because a small model has many tiny ones."""
    whole = replace(entries[0], shape=(sum(entry.num_elements for entry in entries),), end=entries[-1].end)
    if all(np.isfinite(block).all() for block in read_blocks(file, whole, BLOCK_ELEMENTS)):
        return
    for entry in entries:
        if not all(np.isfinite(block).all() for block in read_blocks(file, entry, BLOCK_ELEMENTS)):
            raise _malformed("finite", f"tensor {entry.name!r} has a value that is NaN or infinite")


def _expected_header(file: BinaryIO, expected: TensorTable | None) -> TensorTable | None:
    """Return the expected table if the file has exactly its header and size, as every good update has; saves parsing."""
    if expected is None or file.seek(0, io.SEEK_END) != expected.size_bytes:
        return None
    file.seek(0)
    return expected if file.read(len(expected.header)) == expected.header else None


def update_norm(model: Content, start: Path, table: TensorTable) -> float:
    """Return ||w - w_t||, the L2 norm of the difference over all floating-point tensors together, in float64.

    Models are read block by block, so memory does not depend on their size. No sum of squares of finite float32 values
    overflows.

    Args:
        model: The local model w, its layout and finiteness checked.
        start: The global model w_t, of the same layout; it may have further tensors, which clients keep for themselves.
        table: Layout of the local model.
    """
    total = 0.0
    with model.open("rb") as file, start.open("rb") as other:
        is_alike = other.seek(0, io.SEEK_END) == table.size_bytes
        if is_alike and table.size_bytes <= SMALL_BYTES:
            other.seek(0)
            return _small_norm(file.read(), other.read(), table)
        places = {entry.name: entry for entry in (table if is_alike else read_header(other)).entries}
        for entry in table.entries:
            if not np.issubdtype(DTYPES[entry.dtype], np.floating):
                continue
            blocks = zip(
                read_blocks(file, entry, BLOCK_ELEMENTS),
                read_blocks(other, places[entry.name], BLOCK_ELEMENTS),
                strict=True,
            )
            for block, start_block in blocks:
                difference = np.subtract(block, start_block, dtype=np.float64)
                total += float(np.square(difference, out=difference).sum())
    return math.sqrt(total)


def _small_norm(model: bytes, start: bytes, table: TensorTable) -> float:
    """Return the same number, rounding included, of two small files that are laid out alike: tiny tensors cost little."""
    total = 0.0
    for name, neighbours in groupby(table.entries, key=lambda entry: entry.dtype):
        dtype, entries = DTYPES[name], list(neighbours)
        if not np.issubdtype(dtype, np.floating):
            continue
        ends = np.cumsum([entry.num_elements for entry in entries]).tolist()
        values, start_values = (np.frombuffer(each, dtype, ends[-1], entries[0].begin) for each in (model, start))
        squares = np.subtract(values, start_values, dtype=np.float64)
        np.square(squares, out=squares)
        for begin, end in pairwise([0, *ends]):
            total += float(np.add.reduce(squares[begin:end]))
    return math.sqrt(total)


def model_norm(model: Content, table: TensorTable) -> float:
    """Return the L2 norm of a model over all floating-point tensors together, in float64, read block by block."""
    total = 0.0
    with model.open("rb") as file:
        for entry in table.entries:
            if np.issubdtype(DTYPES[entry.dtype], np.floating):
                for block in read_blocks(file, entry, BLOCK_ELEMENTS):
                    total += float(np.square(block, dtype=np.float64).sum())
    return math.sqrt(total)


def check_norm(norm: float | None, most: float) -> None:
    """Check the norm of an update, if it was measured.

    Raises:
        UpdateNormExceeded: The norm is larger than `most`; the metadata have both.
    """
    if norm is not None and norm > most:
        raise UpdateNormExceeded(
            f"the update's norm is {norm:.6g}; the run takes up to {most:g} (admission.max_update_norm)",
            check="norm",
            norm=f"{norm:.9g}",
            max_update_norm=f"{most:.9g}",
        )


def check_size_of_step(norm: float | None, what: str = "the update") -> None:
    """Check that a model can be trained on in float32.

    Args:
        norm: L2 norm of an update's step, or of the first model.
        what: What it is, for people.

    Raises:
        UpdateNormExceeded: The norm is larger than `MAX_STEP_NORM`.
    """
    if norm is not None and not norm <= MAX_STEP_NORM:
        raise UpdateNormExceeded(
            f"{what} diverged: its norm is {norm:.6g}; beyond {MAX_STEP_NORM:g} float32 cannot compute with it in any run",
            check="norm",
            norm=f"{norm:.9g}",
            max_update_norm=f"{MAX_STEP_NORM:.9g}",
        )


def prototype_norm(prototypes: PrototypeSet) -> float:
    """Return the largest L2 norm of a prototype, in float64, where no finite float32 vector overflows; 0 without any."""
    return float(np.linalg.norm(prototypes.vectors.astype(np.float64), axis=1).max(initial=0.0))


def check_prototype_norms(prototypes: PrototypeSet, most: float) -> None:
    """Check the L2 norm of each prototype, in float64, where no finite float32 vector overflows.

    Args:
        prototypes: The set, its finiteness checked.
        most: The largest norm that the run accepts.

    Raises:
        UpdateNormExceeded: A norm is larger than `most`; the metadata have both, and the prototype's class.
    """
    if prototype_norm(prototypes) <= most:
        return
    norms_K = np.linalg.norm(prototypes.vectors.astype(np.float64), axis=1)
    norm, class_id = float(norms_K.max()), int(prototypes.class_ids[norms_K.argmax()])
    raise UpdateNormExceeded(
        f"a prototype of class {class_id} has norm {norm:.6g}; the run takes up to {most:g} (admission.max_prototype_norm)",
        check="prototype_norm",
        norm=f"{norm:.9g}",
        max_prototype_norm=f"{most:.9g}",
        class_id=str(class_id),
    )


def check_counts(update: Update, client: Client, num_classes: int, max_num_examples: int | None = None) -> None:
    """Check the sample counts of a round's update.

    Args:
        update: The update.
        client: Its sender.
        num_classes: M.
        max_num_examples: Most samples that the run accepts from one client.

    Raises:
        MalformedUpdate: check is num_examples, class_counts, num_excluded, entries or bound.
    """
    if not 1 <= update.num_examples <= MAX_EXAMPLES:
        raise _malformed("num_examples", f"num_examples = {update.num_examples}: 1 to {MAX_EXAMPLES}")
    if update.num_examples > client.num_examples:
        raise _malformed(
            "num_examples",
            f"num_examples = {update.num_examples}: the client said that it has {client.num_examples} samples",
        )
    if max_num_examples is not None and update.num_examples > max_num_examples:
        raise _malformed(
            "num_examples",
            f"num_examples = {update.num_examples}: the run takes up to {max_num_examples} (admission.max_num_examples)",
        )
    if len(update.class_counts) != num_classes:
        raise _malformed("class_counts", f"{len(update.class_counts)} class counts for {num_classes} classes")
    if min(update.class_counts) < 0 or sum(update.class_counts) != update.num_examples:
        raise _malformed("class_counts", "the class counts are not counts that sum to num_examples")
    if not 0 <= update.num_excluded <= update.num_examples:
        raise _malformed("num_excluded", f"num_excluded = {update.num_excluded}: out of range")
    check_entries(update)


def _check_classes(update: Update, client: Client, classes: Sequence[str]) -> None:
    """Check that an update is of no more samples of a class than its sender said when it joined."""
    for name, count in zip(classes, update.class_counts, strict=True):
        said = client.class_counts.get(name, 0)
        if count > said:
            raise _malformed(
                "class_counts", f"{count} samples of class {name!r}: the client said that it has {said} of them"
            )


def check_entries(update: Update) -> None:
    """Check the number and the values of an update's named entries.

    Raises:
        MalformedUpdate: check is entries, or bound for a number that is finite and too large.
    """
    for what, entries in (("losses", update.losses), ("timings", update.timings), ("scalars", update.payload.scalars)):
        _check_numbers(what, entries)
    if len(update.payload.int_lists) > MAX_ENTRIES or len(update.payload.metadata) > MAX_ENTRIES:
        raise _malformed("entries", f"more than {MAX_ENTRIES} entries in the payload")


def max_prototype_bytes(config: RunConfig, dim: int) -> int:
    """Return the size of the largest prototype set that a run allows, whose features have size `dim`."""
    rows = min(MAX_ROWS, len(config.data.classes) * config.max_prototypes_per_class)
    return min(MAX_PROTOTYPE_BYTES, PROTOTYPE_HEADER_BYTES + rows * (4 * dim + BYTES_BESIDE_VECTOR))


def check_prototypes(
    prototypes: PrototypeSet,
    update: Update,
    *,
    method: Method,
    dim: int,
    class_counts: Sequence[int],
    max_per_class: int = MAX_ROWS_PER_CLASS,
) -> None:
    """Check an uploaded prototype set (docs/algorithms.md, rule 1.7).

    Args:
        prototypes: The set, structure already checked.
        update: The update that contains it.
        method: The run's method.
        dim: The run's feature size D.
        class_counts: The client's samples per class, `[M]`.
        max_per_class: Most prototypes of a class that the run allows.

    Raises:
        MalformedUpdate: check is dim, class_id, group_id, finite, weight, count (also for several means of a class) or sum.
    """
    if prototypes.vectors.shape[1] != dim and len(prototypes):
        raise _malformed("dim", f"prototypes have {prototypes.vectors.shape[1]} features, the model {dim}")
    if len(prototypes) > update.num_examples:
        raise _malformed("count", f"{len(prototypes)} prototypes for {update.num_examples} samples")
    num_classes = len(class_counts)
    if len(prototypes) and not (prototypes.class_ids.min() >= 0 and prototypes.class_ids.max() < num_classes):
        raise _malformed("class_id", f"a prototype's class id is outside [0, {num_classes})")
    if len(prototypes) and prototypes.group_ids.min() < -1:
        raise _malformed("group_id", "a prototype's group id is neither an id nor -1 for none")
    excess = excess_rows(prototypes, num_classes, max_per_class)
    if excess is not None:
        raise _malformed("count", f"the update has {excess}")
    if not (np.isfinite(prototypes.vectors).all() and np.isfinite(prototypes.weights).all()):
        raise _malformed("finite", "a prototype or its weight is NaN or infinite")
    if len(prototypes) and prototypes.weights.min() <= 0:
        raise _malformed("weight", "a prototype's weight is not positive")
    counts_M = per_class_counts(prototypes.class_ids, num_classes)
    exchange = method.part(PrototypeExchange)
    if exchange is not None and exchange.kind == CLASS_MEAN and counts_M.max() > 1:
        # Each further mean of a class would count like one more client in plain means over clients.
        raise _malformed(
            "count", f"{counts_M.max()} means of class {counts_M.argmax()}, and a client has one per class"
        )
    if ((counts_M > 0) & (np.asarray(class_counts) == 0)).any():
        raise _malformed("class_id", "a prototype is of a class that the client has no samples of")
    if exchange is not None and exchange.weights_are_counts:
        _check_sums(prototypes, update, class_counts)


def check_evaluation(evaluation: Evaluation, config: RunConfig) -> None:
    """Check a report of correct and total predictions.

    Whatever the method, a report may cover the global model alone: a client has no own model before its first update.

    Raises:
        MalformedUpdate: check is counts, models, entries or bound.
    """
    num_classes = len(config.data.classes)
    _check_numbers("timings", evaluation.timings)
    most = MAX_SETS + (2 * config.stream.stages if config.stream.is_stream else 0)
    if not 1 <= len(evaluation.counts) <= most:
        raise _malformed("counts", f"a report has 1 to {most} evaluation sets, not {len(evaluation.counts)}")
    if len({(counts.set_name, counts.model) for counts in evaluation.counts}) < len(evaluation.counts):
        raise _malformed("counts", "an evaluation set is reported twice")
    for counts in evaluation.counts:
        if counts.model not in (GLOBAL_MODEL, LOCAL_MODEL, ALONE_MODEL) or not 1 <= len(counts.set_name) <= MAX_ENTRIES:
            raise _malformed(
                "counts", "an evaluation set has no proper name, or its model is not global, local or alone"
            )
        if len(counts.correct) != num_classes or len(counts.total) != num_classes:
            raise _malformed("counts", f"evaluation set {counts.set_name!r} has no {num_classes} classes")
        if any(not 0 <= hits <= total for hits, total in zip(counts.correct, counts.total, strict=True)):
            raise _malformed("counts", f"evaluation set {counts.set_name!r} has more correct than total predictions")
        if sum(counts.total) > MAX_EXAMPLES:
            raise _malformed("counts", f"evaluation set {counts.set_name!r} has more than {MAX_EXAMPLES} predictions")
        _check_confusion(counts, config)
        _check_histograms(counts, config)
    _check_local_counts(evaluation, config)


def check_totals(evaluation: Evaluation, first: Evaluation) -> None:
    """Check that a client's evaluation sets are as large as in its first report: an inflated one would decide for all.

    Raises:
        MalformedUpdate: check is totals.
    """
    known = {counts.set_name: counts.total for counts in first.counts}
    for counts in evaluation.counts:
        total = known.get(counts.set_name, counts.total)
        if counts.total != total:
            raise _malformed(
                "totals",
                f"evaluation set {counts.set_name!r} has {sum(counts.total)} predictions, not those of each class as "
                f"in the client's first report of this run ({sum(total)})",
            )


def check_first_totals(evaluation: Evaluation, num_examples: int) -> None:
    """Check that no evaluation set is out of proportion to the samples that its client may have by its Join.

    Raises:
        MalformedUpdate: check is totals.
    """
    most = max(FREE_TOTAL, MAX_TOTAL_RATIO * num_examples)
    for counts in evaluation.counts:
        if sum(counts.total) > most:
            raise _malformed(
                "totals",
                f"evaluation set {counts.set_name!r} has {sum(counts.total)} predictions: a client with "
                f"{num_examples} samples has at most {most}",
            )


def _check_confusion(counts: EvaluationCounts, config: RunConfig) -> None:
    """Check a confusion matrix against the counts beside it; a report may have none."""
    cells, num_classes = counts.confusion, len(counts.total)
    if not cells:
        return
    name = f"evaluation set {counts.set_name!r}"
    if not config.evaluation.confusion:
        raise _malformed("counts", f"{name} has a confusion matrix, and the run asks for none")
    if len(cells) != num_classes**2:
        raise _malformed("counts", f"the confusion matrix of {name} has {len(cells)} cells, not {num_classes**2}")
    if min(cells) < 0:
        raise _malformed("counts", f"the confusion matrix of {name} has a negative count")
    if cells[:: num_classes + 1] != counts.correct:
        raise _malformed("counts", f"the confusion matrix of {name} has another diagonal than its correct predictions")
    rows = (cells[start : start + num_classes] for start in range(0, len(cells), num_classes))
    if any(sum(row) > total for row, total in zip(rows, counts.total, strict=True)):
        raise _malformed("counts", f"the confusion matrix of {name} has more samples of a class than there are")


def _check_histograms(counts: EvaluationCounts, config: RunConfig) -> None:
    """Check histograms against the counts beside them; a report may have none."""
    if counts.histograms is None:
        return
    name = f"evaluation set {counts.set_name!r}"
    if not config.evaluation.histograms or counts.set_name not in HISTOGRAM_SETS:
        raise _malformed("counts", f"{name} has histograms, and the run asks for none of it")
    fault = fault_of(counts.histograms, counts.correct, counts.total)
    if fault is not None:
        raise _malformed("counts", f"the histograms of {name} {fault}")


def _check_local_counts(evaluation: Evaluation, config: RunConfig) -> None:
    """Check counts of a client's own models: the run has such models, and the totals are those of the global model."""
    expected = config.evaluated_models
    totals = {counts.set_name: counts.total for counts in evaluation.counts if counts.model == GLOBAL_MODEL}
    for counts in evaluation.counts:
        if counts.model == GLOBAL_MODEL:
            continue
        if counts.model not in expected:
            raise _malformed("models", "the run's clients have no models of their own, and the report is of one")
        if GLOBAL_MODEL in expected and counts.set_name not in totals:
            raise _malformed(
                "models", f"evaluation set {counts.set_name!r} has counts of the model {counts.model!r} alone"
            )
        if totals.get(counts.set_name, counts.total) != counts.total:
            raise _malformed(
                "counts",
                f"evaluation set {counts.set_name!r} has other totals for the model {counts.model!r} than for the global",
            )


def _check_roles(update: Update, kinds: list[str], uploads: list[str], *, shares_model: bool = True) -> None:
    groups = [blob.role for blob in update.payload.tensor_groups]
    if not shares_model and not uploads and groups:
        raise _malformed("roles", "an update has no tensor group in this run: its clients keep their models")
    if shares_model and not uploads and groups != [MODEL]:
        raise _malformed("roles", "an update has exactly one tensor group, the model")
    expected = [*([MODEL] if shares_model else []), *uploads]
    if groups != expected:
        raise _malformed("roles", f"an update has the tensor groups {expected} in this run, in this order")
    if [blob.role for blob in update.payload.prototype_sets] != kinds:
        raise _malformed("roles", f"this update needs the prototype sets {kinds}")


def _check_sums(prototypes: PrototypeSet, update: Update, class_counts: Sequence[int]) -> None:
    weights = prototypes.weights.astype(np.float64)
    if (weights != np.rint(weights)).any():
        raise _malformed("weight", "a prototype's weight is a sample count, so a whole number")
    sums = np.bincount(prototypes.class_ids, weights=weights, minlength=len(class_counts))
    if (sums > np.asarray(class_counts)).any():
        raise _malformed("sum", "the prototypes of a class stand for more samples than the client has of it")
    if sums.sum() != update.num_examples - update.num_excluded:
        raise _malformed(
            "sum",
            f"the prototypes stand for {sums.sum():.0f} samples, expected {update.num_examples} - {update.num_excluded}",
        )


def _check_numbers(what: str, entries: Mapping[str, float]) -> None:
    if len(entries) > MAX_ENTRIES:
        raise _malformed("entries", f"more than {MAX_ENTRIES} {what}")
    wrong = [name for name, value in entries.items() if not math.isfinite(value) or len(name) > MAX_ENTRIES]
    if wrong:
        raise _malformed("entries", f"{what}: {wrong[0][:MAX_ENTRIES]!r} is not a short name with a finite number")
    large = next((name for name, value in entries.items() if not is_bounded(value)), None)
    if large is not None:
        raise _malformed(
            "bound", f"{what}: {large!r} is {entries[large]:g}; a number is at most {MAX_VALUE:g} in magnitude"
        )


def _malformed(check: str, detail: str) -> MalformedUpdate:
    return MalformedUpdate(detail, check=check)
