"""Prototype map: a round's global and local prototypes on a plane that stays aligned from round to round. Pure.

The plane is spanned by the first two principal components (Pearson, "On lines and planes of closest fit to systems of points
in space", 1901) of the local prototypes, each weighted by its number of samples. Vectors are taken as the method compares
them: scaled to unit norm for the cosine (the squared distance of two unit vectors is 2 (1 - cos)), otherwise unchanged.
Global prototypes, which are means of local ones, are projected onto the same plane. The plane depends neither on how finely
a client clustered nor on any order, and a rotation of the feature space leaves the map as it is.

Principal axes have no sign, and rotate freely where variances are equal, so the planes of two rounds may disagree although
their prototypes agree. Each map is therefore rotated, and mirrored if necessary, by the orthogonal Q for which

    || A Q - B ||_F  is least:    Q = U V^T    where A^T B = U S V^T

(Schönemann, "A generalized solution of the orthogonal Procrustes problem", Psychometrika 31, 1966). A holds the centres of
each class at each client and among the global prototypes on the round's plane; B holds those of another round on its own
plane or, without another round, the corners of a regular polygon, one per class. Centres are per client because in early
rounds prototypes lie by domain and not by class. Nothing is scaled or shifted: distances on the map are those on the plane.

A chain that aligns each round on the previous one would be steadiest but most expensive: the map of round 500 would need 499
others. Instead every `KEY_ROUNDS`-th round is a key round, aligned on the key round before it, and every other round is
aligned on a key round (`reference_round`). A map then needs its own round and a key round's centres, two numbers each. If
the first key round changes, all later maps turn by the same R, since the Q of A on B R is the Q of A on B, times R.

Shape legend: N points, G global and L local prototypes, D feature size, M classes, C centres that two pictures share,
P pairs of class and owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedplcc.shared.types import Comparison, IntArray, PrototypeSet

DoubleArray = npt.NDArray[np.float64]
Centres = Mapping[tuple[int, str], tuple[float, float]]
"""Mean place on a map of an owner's prototypes of a class, by class and owner; the owner of global prototypes is ""."""

NO_OWNER = -1
"""Owner of a global prototype."""
MIN_NORM = 1e-12
"""A vector with a smaller norm has no direction and is mapped as the origin."""
MAX_GLOBAL = 1000
MAX_LOCAL = 1000
"""Most global and most local prototypes on a map; the heaviest are kept."""
KEY_ROUNDS = 4
"""Distance of key rounds: every so-manyth round is one."""
NEGLIGIBLE = 1e-9
"""A singular value, or a third moment, below this share of the largest one counts as zero."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrototypeMap:
    """Prototypes on a plane: global ones, then local ones, each kind by falling weight.

    Attributes:
        places_N2: float64 coordinates around the weighted mean of the local prototypes, in units of the compared vectors.
        class_ids_N: int64 classes.
        owners_N: int64 index into `owners`; `NO_OWNER` for a global prototype.
        weights_N: float64 weights: samples of a local prototype; the method's weight of a global one.
        shares_N: float64 share of the prototype in its class's weight in its set, in (0, 1].
        nearest_N: int64 index of the nearest global prototype of the same class, by the method's comparison in the whole
            feature space; -1 for a global prototype, and for a class without global prototypes on the map.
        explained: Share of the variance that the plane shows, 0 to 1; 1 if there is no variance.
    """

    places_N2: DoubleArray
    class_ids_N: IntArray
    owners_N: IntArray
    weights_N: DoubleArray
    shares_N: DoubleArray
    nearest_N: IntArray
    owners: tuple[str, ...]
    explained: float
    left_out_global: int = 0
    left_out_local: int = 0

    def __len__(self) -> int:
        return len(self.class_ids_N)

    @property
    def centres(self) -> Centres:
        """Weighted mean place of each class's prototypes, by owner."""
        pairs_P2, place_N = np.unique(np.stack([self.class_ids_N, self.owners_N], 1), axis=0, return_inverse=True)
        totals_P = np.bincount(place_N, weights=self.weights_N)
        x_P, y_P = (np.bincount(place_N, weights=self.weights_N * along_N) / totals_P for along_N in self.places_N2.T)
        return {
            (class_id, self.owners[owner] if owner != NO_OWNER else ""): (x, y)
            for (class_id, owner), x, y in zip(pairs_P2.tolist(), x_P.tolist(), y_P.tolist(), strict=True)
        }


