"""Records of a sweep's trials and of the choice between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from fedplcc.comparison.sweep.section import Point

Key = tuple[str, str]
"""A data set and a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A row with a point.

    Attributes:
        point: Its settings by dotted key.
        accuracy: Its accuracy on validation images, the mean over the sweep's seeds, a fraction; None where it has none.
    """

    name: str
    point: Point
    accuracy: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The best trial of a row on a data set, and what it was chosen from.

    Attributes:
        basis: Hash of all that the choice depends on but the trials' outcomes; another one makes the choice void.
        chosen: The best trial, the first one of equals.
    """

    basis: str
    criterion: str
    seeds: tuple[int, ...]
    chosen: Trial
    trials: tuple[Trial, ...]

    def document(self) -> dict[str, Any]:
        """Return the choice as JSON has it."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Return the choice of a document.

        Raises:
            KeyError, TypeError: It is none.
        """
        trials = tuple(Trial(**trial) for trial in document["trials"])
        known = {**document, "trials": trials, "chosen": Trial(**document["chosen"]), "seeds": tuple(document["seeds"])}
        return cls(**known)
