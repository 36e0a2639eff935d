"""Documents of prototype maps."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from fedplcc.shared import types
from fedplcc.shared.documents.document import Document
from fedplcc.shared.prototype_map import RoundMap


class MappedClient(Document):
    """A client whose prototypes a map shows."""

    client_id: str
    domain: str
    is_kept: bool
    """Whether its prototypes of the round are kept; the map shows only kept prototypes."""


class MappedPrototype(Document):
    """A prototype on the plane."""

    x: float
    y: float
    """Upwards. The weighted mean of the local prototypes is at 0, 0."""
    class_id: int
    """Index into `data.classes` of the run's configuration."""
    client: int | None
    """Its client, an index into `clients`; null for a global prototype."""
    weight: float
    """Number of samples of a local prototype; of a global prototype the weight in the method."""
    share: float = Field(ge=0, le=1)
    """Its share of the weight of its class in its set."""
    nearest: int | None
    """Of a local prototype: the nearest global prototype of its class in the feature space by the method's comparison, an
    index into `prototypes`."""


class RoundSpan(Document):
    """Consecutive rounds."""

    first: int
    last: int


class PrototypeMap(Document):
    """A round's prototypes on a plane that stays the same from round to round."""

    round: int
    comparison: types.Comparison
    """Comparison of prototypes in the method: by angle (places are those of unit vectors) or by distance."""
    explained: float = Field(ge=0, le=1)
    """Share of the local prototypes' variance that the plane shows."""
    clients: list[MappedClient]
    """Clients that sent prototypes, by id."""
    prototypes: list[MappedPrototype]
    """Global prototypes first, each kind by falling weight."""
    left_out_global: int
    """Number of light global prototypes that were left out."""
    left_out_local: int
    """Number of light local prototypes that were left out."""
    rounds: list[RoundSpan]
    """Rounds with a map, rising."""
    aligned_from: int
    """The round that all maps are aligned with. When it changes, all maps are turned or mirrored alike, and earlier answers
    do not fit any more."""

    @classmethod
    def of(cls, found: RoundMap) -> Self:
        """Return the document of a round's map."""
        drawn = found.drawn
        rows = zip(
            drawn.places_N2.tolist(),
            drawn.class_ids_N.tolist(),
            drawn.owners_N.tolist(),
            drawn.weights_N.tolist(),
            drawn.shares_N.tolist(),
            drawn.nearest_N.tolist(),
            strict=True,
        )
        return cls.like(
            drawn,
            round=found.number,
            comparison=found.comparison,
            clients=[MappedClient.like(client) for client in found.clients],
            prototypes=[
                MappedPrototype(
                    x=_shown(x),
                    y=_shown(y),
                    class_id=class_id,
                    client=owner if owner >= 0 else None,
                    weight=_shown(weight),
                    share=_shown(share),
                    nearest=nearest if nearest >= 0 else None,
                )
                for (x, y), class_id, owner, weight, share, nearest in rows
            ],
            rounds=[RoundSpan(first=first, last=last) for first, last in found.rounds],
            aligned_from=found.aligned_from,
        )


def _shown(value: float) -> float:
    """Return a number with seven digits, those of single precision."""
    return float(f"{value:.7g}")