@dataclass(frozen=True, slots=True)
class MappedClient:
    """Client that sent prototypes; the map lacks them if they are not kept any more."""

    client_id: str
    domain: str
    is_kept: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundMap:
    """Map of one round with its context.

    Attributes:
        drawn: Its prototypes; owners are indices into `clients`.
        clients: Clients that sent prototypes, sorted by id.
        comparison: Distance by which the method compares prototypes.
        aligned_from: First key round, on which the maps of all rounds are aligned, directly or by other key rounds.
        rounds: Rounds that have maps, as rising ranges (first, last).
    """

    number: int
    drawn: PrototypeMap
    clients: tuple[MappedClient, ...]
    comparison: Comparison
    aligned_from: int
    rounds: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Prototypes of one kind: vectors as the method compares them, with class, owner, weight and share."""

    vectors_ND: DoubleArray
    class_ids_N: IntArray
    owners_N: IntArray
    weights_N: DoubleArray
    shares_N: DoubleArray

    def __len__(self) -> int:
        return len(self.class_ids_N)

    def heaviest(self, most: int, by_N: DoubleArray) -> _Rows:
        """Return the `most` rows with the largest `by_N`, falling; ties go by class, then by owner."""
        order_N = np.lexsort((self.owners_N, self.class_ids_N, -by_N))[:most]
        return _Rows(
            self.vectors_ND[order_N],
            self.class_ids_N[order_N],
            self.owners_N[order_N],
            self.weights_N[order_N],
            self.shares_N[order_N],
        )


def map_prototypes(
    local: Iterable[tuple[str, PrototypeSet]],
    global_: PrototypeSet,
    *,
    comparison: Comparison,
    num_classes: int,
    reference: Centres | None = None,
) -> PrototypeMap:
    """Return the aligned map of a round's prototypes.

    Local sets are read one at a time; no more rows are held than the map shows.

    Args:
        local: Clients with their local prototypes, sorted by client; empty sets may have any feature size.
        global_: Global prototypes. Where only some rows have an owner (FedCCL sends the pool of all local prototypes beside
            its averages), the owned rows are left out: they repeat the local ones.
        comparison: Distance by which the method compares prototypes.
        num_classes: M.
        reference: Centres of the map to align on; a regular polygon if None, or if no centre is shared.

    Raises:
        ValueError: A vector or a weight is not finite, a weight not positive, or feature sizes differ.
    """
    held, num_local, owners = _rows([], [], comparison), 0, list[str]()
    for owner, (name, prototypes) in enumerate(local):
        owners.append(name)
        num_local += len(prototypes)
        rows = _rows([held], [(owner, prototypes)], comparison)
        held = rows.heaviest(MAX_LOCAL, rows.weights_N)
    has_owner_G = global_.group_ids >= 0
    made = _rows([], [(NO_OWNER, global_)], comparison)
    if has_owner_G.any() and not has_owner_G.all():
        made = _rows([], [(NO_OWNER, _some(global_, ~has_owner_G))], comparison)
    num_global = len(made)
    made = made.heaviest(MAX_GLOBAL, made.shares_N)
    centre_D, axes_D2, explained = _plane(held if len(held) else made)
    rows = _joined([made, held])
    drawn = PrototypeMap(
        places_N2=(rows.vectors_ND - centre_D) @ axes_D2 if len(rows) else np.zeros((0, 2)),
        class_ids_N=rows.class_ids_N,
        owners_N=rows.owners_N,
        weights_N=rows.weights_N,
        shares_N=rows.shares_N,
        nearest_N=_nearest(made, held),
        owners=tuple(owners),
        explained=explained,
        left_out_global=num_global - len(made),
        left_out_local=num_local - len(held),
    )
    return align(drawn, reference or {}, num_classes)


def align(drawn: PrototypeMap, reference: Centres, num_classes: int) -> PrototypeMap:
    """Return the map rotated, and mirrored if necessary, so that its centres are nearest to the reference's."""
    centres = drawn.centres
    turn_22 = procrustes(centres, reference)
    if turn_22 is None:
        corners = polygon(num_classes)
        turn_22 = procrustes(centres, {(class_id, owner): corners[class_id] for class_id, owner in centres})
    return drawn if turn_22 is None else replace(drawn, places_N2=drawn.places_N2 @ turn_22)


