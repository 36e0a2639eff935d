"""ClassSums: the server makes the head in closed form, of sums of clients' features; nothing is trained.

Nearest class means: Legate et al., "Guiding The Last Layer in Federated Learning with Pre-Trained Models", NeurIPS 2023,
https://arxiv.org/abs/2306.03937 (FedNCM). Linear discriminants of one summed covariance: Guan, Zhou, Gu, "Capture Global
Feature Statistics for One-Shot Federated Learning", AAAI 2025, https://arxiv.org/abs/2503.06962 (FedCGS); Turazza, Picone,
Mamei, "The Gaussian-Head OFL Family", ICLR 2026, https://arxiv.org/abs/2602.01186 (GH-OFL). Ridge regression: Fani et al.,
"Accelerating Heterogeneous Federated Learning with Closed-form Classifiers", ICML 2024, https://arxiv.org/abs/2406.01116
(Fed3R); He et al., "AFL: A Single-Round Analytic Approach for Federated Learning with Pre-trained Models", CVPR 2025,
https://arxiv.org/abs/2405.16240.

A round gives the head that the pooled images would give (docs/algorithms.md, section 26). Differs from the papers, or
settles what they leave open:

- Sums are whole multiples of 2^-32: exact in any order, and a client's can be taken away again. Features are taken as the
  model makes them.
- FedNCM's head is of means of length 1 and has no bias; here it is the nearest mean in Euclidean distance.
- The covariance is shrunk towards its scaled identity. Ridge regression has an intercept, and its lambda is relative to the
  mean eigenvalue of the centred second moment.
- The shrinkage can be chosen: from the second round on every client scores a grid on folds of its own training images, with
  the global sums less the fold, and the server takes what is best in all.
- From the second round on a client keeps a head of its own sums alone, and the share that this has in its own model beside
  the global head, chosen on the same folds. What joining is worth to it is that model over its own head.
- Every round is of the clients that take part in it: one that comes later adds its sums, one that leaves takes them away,
  and a round of the same clients changes nothing. With `run.cohort_size` a head is of those alone that were drawn.
- `averaging` has no effect. No setting makes the method FedAvg: nothing is trained.

Shape legend: N samples of a client, D feature size, M classes, S shrinkages of the grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray, shuffled
from fedplcc.shared.methods.arithmetic.fixed_point import FRACTION_BITS, Total, is_too_large, narrow, rounded, widened
from fedplcc.shared.methods.arrays import ArrayGroup, ClientState, GroupSchema, ModelArrays
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.heads.class_folds import Spectrum
from fedplcc.shared.methods.heads.class_heads import (
    ABSENT,
    FAST,
    Classes,
    ClassSums,
    Kind,
    linear_head,
    sums_of,
)
from fedplcc.shared.methods.heads.own_share import SHARES, best_row, best_share, hits
from fedplcc.shared.methods.maths import to_float32
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.arrays import ServerArrays
from fedplcc.shared.methods.parts.kept_state import KeptState
from fedplcc.shared.methods.parts.own_model import OwnModel
from fedplcc.shared.methods.parts.part import BeforeTraining, ClientEnd, ServerResult, ServerRound, never
from fedplcc.shared.methods.parts.phases import Phase, TrainingPhases
from fedplcc.shared.methods.parts.private_sums import head_tensors
from fedplcc.shared.methods.step import ClientStep, LossTerms
from fedplcc.shared.types import IntArray

SUMS, SCORES, GLOBAL_SUMS = "class_sums", "fold_scores", "global_sums"
"""Groups: what clients upload, and what the server keeps and sends."""
GRIDS: Mapping[Kind, tuple[float, ...]] = {
    "means": (),
    "lda": (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8),
    "ridge": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
}
"""Shrinkages among which clients' folds choose, from the least to the greatest."""
FIRST: Mapping[Kind, float] = {"means": 0.0, "lda": 0.3, "ridge": 0.1}
"""Shrinkage until it is chosen."""
FOLDS = 10
"""Folds of a client's samples; fewer where it has fewer samples."""
SENT, SHARE, ALONE = "classsums.sent", "classsums.share", "classsums.alone:"
"""What a client keeps: which sums it sent in which round, and the head of its images alone with its share."""
CLIENT = "classsums.client"
"""Note of a client's samples in folds; see `BeforeTraining.notes`."""


