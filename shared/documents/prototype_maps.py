"""Documents of prototype maps."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from shared import types
from shared.documents.document import Document
from shared.prototype_map import RoundMap


class MappedClient(Document):
    """A client whose prototypes a map shows."""

    client_id: str
    domain: str
    is_kept: bool
    """Whether its prototypes of the round are still there; those that are not are missing on the map."""


class MappedPrototype(Document):
    """A prototype on the plane."""

    x: float
    y: float
    """Upwards; the mean of what the local prototypes stand for lies at 0, 0."""
    class_id: int
    """Index into `data.classes` of the run's configuration."""
    client: int | None
    """Whose it is, an index into `clients`; null for a global prototype."""
    weight: float
    """Samples that a local prototype stands for; of a global one the weight that the method gives it."""
    share: float = Field(ge=0, le=1)
    """Its share of the weight that its class has in the set it comes from."""
    nearest: int | None
    """Of a local prototype: the nearest global one of its class, an index into `prototypes`, by what the method compares and
    in the whole feature space."""


class RoundSpan(Document):
    """Rounds that follow one another."""

    first: int
    last: int


class PrototypeMap(Document):
    """A round's prototypes on a plane that is steady from round to round."""

    round: int
    comparison: types.Comparison
    """How the method compares prototypes: by the angle (places are those of unit vectors), or by the distance."""
    explained: float = Field(ge=0, le=1)
    """Share of the local prototypes' variance that the plane shows."""
    clients: list[MappedClient]
    """Who sent prototypes, by id."""
    prototypes: list[MappedPrototype]
    """Global ones first, each kind from the heaviest on."""
    left_out_global: int
    """Lighter global prototypes that were left out."""
    left_out_local: int
    """Lighter local prototypes that were left out."""
    rounds: list[RoundSpan]
    """Rounds that can be asked for, rising."""
    aligned_from: int
    """The round that all maps are aligned with. Where it is another than in a map before, all are turned or mirrored alike,
    and those that came before do not fit any more."""

    @classmethod
    def of(cls, found: RoundMap) -> Self:
        """The document of a round's map."""
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
        return cls(
            round=found.number,
            comparison=found.comparison,
            explained=drawn.explained,
            clients=[
                MappedClient(client_id=client.client_id, domain=client.domain, is_kept=client.is_kept)
                for client in found.clients
            ],
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
            left_out_global=drawn.left_out_global,
            left_out_local=drawn.left_out_local,
            rounds=[RoundSpan(first=first, last=last) for first, last in found.rounds],
            aligned_from=found.aligned_from,
        )


def _shown(value: float) -> float:
    """What a picture can show of a number: seven digits, that of single precision."""
    return float(f"{value:.7g}")