def procrustes(centres: Centres, reference: Centres) -> DoubleArray | None:
    """Return the orthogonal Q `[2, 2]` with the least || A Q - B ||_F, or None without a shared centre.

    Where a reflection would fit as well (the centres lie on a line, or there is only one) Q is a rotation.
    """
    shared = sorted(centres.keys() & reference.keys())
    if not shared:
        return None
    A_C2, B_C2 = (np.array([places[key] for key in shared]) for places in (centres, reference))
    U_22, S_2, Vt_22 = np.linalg.svd(A_C2.T @ B_C2)
    if S_2[0] == 0:
        return np.eye(2)
    if S_2[1] <= NEGLIGIBLE * S_2[0]:
        U_22[:, 1] *= np.sign(np.linalg.det(U_22 @ Vt_22))
    turn_22: DoubleArray = U_22 @ Vt_22
    return turn_22


def polygon(num_classes: int) -> Sequence[tuple[float, float]]:
    """Return reference places without another round: classes in order on the unit circle, clockwise from the top (y up)."""
    angles_M = 2 * np.pi * np.arange(num_classes) / max(num_classes, 1)
    return [(float(np.sin(angle)), float(np.cos(angle))) for angle in angles_M]


def key_rounds(rounds: Sequence[int]) -> list[int]:
    """Return the key rounds: every `KEY_ROUNDS`-th, or the first round where none of these exists.

    Args:
        rounds: Rounds whose prototypes are stored, rising.
    """
    return [number for number in rounds if (number - 1) % KEY_ROUNDS == 0] or list(rounds[:1])


def reference_round(number: int, keys: Sequence[int]) -> int | None:
    """Return the round on whose map a round is aligned: the key round before it, or else the first key round.

    Args:
        keys: Key rounds, rising.

    Returns:
        The number of a key round; None for the first key round, which is aligned on the polygon.
    """
    if not keys or number == keys[0]:
        return None
    return max((key for key in keys if key < number), default=keys[0])


