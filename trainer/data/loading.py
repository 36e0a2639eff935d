"""Loading of a client's images from a data specification, in the class order and size of the run's data contract.

Shape legend: N images, S image size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedplcc.shared.config.run import DataSection
from fedplcc.shared.errors import InvalidData
from fedplcc.shared.types import IntArray
from fedplcc.trainer.data.images.stored import Images, Pixels, chosen, joined_images
from fedplcc.trainer.data.names import composed, nearest
from fedplcc.trainer.data.reading import IN_MEMORY, Read, Reader, Selection, allocated, read_sides
from fedplcc.trainer.data.record import TEST, TRAIN, VALIDATION, DataRecord, Mark
from fedplcc.trainer.data.source import Samples, Source, idle_keys
from fedplcc.trainer.data.specs import open_balanced_test, open_source, unlabelled_images
from fedplcc.trainer.data.subset import class_order, subset_size
from fedplcc.trainer.data.validation import held_out

Split = Literal["test", "train", "all"]
NOTHING: IntArray = np.zeros(0, np.int64)
DEFAULT_TEST_EVERY: int = DataSection.model_fields["test_every"].default


@dataclass(frozen=True, slots=True, eq=False)
class ImageSet:
    """Images with labels.

    Attributes:
        images: uint8 `[N, S, S, 3]`, in memory or in files.
        labels_N: int64 `[N]`, each an index into the contract's classes.
        marks: Name and digest of each image, see record.py; none where images do not come from a data set.
        groups: The patient, lesion or camera of each image; none where none are named.
    """

    images: Images
    labels_N: IntArray
    marks: tuple[Mark, ...] = ()
    groups: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels_N)

    @property
    def images_NSS3(self) -> Pixels:  # noqa: N802 (a shape, as in names of arrays)
        """The images as an array, of a set in memory.

        Raises:
            TypeError: They are in files.
        """
        return np.asarray(self.images)

    def of(self, is_wanted_N: npt.NDArray[np.bool_]) -> ImageSet:
        """Return the images that are wanted, in their order."""
        marks = tuple(mark for mark, is_wanted in zip(self.marks, is_wanted_N.tolist(), strict=False) if is_wanted)
        groups = tuple(group for group, is_wanted in zip(self.groups, is_wanted_N.tolist(), strict=False) if is_wanted)
        return ImageSet(chosen(self.images, is_wanted_N), self.labels_N[is_wanted_N], marks, groups)

    def of_large_classes(self, least: int) -> ImageSet:
        """Return the images of classes that have at least so many, in their order."""
        if least <= 1 or not len(self):
            return self
        is_wanted_N = np.bincount(self.labels_N)[self.labels_N] >= least
        return self if is_wanted_N.all() else self.of(is_wanted_N)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientData:
    """Training and test data of one client.

    Attributes:
        classes: The contract's class names; labels count from 0 in this order.
        test: May be empty.
        validation: Training images that are set aside, see validation.py; may be empty.
        unreadable: Files that could not be read and were left out, as paths within the data set. Files that a subset did not
            need were not tried.
        lost: By side, the classes of which every file that was tried could not be read.
        note: Remark that belongs into every report of results on this data; empty if there is none.
        arrived: Images that a run which goes on did not begin with, and that were left out.
        idle: See `source.idle_keys`.
    """

    classes: tuple[str, ...]
    train: ImageSet
    test: ImageSet
    validation: ImageSet
    unreadable: tuple[str, ...] = ()
    lost: Mapping[str, frozenset[int]] = field(default_factory=dict)
    note: str = ""
    arrived: tuple[str, ...] = ()
    idle: Mapping[str, str] = field(default_factory=dict)

    @property
    def class_counts(self) -> tuple[int, ...]:
        """Training images per class, in the contract's order."""
        return tuple(np.bincount(self.train.labels_N, minlength=len(self.classes)).tolist())

    def of_large_classes(self, least: int) -> ClientData:
        """Return the same data without training images of classes that have fewer.

        Raises:
            InvalidData: No training image is left.
        """
        train = self.train.of_large_classes(least)
        if len(self.train) and not len(train):
            raise InvalidData(
                f"no class has {least} training images in the run, and the policy of this site uses no smaller one "
                "(thresholds.class_images)"
            )
        return replace(self, train=train)


