"""Record of a client's data in a run: which images it trains on, validates with and is tested on. Pure.

A run goes on only with the data it began with; see trainer/task/run_data.py.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedplcc.trainer.data.images.scaling import Pixels

Mark = tuple[str, str]
"""Name of an image, and the digest of its pixels as they were read."""
TRAIN, VALIDATION, TEST = "train", "validation", "test"
VERSION = 1


def digest_of(pixels: Pixels) -> str:
    """Return the digest of an image's pixels: equal for a copy under another name or in another lossless format."""
    found = hashlib.blake2b(repr(pixels.shape).encode(), digest_size=16)
    found.update(np.ascontiguousarray(pixels).data)
    return found.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRecord:
    """The images of each side, by name: the class and the digest of each."""

    sides: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, sides: Mapping[str, tuple[Sequence[Mark], Sequence[int]]]) -> DataRecord:
        """Return the record of images with these marks and labels."""
        return cls(
            sides={
                side: {name: f"{label} {digest}" for (name, digest), label in zip(marks, labels, strict=True)}
                for side, (marks, labels) in sides.items()
            }
        )

    @property
    def sha256(self) -> str:
        """SHA-256 of what it says."""
        return hashlib.sha256(json.dumps(self.sides, sort_keys=True).encode()).hexdigest()

    def digests(self, *sides: str) -> set[str]:
        """Return the digests of the images of some sides."""
        return {value.partition(" ")[2] for side in sides for value in self.sides.get(side, {}).values()}

    def names(self, digests: Collection[str], *sides: str) -> list[str]:
        """Return the images of some sides that have one of these digests, as SIDE: NAME."""
        return [
            f"{side}: {name}"
            for side in sides
            for name, value in self.sides.get(side, {}).items()
            if value.partition(" ")[2] in digests
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Images that differ between two records, as SIDE/NAME."""

    arrived: tuple[str, ...]
    gone: tuple[str, ...]
    others: tuple[str, ...]
    """Images of the same name with other pixels or another class."""

    def __str__(self) -> str:
        """Return the numbers as words."""
        counts = ((self.arrived, "arrived"), (self.gone, "gone"), (self.others, "with other pixels or another class"))
        return ", ".join(f"{len(names)} {word}" for names, word in counts if names) or "none"

    @property
    def first(self) -> tuple[str, ...]:
        """A few of the names."""
        return tuple([*self.arrived[:2], *self.gone[:2], *self.others[:2]])


def changes(before: DataRecord, now: DataRecord) -> Changes:
    """Return what changed between two records."""
    old = {(side, name): value for side, of_side in before.sides.items() for name, value in of_side.items()}
    new = {(side, name): value for side, of_side in now.sides.items() for name, value in of_side.items()}

    def named(keys: set[tuple[str, str]]) -> tuple[str, ...]:
        return tuple(f"{side}: {name}" for side, name in sorted(keys))

    return Changes(
        arrived=named(new.keys() - old.keys()),
        gone=named(old.keys() - new.keys()),
        others=named({key for key in old.keys() & new.keys() if old[key] != new[key]}),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What a trainer keeps of a run's data.

    Attributes:
        places: SHA-256 of the record at each place of the run; a run without stages has the one place "0".
        latest: The record at the place that was reached last.
        trained: Digests of the images that were trained on at earlier places, and in runs that trained the initial model.
        rule: What divided the images, as text by its key: seed, split rule, sizes of subsets, the data's specification.
    """

    places: Mapping[str, str]
    latest: DataRecord
    trained: frozenset[str] = field(default_factory=frozenset)
    rule: Mapping[str, str] = field(default_factory=dict)

    @property
    def barred(self) -> frozenset[str]:
        """Digests of images that were trained on, without those that were tested on all the same, as copies are."""
        return (self.trained | self.latest.digests(TRAIN)) - self.latest.digests(TEST, VALIDATION)

    @property
    def without_names(self) -> RunRecord:
        """The record of an ended run with what later runs compare, and no name of an image."""
        return RunRecord(places={}, latest=DataRecord(sides={}), trained=self.barred, rule=self.rule)

    def to_bytes(self) -> bytes:
        """Return it as it is written."""
        content = {
            "version": VERSION,
            "places": dict(self.places),
            "sides": {side: dict(names) for side, names in self.latest.sides.items()},
            "trained": sorted(self.trained),
            "rule": dict(self.rule),
        }
        return zlib.compress(json.dumps(content, sort_keys=True).encode(), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> RunRecord:
        """Read it.

        Raises:
            ValueError: It is of another version, or damaged.
        """
        try:
            content = json.loads(zlib.decompress(data))
            if content["version"] != VERSION:
                raise ValueError("another version")
            return cls(
                places=content["places"],
                latest=DataRecord(sides=content["sides"]),
                trained=frozenset(content["trained"]),
                rule=content.get("rule", {}),
            )
        except (zlib.error, KeyError, TypeError, ValueError) as error:
            raise ValueError("not as it was written") from error