def spans(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return rising numbers as ranges (first, last) of consecutive numbers."""
    ends = [place for place, number in enumerate(numbers) if numbers[place + 1 : place + 2] != [number + 1]]
    begins = [0, *(end + 1 for end in ends[:-1])]
    return tuple((numbers[begin], numbers[end]) for begin, end in zip(begins, ends, strict=False))


def _rows(before: Sequence[_Rows], sets: Iterable[tuple[int, PrototypeSet]], comparison: Comparison) -> _Rows:
    """Return the rows `before`, followed by the rows of the sets with their owners."""
    found = list(before)
    for owner, prototypes in sets:
        vectors_ND, weights_N = prototypes.vectors.astype(np.float64), prototypes.weights.astype(np.float64)
        if not np.isfinite(vectors_ND).all():
            raise ValueError("a prototype is not finite")
        if not (np.isfinite(weights_N).all() and (weights_N > 0).all()):
            raise ValueError("the weight of a prototype is not a positive number")
        if comparison == "cosine":
            norms_N = np.linalg.norm(vectors_ND, axis=1)
            vectors_ND = (
                np.where(norms_N < MIN_NORM, 0.0, 1.0)[:, None] * vectors_ND / np.maximum(norms_N, MIN_NORM)[:, None]
            )
        totals = np.bincount(prototypes.class_ids, weights=weights_N, minlength=1)
        found.append(
            _Rows(
                vectors_ND,
                prototypes.class_ids,
                np.full(len(prototypes), owner),
                weights_N,
                weights_N / totals[prototypes.class_ids],
            )
        )
    return _joined(found)


def _joined(parts: Sequence[_Rows]) -> _Rows:
    filled = [rows for rows in parts if len(rows)]
    if not filled:
        none = np.zeros(0, np.int64)
        return _Rows(np.zeros((0, 0)), none, none, np.zeros(0), np.zeros(0))
    return _Rows(
        np.concatenate([rows.vectors_ND for rows in filled]),
        np.concatenate([rows.class_ids_N for rows in filled]),
        np.concatenate([rows.owners_N for rows in filled]),
        np.concatenate([rows.weights_N for rows in filled]),
        np.concatenate([rows.shares_N for rows in filled]),
    )


def _some(prototypes: PrototypeSet, is_wanted_N: npt.NDArray[np.bool_]) -> PrototypeSet:
    return PrototypeSet(
        prototypes.vectors[is_wanted_N],
        prototypes.class_ids[is_wanted_N],
        prototypes.weights[is_wanted_N],
        prototypes.group_ids[is_wanted_N],
    )


def _plane(rows: _Rows) -> tuple[DoubleArray, DoubleArray, float]:
    """Return the weighted mean `[D]`, the two axes of largest weighted variance `[D, 2]`, and their share of the variance.

    An axis points to the side of its positive third moment, so that equal prototypes give equal maps. An axis without
    variance is zero.
    """
    dim = rows.vectors_ND.shape[1]
    if not len(rows):
        return np.zeros(dim), np.zeros((dim, 2)), 1.0
    shares_N = rows.weights_N / rows.weights_N.sum()
    centre_D = shares_N @ rows.vectors_ND
    centred_ND = rows.vectors_ND - centre_D
    scaled_ND = np.sqrt(shares_N)[:, None] * centred_ND
    variance = float((scaled_ND**2).sum())
    if variance <= len(rows) * np.finfo(np.float64).eps * float((rows.vectors_ND**2).sum(1).max(initial=0.0)):
        return centre_D, np.zeros((dim, 2)), 1.0
    # The smaller of the two matrices has the same largest eigenvalues: rows by rows, or features by features.
    is_tall = len(rows) > dim
    values, vectors = np.linalg.eigh(scaled_ND.T @ scaled_ND if is_tall else scaled_ND @ scaled_ND.T)
    values_2, vectors = values[::-1][:2], vectors[:, ::-1][:, :2]
    axes = np.zeros((dim, 2))
    for place, value in enumerate(values_2):
        if value > NEGLIGIBLE * values_2[0]:
            axis_D = vectors[:, place] if is_tall else scaled_ND.T @ vectors[:, place]
            axis_D = axis_D / np.linalg.norm(axis_D)
            axes[:, place] = axis_D * _sign(centred_ND @ axis_D, shares_N)
    return centre_D, axes, float(min(1.0, max(0.0, values_2[values_2 > 0].sum() / variance)))


def _sign(along_N: DoubleArray, shares_N: DoubleArray) -> float:
    """Return the sign of the third moment or, if that is negligible, of the farthest point."""
    third = float(shares_N @ along_N**3)
    if abs(third) > NEGLIGIBLE * float(shares_N @ np.abs(along_N) ** 3):
        return float(np.sign(third))
    return float(np.sign(along_N[np.abs(along_N).argmax()])) or 1.0


def _nearest(made: _Rows, held: _Rows) -> IntArray:
    """Return for each local prototype the index of the nearest global one of its class; -1 for global prototypes."""
    nearest_N = np.full(len(made) + len(held), -1, dtype=np.int64)
    for class_id in np.unique(held.class_ids_N) if len(made) else ():
        places_G = np.flatnonzero(made.class_ids_N == class_id)
        places_L = np.flatnonzero(held.class_ids_N == class_id)
        if len(places_G):
            local_LD, global_GD = held.vectors_ND[places_L], made.vectors_ND[places_G]
            # For unit vectors the least distance is the largest cosine.
            square_LG = (global_GD**2).sum(1)[None, :] - 2 * local_LD @ global_GD.T
            nearest_N[len(made) + places_L] = places_G[square_LG.argmin(1)]
    return nearest_N