def load_dataset(
    spec: str,
    *,
    contract: DataSection,
    samples_per_class: int | None = None,
    fraction: float | None = None,
    validation_per_class: int | None = None,
    seed: int = 0,
    may_be_empty: bool = False,
    evaluate_only: bool = False,
    began: DataRecord | None = None,
    reader: Reader = IN_MEMORY,
) -> ClientData:
    """Read a client's data set and fit it to the run's data contract.

    Args:
        spec: See `specs.open_source`.
        contract: Class names, image size and split rule of the run.
        samples_per_class: Size of a class-balanced training subset; all training images if None. The test set is always
            whole. An unreadable image is replaced by the next in the shuffled order.
        fraction: Share of each class's training images, in place of `samples_per_class`. It is of all images, those for
            validation included, so that a client trains on as many with and without validation while there are enough.
        validation_per_class: Training images of a class to set aside for validation; the contract's rule if None.
        seed: Decides the images of a subset. Clients that share a data set need different seeds.
        may_be_empty: Whether there may be no training image, as in a stage that a client has nothing of.
        evaluate_only: Whether to read test images alone, of a client that never trains.
        began: The images of a run that goes on: of each side those of these names are read, whatever has arrived.
        reader: Where images lie, and who waits for them.

    Raises:
        InvalidData: The data set cannot be opened, breaks the contract, or gives no training image; no test image where
            those alone are read.
        DiskFull, StoreUnavailable, Cancelled: See `read_sides`.
    """
    whole = open_source(spec, contract.test_every)
    source = whole.seen_through(contract.window)
    class_ids = _class_ids(source, contract, spec)
    size = contract.image_size
    never_trained = evaluate_only or (began is not None and not began.sides.get(TRAIN))
    if evaluate_only:
        aside, trained = NOTHING, list[Selection]()
        tested = _selections(source, source.test, None, seed) if began is None else [_named(source.test, began, TEST)]
    elif began is None:
        aside = _aside(source, contract, validation_per_class, seed)
        trained = _selections(source, source.train, samples_per_class, seed, aside, fraction=fraction)
        tested = _selections(source, source.test, None, seed)
    else:
        (aside, _) = _named(source.train, began, VALIDATION)
        trained, tested = [_named(source.train, began, TRAIN)], [_named(source.test, began, TEST)]
    sides = [(source.train, trained), (source.train, [(aside, len(aside))]), (source.test, tested)]
    read = read_sides(sides, size, reader)
    train, validation, test = (
        _image_set(samples, each, class_ids) for (samples, _), each in zip(sides, read, strict=True)
    )
    unreadable = tuple(name for each in read for name in each.unreadable)
    if never_trained and not len(test) and not may_be_empty:
        raise InvalidData(f"data {spec!r} has no test image; a client that evaluates only needs at least one")
    if not len(train) and not never_trained and not may_be_empty:
        raise _nothing_to_train_on(spec, unreadable)
    return ClientData(
        classes=contract.classes,
        train=train,
        test=test,
        validation=validation,
        unreadable=unreadable,
        lost={side: _lost(*sides[i], read[i], class_ids) for side, i in ((TRAIN, 0), (TEST, 2))},
        note=source.note,
        arrived=_arrived(source, began) if began is not None and samples_per_class is None and fraction is None else (),
        idle=idle_keys(whole, contract, validation_per_class),
    )


def _lost(samples: Samples, selections: Sequence[Selection], read: Read, class_ids: IntArray) -> frozenset[int]:
    """Return the contract's classes of which images were wanted and none could be read."""
    tried = {label for numbers, wanted in selections if wanted for label in samples.labels_N[numbers].tolist()}
    return frozenset(class_ids[[*tried.difference(samples.labels_N[read.numbers_N].tolist())]].tolist())


def _arrived(source: Source, began: DataRecord) -> tuple[str, ...]:
    """Return the names of readable images that a record has on no side."""
    known = {name for side in began.sides.values() for name in side}
    unknown = ((part, i) for part in (source.train, source.test) for i in range(len(part)) if part.name(i) not in known)
    return tuple(part.name(i) for part, i in unknown if part.read(i) is not None)


