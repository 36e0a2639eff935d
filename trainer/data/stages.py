"""A client's data by stage of a stream: what it trains on and is tested on in each place.

Data that several stages share are read once. Pure but for reading.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedplcc.shared.config.run import DataSection
from fedplcc.shared.config.tables.stream import Place, StreamSection
from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data.images.stored import joined_images, pieces_of
from fedplcc.trainer.data.loading import ClientData, ImageSet, load_balanced_test, load_dataset
from fedplcc.trainer.data.reading import IN_MEMORY, Reader
from fedplcc.trainer.data.record import TEST, TRAIN
from fedplcc.trainer.data.specs import by_stage, opened_once
from fedplcc.trainer.reproducibility.randomness import derive_seed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageData:
    """A client's data at one place of a stream.

    Attributes:
        train: Images to train on; may be empty.
        validation: Training images set aside, of the stages seen so far.
        test: Test images of the stages seen so far, stage after stage.
        ends: Number of test images up to the end of each of these stages.
        own_classes: Classes that these stages have images to train on.
    """

    train: ImageSet
    validation: ImageSet
    test: ImageSet
    ends: tuple[int, ...]
    own_classes: tuple[int, ...]

    @property
    def sha256(self) -> str:
        """SHA-256 of the images to train on and of their labels."""
        digest = hashlib.sha256()
        for some_nSS3 in pieces_of(self.train.images):
            digest.update(np.ascontiguousarray(some_nSS3).data)
        digest.update(np.ascontiguousarray(self.train.labels_N).data)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamData:
    """A client's data of some stages of a stream, as they were read.

    Attributes:
        contract: The run's `[data]`.
        stages: Data by stage, from 1.
        balanced_test: The client's part of the whole test set of the data that are divided, whatever its labels; empty
            where its data are no part.
    """

    stream: StreamSection
    contract: DataSection
    seed: int
    specs: Sequence[str]
    stages: Mapping[int, ClientData]
    balanced_test: ImageSet

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Files that could not be read."""
        return tuple(dict.fromkeys(name for data in self.stages.values() for name in data.unreadable))

    @property
    def lost(self) -> Mapping[str, frozenset[int]]:
        """By side, the classes of which every file that was tried could not be read, in all stages that were read."""
        every = self.stages.values()
        return {
            side: frozenset(label for data in every for label in data.lost.get(side, ()))
            - {label for data in every for label in getattr(data, side).labels_N.tolist()}
            for side in (TRAIN, TEST)
        }

    @property
    def idle(self) -> Mapping[str, str]:
        """See `source.idle_keys`: keys that do nothing in any stage that was read."""
        first, *others = self.stages.values()
        return {key: why for key, why in first.idle.items() if all(key in data.idle for data in others)}

    @property
    def note(self) -> str:
        """Remark that belongs into every report of results on this data."""
        return next((data.note for data in self.stages.values() if data.note), "")

    def class_counts(self) -> tuple[int, ...]:
        """Return the training images of each class in all stages that were read."""
        labels_N = self._union("train", self.stages).labels_N
        return tuple(np.bincount(labels_N, minlength=len(self.contract.classes)).tolist())

    def of_large_classes(self, least: int) -> StreamData:
        """Return the same data without training images of a stage's classes that have fewer in it."""
        if least <= 1:
            return self
        stages = {stage: replace(data, train=data.train.of_large_classes(least)) for stage, data in self.stages.items()}
        return replace(self, stages=stages)

    def at(self, place: Place) -> StageData:
        """Return the data at a place, whose stages were read."""
        up_to = range(1, place.stage + 1)
        seen = range(1, place.seen(self.stream.stages) + 1)
        trained = up_to if self.stream.train_on == "cumulative" else [place.stage]
        tests = [self.stages[stage].test for stage in seen]
        return StageData(
            train=self._union("train", trained),
            validation=self._union("validation", seen),
            test=joined(tests),
            ends=tuple(np.cumsum([len(test) for test in tests]).tolist()),
            own_classes=tuple(
                sorted({label for stage in seen for label in self.stages[stage].train.labels_N.tolist()})
            ),
        )

    def _union(self, side: str, stages: Iterable[int]) -> ImageSet:
        """Return the images of several stages, those that stages share once."""
        parts, known = list[ImageSet](), dict[str, set[int]]()
        for stage in stages:
            images: ImageSet = getattr(self.stages[stage], side)
            before = known.setdefault(self.specs[stage - 1], set())
            parts.append(_of_classes(images, set(range(len(self.contract.classes))) - before) if before else images)
            before |= _class_ids(self.stream, stage, self.contract.classes)
        return parts[0] if len(parts) == 1 else joined(parts)


