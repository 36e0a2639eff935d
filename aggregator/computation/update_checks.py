"""Checks of updates and reports, which keep a bad client from damaging a run.

Each refusal is a `MalformedUpdate` whose `metadata["check"]` names the check. Models are read block by block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedplcc.aggregator.computation.checked import MAX_ENTRIES, Content, check_numbers, malformed
from fedplcc.aggregator.computation.model_checks import check_model, check_norm, check_size_of_step, update_norm
from fedplcc.aggregator.computation.prototype_checks import check_prototype_norms, check_prototypes, max_prototype_bytes
from fedplcc.aggregator.computation.public_checks import DIGEST_BYTES, check_public_data
from fedplcc.aggregator.computation.tensor_group_checks import check_uploads
from fedplcc.shared.bounds import MAX_EXAMPLES
from fedplcc.shared.config.declared_arrays import declared_uploads
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.tables.stream import Place
from fedplcc.shared.errors import FirstModelDiffers
from fedplcc.shared.tensors import (
    TensorTable,
    prototypes_from_bytes,
)
from fedplcc.shared.types import (
    FEATURE_DIM,
    MODEL,
    PUBLIC_DATA,
    STAGE_DATA,
    STREAM_PLACE,
    TENSOR_LISTS,
    BlobRef,
    Client,
    Update,
)


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
    check_counts(
        update, client, len(config.data.classes), config.admission.max_num_examples, withholds=config.withholds
    )
    if shares_model:
        model = contents[update.payload.tensor_groups[0]]
        check_model(model, table)
        update = replace(update, norm=update_norm(model, start, table))
        check_size_of_step(update.norm)
        if config.admission.max_update_norm is not None:
            check_norm(update.norm, config.admission.max_update_norm)
    if place is None and client.class_counts:
        _check_classes(update, client, config.data.classes)
    elif place is not None:
        check_stage(update, place)
    if method.uses_public(config.method):
        check_public_data(update, int_lists[PUBLIC_DATA])
    if uploads:
        check_uploads(update, contents, config, dim)
    if not kinds:
        return update
    blob, max_bytes = update.payload.prototype_sets[0], max_prototype_bytes(config, dim)
    if blob.size_bytes > max_bytes:
        raise malformed("size", f"a prototype set has at most {max_bytes} bytes in this run")
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
        raise malformed(
            "stage",
            f"the update needs the list {STREAM_PLACE!r} with pass {place.number} and stage {place.stage} of its round",
        )
    digest = update.payload.int_lists.get(STAGE_DATA, ())
    if len(digest) != DIGEST_BYTES or not all(0 <= number <= 255 for number in digest):
        raise malformed("stage", f"the update needs the list {STAGE_DATA!r}: {DIGEST_BYTES} bytes, each from 0 to 255")


def check_counts(
    update: Update,
    client: Client,
    num_classes: int,
    max_num_examples: int | None = None,
    *,
    withholds: bool = False,
) -> None:
    """Check the sample counts of a round's update.

    A client whose owner keeps the samples of classes to the site says 0 of each; what needs them refuses that itself.

    Args:
        num_classes: M.
        max_num_examples: Most samples that the run accepts from one client.
        withholds: Whether the run's clients tell no samples of single classes, no losses and no excluded samples.

    Raises:
        MalformedUpdate: check is num_examples, class_counts, num_excluded, entries or bound.
    """
    if not 1 <= update.num_examples <= MAX_EXAMPLES:
        raise malformed("num_examples", f"num_examples = {update.num_examples}: 1 to {MAX_EXAMPLES}")
    if update.num_examples > client.num_examples:
        raise malformed(
            "num_examples",
            f"num_examples = {update.num_examples}: the client said that it has {client.num_examples} samples",
        )
    if max_num_examples is not None and update.num_examples > max_num_examples:
        raise malformed(
            "num_examples",
            f"num_examples = {update.num_examples}: the run takes up to {max_num_examples} (admission.max_num_examples)",
        )
    if len(update.class_counts) != num_classes:
        raise malformed("class_counts", f"{len(update.class_counts)} class counts for {num_classes} classes")
    if withholds:
        if any(update.class_counts) or update.losses or update.num_excluded:
            raise malformed(
                "class_counts",
                "the update tells samples of classes, losses or excluded samples, which this run withholds",
            )
    elif min(update.class_counts) < 0 or sum(update.class_counts) not in (0, update.num_examples):
        raise malformed("class_counts", "the class counts are not counts that sum to num_examples")
    if not 0 <= update.num_excluded <= update.num_examples:
        raise malformed("num_excluded", f"num_excluded = {update.num_excluded}: out of range")
    check_entries(update)


def _check_classes(update: Update, client: Client, classes: Sequence[str]) -> None:
    """Check that an update is of no more samples of a class than its sender said when it joined."""
    for name, count in zip(classes, update.class_counts, strict=True):
        said = client.class_counts.get(name, 0)
        if count > said:
            raise malformed(
                "class_counts", f"{count} samples of class {name!r}: the client said that it has {said} of them"
            )


def check_entries(update: Update) -> None:
    """Check the number and the values of an update's named entries.

    Raises:
        MalformedUpdate: check is entries, or bound for a number that is finite and too large.
    """
    for what, entries in (("losses", update.losses), ("timings", update.timings), ("scalars", update.payload.scalars)):
        check_numbers(what, entries)
    if len(update.payload.int_lists) > MAX_ENTRIES or len(update.payload.metadata) > MAX_ENTRIES:
        raise malformed("entries", f"more than {MAX_ENTRIES} entries in the payload")


def _check_roles(update: Update, kinds: list[str], uploads: list[str], *, shares_model: bool = True) -> None:
    groups = [blob.role for blob in update.payload.tensor_groups]
    if not shares_model and not uploads and groups:
        raise malformed("roles", "an update has no tensor group in this run: its clients keep their models")
    if shares_model and not uploads and groups != [MODEL]:
        raise malformed("roles", "an update has exactly one tensor group, the model")
    expected = [*([MODEL] if shares_model else []), *uploads]
    if groups != expected:
        raise malformed("roles", f"an update has the tensor groups {expected} in this run, in this order")
    if [blob.role for blob in update.payload.prototype_sets] != kinds:
        raise malformed("roles", f"this update needs the prototype sets {kinds}")