def load_training_images(
    spec: str,
    *,
    contract: DataSection,
    samples_per_class: int | None = None,
    fraction: float | None = None,
    validation_per_class: int | None = None,
    seed: int = 0,
) -> tuple[ImageSet, tuple[str, ...]]:
    """Read the images that a client of these data trains on, without looking at their labels: those of the result are 0.

    They are the training images of `load_dataset`, in its order. Classes may have any names; a `folder:` without class
    folders has all its images for training.

    Args:
        spec: See `specs.open_source`.
        contract: Image size and split rule of the run.

    Returns:
        The images, at least one, and the names of those that could not be read.

    Raises:
        InvalidData: The data set cannot be opened, or gives no training image.
    """
    samples = unlabelled_images(spec)
    if samples is not None:
        samples = samples.seen_through(contract.window)
        num_classes, wanted = 1, [(np.arange(len(samples)), len(samples))]
    else:
        source = _opened(spec, contract)
        samples, num_classes = source.train, len(source.class_names)
        aside = _aside(source, contract, validation_per_class, seed)
        wanted = _selections(source, samples, samples_per_class, seed, aside, fraction=fraction)
    images, unreadable = _read(samples, np.zeros(num_classes, np.int64), contract.image_size, wanted)
    if not len(images):
        raise _nothing_to_train_on(spec, unreadable)
    return images, tuple(unreadable)


def load_balanced_test(spec: str, *, contract: DataSection, reader: Reader = IN_MEMORY) -> ImageSet:
    """Read a client's part of the whole test set of data that are divided, whatever the labels of its own part.

    Args:
        spec: Its data specification; for another than `part:` the result is empty.
        contract: Class names and image size of the run.

    Raises:
        InvalidData: The data set cannot be opened or breaks the contract.
        DiskFull, StoreUnavailable, Cancelled: See `read_sides`.
    """
    source = open_balanced_test(spec, contract.test_every)
    if source is None:
        return ImageSet(allocated(0, contract.image_size), NOTHING)
    whole = [(np.arange(len(source.test)), len(source.test))]
    samples = source.test.seen_through(contract.window)
    return _read(samples, _class_ids(source, contract, spec), contract.image_size, whole, reader)[0]


def load_split(
    spec: str,
    *,
    contract: DataSection,
    split: Split,
    samples_per_class: int | None = None,
    fraction: float | None = None,
    seed: int = 0,
    reader: Reader = IN_MEMORY,
    opened: Source | None = None,
) -> tuple[ImageSet, tuple[str, ...]]:
    """Read one part of a data set, fitted to a run's data contract.

    Args:
        spec: See `specs.open_source`.
        contract: Class names, image size and split rule of the run.
        split: `test`, `train`, or `all` for both, the training images first.
        samples_per_class: Size of a class-balanced subset of each part, as `load_dataset` takes it; whole if None.
        fraction: Share of each class of each part, in place of it.
        seed: Decides the images of a subset.
        opened: The data set, where it is open already.

    Returns:
        The images, possibly none, and the names of those that could not be read.

    Raises:
        InvalidData: The data set cannot be opened or breaks the contract.
        DiskFull, StoreUnavailable, Cancelled: See `read_sides`.
    """
    source = _opened(spec, contract) if opened is None else opened.seen_through(contract.window)
    class_ids = _class_ids(source, contract, spec)
    parts = {"train": (source.train,), "test": (source.test,), "all": (source.train, source.test)}[split]
    wanted = [_selections(source, part, samples_per_class, seed, fraction=fraction) for part in parts]
    read = read_sides([*zip(parts, wanted, strict=True)], contract.image_size, reader)
    sets = [_image_set(part, each, class_ids) for part, each in zip(parts, read, strict=True)]
    unreadable = tuple(name for each in read for name in each.unreadable)
    if len(sets) == 1:  # without a second copy of what may be large
        return sets[0], unreadable
    images = ImageSet(
        joined_images([each.images for each in sets]),
        np.concatenate([each.labels_N for each in sets]),
        tuple(mark for each in sets for mark in each.marks),
    )
    return images, unreadable


def describe(
    spec: str, *, samples_per_class: int | None = None, test_every: int = DEFAULT_TEST_EVERY
) -> Mapping[str, int]:
    """Return the number of training images of each class, by the data set's own class names, without reading a pixel.

    Files are counted, not opened: unreadable ones count.

    Raises:
        InvalidData: The data set cannot be opened.
    """
    source = open_source(spec, test_every)
    counts = np.bincount(source.train.labels_N, minlength=len(source.class_names)).tolist()
    return {name: subset_size(count, samples_per_class) for name, count in zip(source.class_names, counts, strict=True)}