def read_stream(
    spec: str,
    stages: Iterable[int],
    *,
    stream: StreamSection,
    contract: DataSection,
    evaluate_only: bool = False,
    client_id: str,
    seed: int,
    reader: Reader = IN_MEMORY,
    **subset: Any,
) -> StreamData:
    """Read a client's data of some stages.

    Args:
        spec: Its data specification; see `specs.by_stage`.
        stages: Which ones, from 1.
        contract: See `loading.load_dataset`, as the one that follows.
        evaluate_only: Whether to read test images alone.
        client_id: The client, whose subsets differ from those of others.
        reader: See `loading.load_dataset`.
        subset: `samples_per_class`, `fraction` and `validation_per_class` of `loading.load_dataset`, of each stage.

    Raises:
        DiskFull, StoreUnavailable, Cancelled: See `read_sides`.
        InvalidData: The data of a stage cannot be opened or break the contract, or no stage has a training image.
    """
    specs = by_stage(spec, stream.stages)
    read: dict[str, ClientData] = {}
    found: dict[int, ClientData] = {}
    stages = list(stages)
    num_parts = len({specs[stage - 1] for stage in stages}) + 1
    with opened_once():
        for stage in stages:
            of_stage = specs[stage - 1]
            if of_stage not in read:
                read[of_stage] = load_dataset(
                    of_stage,
                    contract=contract,
                    seed=derive_seed("subset", seed, client_id),
                    may_be_empty=True,
                    evaluate_only=evaluate_only,
                    reader=reader.part(len(read), num_parts),
                    **subset,
                )
            wanted = _class_ids(stream, stage, contract.classes)
            whole = read[of_stage]
            found[stage] = replace(
                whole,
                train=_of_classes(whole.train, wanted),
                test=_of_classes(whole.test, wanted),
                validation=_of_classes(whole.validation, wanted),
            )
        balanced = load_balanced_test(spec, contract=contract, reader=reader.part(num_parts - 1, num_parts))
    if not evaluate_only and not any(len(data.train) for data in found.values()):
        raise InvalidData(f"data {spec!r} has no training image in any stage; a client needs at least one")
    return StreamData(stream=stream, contract=contract, seed=seed, specs=specs, stages=found, balanced_test=balanced)


def joined(parts: Sequence[ImageSet]) -> ImageSet:
    """Return several image sets as one, in their order."""
    return ImageSet(
        joined_images([part.images for part in parts]),
        np.concatenate([part.labels_N for part in parts]),
        tuple(mark for part in parts for mark in part.marks),
    )


def _class_ids(stream: StreamSection, stage: int, classes: Sequence[str]) -> set[int]:
    """Return the classes of which a stage's images are used."""
    if stream.classes is None:
        return set(range(len(classes)))
    return {classes.index(name) for name in stream.classes[stage - 1]}


def _of_classes(images: ImageSet, wanted: set[int]) -> ImageSet:
    """Return the images of some classes, in their order."""
    is_wanted_N = np.isin(images.labels_N, sorted(wanted))
    if is_wanted_N.all():
        return images
    return images.of(is_wanted_N)