class Config(MethodConfig):
    """ClassSums' hyper-parameters."""

    head: Kind = "lda"
    """What the head is made of: class means (means), means and one covariance (lda), or a regression (ridge)."""
    shrinkage: Annotated[float, Field(ge=1e-6, le=1e3)] | Literal["chosen"] = "chosen"
    """Weight of the mean eigenvalue in the covariance (lda, at most 1), or beside the second moment (ridge): a number, or
    chosen on folds of the clients' training images, which takes a second round. Means have none."""
    balanced: bool = False
    """Whether classes weigh alike, in the head and in the choice, however many images they have."""

    @model_validator(mode="after")
    def _a_share(self) -> Self:
        if self.head == "lda" and self.shrinkage != "chosen" and self.shrinkage > 1:
            raise ValueError(f"shrinkage = {self.shrinkage:g} is a share of the covariance with head 'lda': at most 1")
        return self

    @property
    def is_chosen(self) -> bool:
        """Whether clients choose the shrinkage."""
        return self.shrinkage == "chosen" and self.head != "means"

    @property
    def has_moment(self) -> bool:
        """Whether the head needs the second moment."""
        return self.head != "means"

    @property
    def first_shrinkage(self) -> float:
        """The shrinkage that is given, or that of the rounds before a choice."""
        return FIRST[self.head] if self.shrinkage == "chosen" else self.shrinkage

    @property
    def fewest_rounds(self) -> int:
        """Two where clients choose."""
        return 2 if self.is_chosen else 1


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return FedAvg's terms; no step is made with them."""
    return fedavg.client_loss(step, config)


# -- What travels -------------------------------------------------------------------------------------------------------