def remarks(spec: str) -> tuple[str, ...]:
    """Return sentences for the owner of a data set: what was left out, and how its folders were understood.

    Raises:
        InvalidData: The data set cannot be opened.
    """
    return open_source(spec, DEFAULT_TEST_EVERY).remarks


def _opened(spec: str, contract: DataSection) -> Source:
    return open_source(spec, contract.test_every).seen_through(contract.window)


def check_classes(source: Source, contract: DataSection, spec: str) -> None:
    """Refuse a data set with a class that the run has not.

    Raises:
        InvalidData: It is so.
    """
    _class_ids(source, contract, spec)


def _class_ids(source: Source, contract: DataSection, spec: str) -> IntArray:
    """Return the contract's class id of each of the source's classes."""
    known = {composed(name): i for i, name in enumerate(contract.classes)}
    own = [composed(name) for name in source.class_names]
    unknown = [name for name in own if name not in known]
    if unknown:
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        raise InvalidData(
            f"data {spec!r} has the {source.class_noun} {unknown[0]!r}{more}, but the run's classes are "
            f"{', '.join(contract.classes)}{nearest(unknown[0], contract.classes)}"
        )
    return np.array([known[name] for name in own], dtype=np.int64)


def _aside(source: Source, contract: DataSection, per_class: int | None, seed: int) -> IntArray:
    """Return the numbers of the training images that are for validation: by the data set itself, else by a rule."""
    train = source.train
    if train.aside is not None:
        return train.aside
    if source.is_dealt and train.groups is not None and per_class is not None:
        raise InvalidData(
            "validation_per_class goes by a client's own images, and clients with other parts of these data train on images "
            "of the same groups; set data.validation_every, which goes by a group's name"
        )
    return held_out(
        train.labels_N,
        source.class_names,
        every=contract.validation_every,
        per_class=per_class,
        seed=seed,
        keys=train.keys,
        groups=train.groups,
    )


def _nothing_to_train_on(spec: str, unreadable: Sequence[str]) -> InvalidData:
    skipped = f", and {len(unreadable)} files could not be read" if unreadable else ""
    return InvalidData(f"data {spec!r} has no training image{skipped}; a client needs at least one")


def _named(samples: Samples, began: DataRecord, side: str) -> Selection:
    """Return the images of one side of a record, whole."""
    known = began.sides.get(side, {})
    numbers = np.array([i for i in range(len(samples)) if samples.name(i) in known], np.int64)
    return numbers, len(numbers)


def _read(
    samples: Samples,
    class_ids: IntArray,
    image_size: int,
    selections: Sequence[Selection],
    reader: Reader = IN_MEMORY,
) -> tuple[ImageSet, list[str]]:
    """Return the images to use, in the source's order, and the names of those that could not be read."""
    (read,) = read_sides([(samples, selections)], image_size, reader)
    return _image_set(samples, read, class_ids), read.unreadable


def _image_set(samples: Samples, read: Read, class_ids: IntArray) -> ImageSet:
    groups = () if samples.groups is None else tuple(samples.groups[i] for i in read.numbers_N.tolist())
    return ImageSet(read.images, class_ids[samples.labels_N[read.numbers_N]], read.marks, groups)


def _selections(
    source: Source,
    samples: Samples,
    samples_per_class: int | None,
    seed: int,
    without: IntArray = NOTHING,
    *,
    fraction: float | None = None,
) -> list[Selection]:
    """Return what to read of the samples, but of those numbers that are left out."""
    if samples_per_class is None and fraction is None:
        candidates = np.setdiff1d(np.arange(len(samples)), without, assume_unique=True)
        return [(candidates, len(candidates))]
    selections = []
    for label, class_name in enumerate(source.class_names):
        of_class = class_order(np.flatnonzero(samples.labels_N == label), class_name, seed, samples.keys)
        candidates = of_class[~np.isin(of_class, without)]
        wanted = subset_size(len(of_class), samples_per_class, fraction)
        selections.append((candidates, min(wanted, len(candidates))))
    return selections