def uploads(config: Config, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
    """Return counts, class sums and the upper triangle of the second moment, and the scores of a grid.

    Class means alone need no more than float32; sums of which a covariance is left need all bits.
    """
    sums: dict[str, tuple[str, tuple[int | None, ...]]] = {
        "counts": ("I64", (num_classes,)),
        "sums": ("I64" if config.has_moment else "F32", (num_classes, feature_dim)),
    }
    if config.has_moment:
        sums["moment"] = ("I64", (feature_dim * (feature_dim + 1) // 2,))
    groups: dict[str, GroupSchema] = {SUMS: sums}
    if config.is_chosen:
        groups[SCORES] = {
            "correct": ("I64", (len(GRIDS[config.head]), num_classes)),
            "scored": ("I64", (num_classes,)),
        }
    return groups


def server_arrays(config: Config, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
    """Return the global sums, as clients' folds need them, their round, and the shrinkage of the head."""
    sums: dict[str, tuple[str, tuple[int | None, ...]]] = {
        "counts": ("I64", (num_classes,)),
        "sums": ("F32", (num_classes, feature_dim)),
    }
    if config.has_moment:
        sums["scatter"] = ("F32", (feature_dim * (feature_dim + 1) // 2,))
    return {GLOBAL_SUMS: {**sums, "round": ("I64", (1,)), "shrinkage": ("F32", (1,))}}


def sends(config: Config) -> tuple[str, ...]:
    """Return the global sums."""
    return (GLOBAL_SUMS,)


# -- The client ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Client:
    """A client's samples in folds, among the global sums and alone, and what it keeps of itself."""

    own: ClassSums
    whole: Spectrum
    alone: Spectrum
    folds: tuple[IntArray, ...]
    config: Config
    is_balanced: bool
    """Whether classes weigh alike in the client's own choices."""

    def correct(self, sums: Spectrum, shrinkages: Sequence[float]) -> DoubleArray:
        """Return the number of samples of each class that heads of sums without their fold predict correctly, `[S, M]`."""
        return sum((hits(logits_SFM, sums.labels_N[fold_F]) for fold_F, logits_SFM in self._logits(sums, shrinkages)),
                   np.zeros((len(shrinkages), len(self.own.counts_M))))  # fmt: skip

    def logits(self, sums: Spectrum, shrinkage: float) -> DoubleArray:
        """Return logits `[N, M]` of all samples by heads of sums without their fold."""
        logits_NM = np.empty((len(sums.labels_N), len(self.own.counts_M)))
        for fold_F, logits_SFM in self._logits(sums, (shrinkage,)):
            logits_NM[fold_F] = logits_SFM[0]
        return logits_NM

    def _logits(self, sums: Spectrum, shrinkages: Sequence[float]) -> Iterator[tuple[IntArray, DoubleArray]]:
        for fold_F in self.folds:
            yield fold_F, sums.fold_logits(fold_F, self.config.head, shrinkages, is_balanced=self.config.balanced)


def _client(before: BeforeTraining, config: Config) -> _Client | None:
    """Return what a client scores, made once a round; None before there are global sums."""
    group = before.received.get(GLOBAL_SUMS)
    if group is None:
        return None
    if CLIENT not in before.notes:
        own, classes = _own_sums(before, config), _read_classes(group)
        sent = (before.state or {}).get(SENT)
        if sent is None or sent.tolist() != _sent(own, int(group["round"][0])):
            classes = Classes.of(classes.sums.plus(own), FAST)
        of_samples = before.features_ND, before.labels_N
        before.notes[CLIENT] = _Client(
            own=own,
            whole=Spectrum.of(classes, *of_samples),
            alone=Spectrum.alone(*of_samples, before.num_classes, has_moment=config.has_moment),
            folds=tuple(_folds(before)),
            config=config,
            is_balanced=config.balanced or before.is_balanced,
        )
    found: _Client = before.notes[CLIENT]
    return found


def _own_sums(before: BeforeTraining, config: Config) -> ClassSums:
    return sums_of(before.features_ND, before.labels_N, before.num_classes, has_moment=config.has_moment)


def _sent(own: ClassSums, round: int) -> list[int]:
    """Return the round in which sums were sent, and a checksum that tells them from those of other images."""
    return [round, int(np.bitwise_xor.reduce(rounded(own.sums_MD), axis=None))]


def _folds(before: BeforeTraining) -> Iterator[IntArray]:
    """Yield the numbers of a fold's samples: a class's by turns, in an order that the seed decides, a group's together."""
    order_N = shuffled(len(before.labels_N), before.seed)
    together: dict[str | int, list[int]] = {}
    for i in order_N.tolist():
        together.setdefault(before.groups[i] if before.groups else i, []).append(i)
    units = sorted(together.values(), key=lambda unit: int(before.labels_N[unit[0]]))
    for number in range(min(FOLDS, len(units))):
        yield np.sort(np.concatenate(units[number::FOLDS]))


def best_shrinkage(correct_SM: DoubleArray, total_M: DoubleArray, head: Kind, *, is_balanced: bool) -> float:
    """Return the shrinkage of the grid that scores best; of equal ones the nearest to that of the first round."""
    grid = GRIDS[head]
    return grid[best_row(correct_SM, total_M, is_balanced=is_balanced, usual=grid.index(FIRST[head]))]


def mixed(whole_XM: DoubleArray, alone_XM: DoubleArray, is_own_M: npt.NDArray[np.bool_], weight: float) -> DoubleArray:
    """Return logits, or the weights and biases that make them, of which a share is the client's own.

    A class that the client has no image of changes by the mean of what its classes change by: its own head knows nothing
    of it.

    Args:
        whole_XM: By the global head.
        alone_XM: By the head of the client's own sums.
        is_own_M: Classes that are in the latter.
        weight: The share.
    """
    if not weight or not is_own_M.any():
        return whole_XM
    changes_XM = np.zeros_like(whole_XM)
    changes_XM[..., is_own_M] = alone_XM[..., is_own_M] - whole_XM[..., is_own_M]
    changes_XM[..., ~is_own_M] = changes_XM[..., is_own_M].mean(-1, keepdims=True)
    return whole_XM + weight * changes_XM


def before_training(before: BeforeTraining, config: Config) -> Mapping[str, ArrayGroup]:
    """Return a client's sums, and from the second round on the scores of the grid on its folds."""
    own = _own_sums(before, config)
    sums = {"counts": own.counts_M.astype(np.int64), "sums": _sent_sums(own, config)}
    if own.moment_DD is not None:
        sums["moment"] = rounded(own.moment_DD[np.triu_indices(len(own.moment_DD))])
    groups: dict[str, ArrayGroup] = {SUMS: sums}
    if config.is_chosen:
        client, grid = _client(before, config), GRIDS[config.head]
        correct_SM = np.zeros((len(grid), before.num_classes))
        scored_M = np.zeros_like(own.counts_M)
        if client is not None:
            correct_SM, scored_M = client.correct(client.whole, grid), own.counts_M
        groups[SCORES] = {"correct": correct_SM.astype(np.int64), "scored": scored_M.astype(np.int64)}
    return groups


def kept_before(before: BeforeTraining, made: Mapping[str, ArrayGroup], config: Config) -> ClientState:
    """Return the head of the client's images alone by tensor name, and the share that it has in the client's model.

    Neither before there are global sums. The shrinkages are the best on the client's own folds, with the global sums and
    alone, or the given one.
    """
    client = _client(before, config)
    if client is None:
        own = _own_sums(before, config)
        return {SENT: np.array(_sent(own, before.round), np.int64)}
    kept: dict[str, np.ndarray] = {SENT: np.array(_sent(client.own, before.round), np.int64)}
    own, shrinkage, shrinkage_alone = client.own, config.first_shrinkage, config.first_shrinkage
    if config.is_chosen:
        correct_SM = made[SCORES]["correct"].astype(np.float64), client.correct(client.alone, GRIDS[config.head])
        shrinkage, shrinkage_alone = (
            best_shrinkage(each_SM, own.counts_M, config.head, is_balanced=client.is_balanced) for each_SM in correct_SM
        )
    kept[SHARE] = np.array([_best_share(client, shrinkage, shrinkage_alone)], np.float32)
    alone = linear_head(Classes.of(own, FAST), config.head, shrinkage_alone, is_balanced=config.balanced, algebra=FAST)
    return kept | {ALONE + name: array for name, array in head_tensors(alone, before.head).items()}


def _best_share(client: _Client, shrinkage: float, shrinkage_alone: float) -> float:
    """Return the share of the client's own head that predicts most of its samples correctly in their folds."""
    whole_NM, alone_NM = client.logits(client.whole, shrinkage), client.logits(client.alone, shrinkage_alone)
    mixes = (mixed(whole_NM, alone_NM, client.own.counts_M > 0, share) for share in SHARES)
    return best_share(mixes, client.alone.labels_N, is_balanced=client.is_balanced)


def next_client_state(end: ClientEnd, config: Config) -> ClientState:
    """Return what the client made of its samples."""
    return end.made


def local_model(received: ModelArrays, state: ClientState | None, config: Config) -> ModelArrays | None:
    """Return the received model with a head of which a share is the client's own; None before it has one."""
    alone = alone_model(received, state, config)
    if alone is None or state is None:
        return None
    names = [name for name in received if ALONE + name in state]
    (is_own_M,) = (alone[name] > ABSENT / 2 for name in names if alone[name].ndim == 1)
    share, made = float(state[SHARE][0]), {}
    for name in names:
        whole, own = received[name].T.astype(np.float64), alone[name].T.astype(np.float64)
        made[name] = mixed(whole, own, is_own_M, share)
    return {name: to_float32(made[name].T) if name in made else array for name, array in received.items()}


def alone_model(received: ModelArrays, state: ClientState | None, config: Config) -> ModelArrays | None:
    """Return the received model with the head of the client's images alone; None before it has one."""
    kept = state or {}
    if not any(ALONE + name in kept for name in received):
        return None
    return {name: kept.get(ALONE + name, array) for name, array in received.items()}


# -- The server ---------------------------------------------------------------------------------------------------------


def upload_fault(found: Mapping[str, ArrayGroup], class_counts: Sequence[int], config: Config) -> str | None:
    """Return what is wrong with a client's sums or scores: they must be possible for samples that it says it has."""
    group, counts_M = found[SUMS], np.array(class_counts, np.int64)
    if not np.array_equal(group["counts"], counts_M):
        return "the counts of the class sums are not the client's samples of each class"
    if any(is_too_large(group[name]) for name in group.keys() - {"counts"}):
        return "a class sum or a second moment is 2^30 or more: the model's features are too large, normalise them"
    if group["sums"][counts_M == 0].any():
        return "a class sum is of a class that the client has no samples of"
    if config.has_moment and not _is_possible(_read(group)):
        return "the second moment is of no samples with these class sums: its scatter within classes is negative"
    if config.is_chosen:
        return _score_fault(found[SCORES], counts_M)
    return None


def _is_possible(sums: ClassSums) -> bool:
    """Whether the scatter within classes is positive semidefinite, but for rounding.

    By it each class sum is bounded too: sum_m |s_m|^2 / n_m is at most the trace of the second moment.
    """
    assert sums.moment_DD is not None
    dim, trace = len(sums.moment_DD), float(np.trace(sums.moment_DD))
    slack = dim * 2.0 ** (1 - FRACTION_BITS) + 1e-10 * max(trace, 0.0)
    scatter_DD = Classes.of(sums, FAST).scatter_DD
    assert scatter_DD is not None
    try:
        np.linalg.cholesky(scatter_DD + slack * np.eye(dim))
    except np.linalg.LinAlgError:
        return False
    return True


def _score_fault(scores: ArrayGroup, counts_M: IntArray) -> str | None:
    scored_M, correct_SM = scores["scored"], scores["correct"]
    if scored_M.any() and not np.array_equal(scored_M, counts_M):
        return "the folds are not of all the client's samples"
    if (correct_SM < 0).any() or (correct_SM > scored_M).any():
        return "a score has more correct samples of a class than the client has, or fewer than none"
    return None


def server_step(step: ServerRound, config: Config) -> ServerResult:
    """Add the cohort's sums and scores, choose the shrinkage, and make the head."""
    num_classes, dim = step.num_classes, step.feature_dim
    counts_M, totals = np.zeros(num_classes, np.int64), {"sums": Total.zero((num_classes, dim))}
    if config.has_moment:
        totals["moment"] = Total.zero((dim * (dim + 1) // 2,))
    correct_SM, scored_M = np.zeros((len(GRIDS[config.head]), num_classes)), np.zeros(num_classes)
    for upload in step.uploads:
        counts_M += upload[SUMS]["counts"]
        for name, total in totals.items():
            total.add(upload[SUMS][name])
        if config.is_chosen:
            correct_SM += upload[SCORES]["correct"]
            scored_M += upload[SCORES]["scored"]
    shrinkage = config.first_shrinkage
    if scored_M.any():
        shrinkage = best_shrinkage(correct_SM, scored_M, config.head, is_balanced=config.balanced)
    values = {name: total.value for name, total in totals.items()}
    sums = ClassSums(counts_M.astype(np.float64), values["sums"], _square(values.get("moment"), dim))
    classes = Classes.of(sums)
    head = linear_head(classes, config.head, shrinkage, is_balanced=config.balanced)
    kept: dict[str, np.ndarray] = {
        "counts": counts_M,
        "sums": to_float32(sums.sums_MD),
        "round": np.array([step.round], np.int64),
        "shrinkage": np.array([shrinkage], np.float32),
    }
    if classes.scatter_DD is not None:
        kept["scatter"] = to_float32(classes.scatter_DD[np.triu_indices(dim)])
    return ServerResult(arrays={GLOBAL_SUMS: kept}, head=head_tensors(head, step.head))


# -- Both ---------------------------------------------------------------------------------------------------------------


def _sent_sums(own: ClassSums, config: Config) -> np.ndarray:
    return rounded(own.sums_MD) if config.has_moment else narrow(own.sums_MD)


def _read(group: ArrayGroup) -> ClassSums:
    """Return the sums that a client uploads, in float64."""
    moment = widened(group["moment"]) if "moment" in group else None
    return ClassSums(
        group["counts"].astype(np.float64), widened(group["sums"]), _square(moment, group["sums"].shape[1])
    )


def _read_classes(group: ArrayGroup) -> Classes:
    """Return what the global sums say."""
    counts_M, sums_MD = group["counts"].astype(np.float64), group["sums"].astype(np.float64)
    scatter = group["scatter"].astype(np.float64) if "scatter" in group else None
    means_MD = sums_MD / np.maximum(counts_M, 1.0)[:, None]
    return Classes(counts_M, means_MD, _square(scatter, sums_MD.shape[1]))


def _square(triangle: DoubleArray | None, dim: int) -> DoubleArray | None:
    """Return the symmetric matrix `[D, D]` of its upper triangle, which has its rows one after the other."""
    if triangle is None:
        return None
    square_DD = np.zeros((dim, dim))
    square_DD[np.triu_indices(dim)] = triangle
    return square_DD + np.triu(square_DD, 1).T


def phases(config: Config) -> tuple[Phase, ...]:
    """Return none: nothing is trained."""
    return ()


METHOD = Method(
    name="classsums",
    paper="Guan et al., AAAI 2025, https://arxiv.org/abs/2503.06962; Fani et al., ICML 2024, https://arxiv.org/abs/2406.01116",
    config=Config,
    client_loss=client_loss,
    fold=fedavg.fold,
    parts=(
        ServerArrays(
            kept=server_arrays,
            step=server_step,
            sent=sends,
            uploaded=uploads,
            made=before_training,
            keeps=kept_before,
            fault=upload_fault,
            needs_linear_head=True,
            makes_head=True,
        ),
        KeptState(after=next_client_state),
        OwnModel(local=local_model, alone=alone_model, is_shared=never),
        TrainingPhases(phases=phases),
    ),
)
