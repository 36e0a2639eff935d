"""FedMLP: the loss pulls features to the prototype of their class and, of rare classes, to that of a cluster of classes.

Guo, Wang, Geng, "Dynamic Heterogeneous Federated Learning with Multi-Level Prototypes", 2023,
https://arxiv.org/abs/2312.09881; equation numbers below are the paper's, whose formulas are lost in its source and are
read from its sentences. No code is public.

Differs from the paper, or settles what it leaves open:

- A class's prototype is the plain mean over the clients of the round that have the class (eq. 3 and 4); a class that no
  client of the round has keeps its own of the round before.
- A semantic prototype is the plain mean of the class prototypes in a cluster of FINCH over the classes, by default of its
  first partition; the paper says "unsupervised clustering". A zero prototype, which has no direction, is in no cluster.
- The minority are the `minority_share` of all classes with the fewest samples, of equally many the later ones. Samples are
  added up over committed updates; a set that the pool reuses (`proto_staleness`, `proto_window`) is added again. Only their
  order is used.
- Both distances are smooth L1, means over the dimensions. A sample whose class has no such prototype adds 0 and counts in
  the mean.
- The paper has one coefficient, of the semantic term; here each term has one.
- Clients keep their heads, as the paper's private models do; each begins as that of the first model that it receives.
  `upload_head = true` averages heads too, which gives a global model to evaluate; no client goes on from it.
- The term between tasks compares softmaxes of features; the paper says "KL divergence" and leaves its arguments open. A
  client remembers a prototype of every class that it had, a running mean over its updates. A class that it had in an
  earlier task is drawn to what it remembers; a class that is new to it in the present task, to the centre of the cluster of
  what it remembers that is nearest to the class's mean feature before training. The paper says "existing prototypes".
  A task is a stage of a run with `[stream]`; in a run without stages the term is absent.
- lambda1 = lambda2 = lambda3 = 0 without heads of their own (`own_head = false`) is FedAvg to the last bit.

Shape legend: B batch, N samples of a client, D feature size, M classes, G prototypes, P classes with a prototype,
A classes with an anchor, C clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray
from fedplcc.shared.methods.arithmetic.finch import finch_star
from fedplcc.shared.methods.arrays import ClientState
from fedplcc.shared.methods.config import Coefficient, Temperature
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.kept_state import KeptState, StageBegin, StageMemory
from fedplcc.shared.methods.parts.personal import Personal, PersonalTensors
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange, Report
from fedplcc.shared.methods.prototypes import (
    Partition,
    PrototypeConfig,
    batch_mean,
    local_means,
    mean_per_class,
    pooled,
)
from fedplcc.shared.methods.step import Array, ClientStep, LossTerms, Ops, Prototypes, Term
from fedplcc.shared.types import CLASS_MEAN, FloatArray, IntArray, PrototypeSet

CLASSES, SEMANTIC = 0, 1
"""Groups of the global set: a prototype for each class, and one for each class of the minority."""
MEMORY, MEMORY_CLASSES, FIRST_SEEN = "memory/vectors", "memory/class_ids", "memory/first_seen"
"""What a client remembers: a vector of each class, the classes, ascending, and pass and stage in which it first had each."""
ANCHORS, ANCHOR_CLASSES, PLACE = "anchors/vectors", "anchors/class_ids", "anchors/place"
"""Anchors of the classes that are new to a client in a stage, the classes, and that pass and stage."""


class Config(PrototypeConfig):
    """FedMLP's hyper-parameters."""

    lambda1: Coefficient = 1.0
    """Coefficient of the distance to the class's prototype (eq. 5). Zero leaves it out."""
    lambda2: Coefficient = 1.0
    """Coefficient of the distance to the semantic prototype, for classes of the minority (eq. 6, lambda). Zero leaves it
    out."""
    partition: Partition = "first"
    """FINCH's partition of the class prototypes whose centres are the semantic prototypes: last, first or index:<l>."""
    minority_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of all classes that are the minority, those with the fewest samples; rounded down."""
    lambda3: Coefficient = 1.0
    """Coefficient of the divergence from what the client remembers of earlier stages (eq. 7), in a run with stages. Zero
    leaves it out, and the client remembers nothing."""
    it_temperature: Temperature = 1.0
    """Temperature of the softmaxes in eq. 7."""
    memory_rate: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the newest prototype in what a client remembers of a class; 1 overwrites."""
    own_head: bool = True
    """Whether each client keeps a head of its own."""
    upload_head: bool = True
    """Whether these heads are averaged too, for a global model. If not, none leaves its client."""
    scores: Literal["classifier", "prototype"] = "classifier"
    """How a client's own model names classes: by its logits, or by the nearest class prototype."""

    @field_validator("upload_head")
    @classmethod
    def _a_head_that_is_kept(cls, upload_head: bool, known: ValidationInfo) -> bool:
        if not upload_head and not known.data.get("own_head", True):
            raise ValueError("only a head of its own can stay with a client: leave it out, or set own_head = true")
        return upload_head


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return L_CE + lambda1 L_P + lambda2 L_SP + lambda3 L_IT (eq. 11) as terms of at least 0.

    They are `ce`, `proto` and `semantic`, and `inter_task` where the client remembers classes of earlier stages.
    """
    terms = {"ce": Term(step.task_loss)}
    if config.lambda3 and len(step.kept.get(ANCHORS, ())):
        terms["inter_task"] = Term(_inter_task(step, config), config.lambda3)
    if step.prototypes is None:
        return terms
    for name, group, coefficient in (("proto", CLASSES, config.lambda1), ("semantic", SEMANTIC, config.lambda2)):
        if coefficient:
            vectors_MD, is_known_M = _by_class(step.ops, step.prototypes, group)
            gap_BD = step.features_BD - vectors_MD[step.labels_B]
            distance_B = smooth_l1(step.ops, gap_BD).mean(-1)
            terms[name] = Term(batch_mean(step.ops, distance_B, is_known_M[step.labels_B]), coefficient)
    return terms


def _inter_task(step: ClientStep, config: Config) -> Array:
    """Return the batch mean of KL(softmax(a / T), softmax(z / T)), a being the anchor of the sample's class (eq. 7)."""
    ops, anchors_AD = step.ops, step.kept[ANCHORS]
    is_class_AM = ops.is_class(step.kept[ANCHOR_CLASSES], step.logits_BM.shape[1])
    ones_A1 = anchors_AD[:, :1] * 0 + 1  # of the anchors' type
    own_BD = ((is_class_AM * ones_A1).T @ anchors_AD)[step.labels_B]
    log_own_BD = _log_softmax(ops, own_BD / config.it_temperature)
    log_z_BD = _log_softmax(ops, step.features_BD / config.it_temperature)
    gap_B = (ops.exp(log_own_BD) * (log_own_BD - log_z_BD)).sum(-1)
    return batch_mean(ops, gap_B, is_class_AM.any(0)[step.labels_B])


def _log_softmax(ops: Ops, x_BD: Array) -> Array:
    return x_BD - ops.logsumexp(x_BD)[:, None]


def begins_stage(state: ClientState, scalars: Mapping[str, float], config: Config) -> bool:
    """Whether the client remembers something, and has no anchors for the present pass and stage."""
    place_2 = _place(scalars)
    if not config.lambda3 or place_2 is None or not len(state.get(MEMORY, ())):
        return False
    return not np.array_equal(state[PLACE], place_2)


def stage_state(begin: StageBegin, config: Config) -> ClientState:
    """Return the state with anchors for the classes that are new to the client in the present stage (eq. 9)."""
    place_2, memory_PD = _place(begin.scalars), begin.state[MEMORY]
    assert place_2 is not None
    clusters = finch_star(memory_PD, np.ones(len(memory_PD)), config.partition)
    means = local_means(begin.features_ND, begin.labels_N, begin.num_classes).prototypes
    is_new_P = ~np.isin(means.class_ids, begin.state[MEMORY_CLASSES])
    new_PD, centres_CD = means.vectors[is_new_P].astype(np.float64), clusters.centres_CD.astype(np.float64)
    if not len(centres_CD):
        new_PD = new_PD[:0]
    nearest_P = (_unit(new_PD) @ _unit(centres_CD).T).argmax(1) if len(new_PD) else np.zeros(0, np.int64)
    return {
        **begin.state,
        ANCHORS: clusters.centres_CD[nearest_P].astype(np.float32),
        ANCHOR_CLASSES: means.class_ids[is_new_P][: len(new_PD)].astype(np.int64),
        PLACE: place_2,
    }


def _unit(rows_RD: DoubleArray) -> DoubleArray:
    norms_R1: DoubleArray = np.maximum(np.linalg.norm(rows_RD, axis=1, keepdims=True), 1e-8)
    return rows_RD / norms_R1


def loss_state(state: ClientState, config: Config) -> Mapping[str, FloatArray | IntArray]:
    """Return the anchors of all classes: what is remembered of earlier stages (eq. 8), and those of the stage's new ones."""
    if not config.lambda3 or not len(state.get(MEMORY, ())):
        return {}
    is_earlier_P = (state[FIRST_SEEN] != state[PLACE]).any(1)
    return {
        ANCHORS: np.concatenate([state[MEMORY][is_earlier_P], state[ANCHORS]]),
        ANCHOR_CLASSES: np.concatenate([state[MEMORY_CLASSES][is_earlier_P], state[ANCHOR_CLASSES]]),
    }


def state_with_report(
    kept: ClientState,
    state: ClientState | None,
    prototypes: PrototypeSet,
    scalars: Mapping[str, float],
    config: Config,
) -> ClientState:
    """Return what the client keeps, with what it remembers of every class: q <- r p + (1 - r) q, or p of a new class."""
    place_2 = _place(scalars)
    if not config.lambda3 or place_2 is None:
        return kept
    before = {} if state is None else state
    rows = {
        int(label): (vector, first_2)
        for label, vector, first_2 in zip(
            before.get(MEMORY_CLASSES, ()), before.get(MEMORY, ()), before.get(FIRST_SEEN, ()), strict=True
        )
    }
    for label, p_D in zip(prototypes.class_ids.tolist(), prototypes.vectors, strict=True):
        q_D, first_2 = rows.get(label, (p_D, place_2))
        mixed_D = config.memory_rate * p_D.astype(np.float64) + (1 - config.memory_rate) * q_D.astype(np.float64)
        rows[label] = (mixed_D.astype(np.float32), first_2)
    dim = prototypes.vectors.shape[1]
    has_anchors = PLACE in before and np.array_equal(before[PLACE], place_2)
    return {
        **kept,
        MEMORY: np.array([rows[label][0] for label in sorted(rows)], np.float32).reshape(-1, dim),
        MEMORY_CLASSES: np.array(sorted(rows), np.int64),
        FIRST_SEEN: np.array([rows[label][1] for label in sorted(rows)], np.int64).reshape(-1, 2),
        ANCHORS: before[ANCHORS] if has_anchors else np.zeros((0, dim), np.float32),
        ANCHOR_CLASSES: before[ANCHOR_CLASSES] if has_anchors else np.zeros(0, np.int64),
        PLACE: place_2,
    }


def _place(scalars: Mapping[str, float]) -> IntArray | None:
    """Return pass and stage `[2]`; None in a run without stages."""
    if "stage" not in scalars:
        return None
    return np.array([scalars["pass"], scalars["stage"]], np.int64)


def smooth_l1(ops: Ops, x: Array) -> Array:
    """Return x^2 / 2 where |x| < 1, else |x| - 1/2, elementwise."""
    size = abs(x)
    within = -ops.clamp_min(-size, -1.0)  # the smaller of |x| and 1
    return within * within / 2 + size - within


def _by_class(ops: Ops, prototypes: Prototypes, group: int) -> tuple[Array, Array]:
    """Return a group's vector of each class, `[M, D]`, zeros for a class without one, and the mask `[M]` of those with."""
    is_class_GM = ops.is_class(prototypes.class_ids_G, len(prototypes.class_sizes_M))
    is_row_GM = is_class_GM & (prototypes.group_ids_G == group)[:, None]
    ones_G1 = prototypes.vectors_GD[:, :1] * 0 + 1  # of the vectors' type
    return (is_row_GM * ones_G1).T @ prototypes.vectors_GD, is_row_GM.any(0)


def client_report(features_ND: FloatArray, labels_N: IntArray, num_classes: int, config: Config) -> Report:
    """Return the mean feature of every class that the client has, and its number of samples (eq. 1 and 2)."""
    return local_means(features_ND, labels_N, num_classes)


def server_prototypes(sets: Sequence[PrototypeSet], num_classes: int, config: Config) -> PrototypeSet:
    """Return class prototypes and the semantic ones of the minority as groups 0 and 1; weights are samples behind them."""
    pool, means = pooled(sets), mean_per_class(sets, num_classes, by_counts=False)
    counts_M = np.bincount(pool.class_ids, weights=pool.weights, minlength=num_classes).astype(np.float64)
    return _with_semantic(means.vectors, means.class_ids, counts_M, num_classes, config)


def carry_prototypes(made: PrototypeSet, previous: PrototypeSet, num_classes: int, config: Config) -> PrototypeSet:
    """Return the round's class prototypes and, of classes that nobody has, those before; samples add up over the rounds."""
    vectors: dict[int, FloatArray] = {}
    counts_M = np.zeros(num_classes)
    for each in (previous, made):
        for place in np.flatnonzero(each.group_ids == CLASSES):
            class_id = int(each.class_ids[place])
            vectors[class_id] = each.vectors[place]
            counts_M[class_id] += float(each.weights[place])
    class_ids = np.array(sorted(vectors), np.int64)
    return _with_semantic(
        np.stack([vectors[each] for each in sorted(vectors)]), class_ids, counts_M, num_classes, config
    )


def _with_semantic(
    vectors_PD: FloatArray, class_ids_P: IntArray, counts_M: DoubleArray, num_classes: int, config: Config
) -> PrototypeSet:
    """Return the global set of class prototypes, which are ordered by class, and numbers of samples by class."""
    if not len(class_ids_P):
        return PrototypeSet.empty(vectors_PD.shape[1])
    clusters = finch_star(vectors_PD, counts_M[class_ids_P], config.partition)  # centres are plain means all the same
    is_semantic_P = np.isin(class_ids_P, minority(counts_M, config)) & (clusters.labels_N >= 0)
    labels_S = clusters.labels_N[is_semantic_P]
    return PrototypeSet(
        np.concatenate([vectors_PD, clusters.centres_CD[labels_S]]),
        np.concatenate([class_ids_P, class_ids_P[is_semantic_P]]),
        np.concatenate([counts_M[class_ids_P], clusters.weights_C[labels_S]]).astype(np.float32),
        np.repeat([CLASSES, SEMANTIC], [len(class_ids_P), len(labels_S)]).astype(np.int64),
    )


def minority(counts_M: DoubleArray, config: Config) -> IntArray:
    """Return the classes with the fewest samples, as many as `minority_share` says; of equal ones the later come first."""
    num_classes = len(counts_M)
    order = np.lexsort((-np.arange(num_classes), counts_M))
    return np.sort(order[: int(num_classes * config.minority_share)])


def scores(ops: Ops, features_BD: Array, logits_BM: Array, prototypes: Prototypes | None, config: Config) -> Array:
    """Return the logits, or the scores by prototypes."""
    if config.scores == "classifier":
        return logits_BM
    return own_scores(ops, features_BD, logits_BM, prototypes, config)


def own_scores(ops: Ops, features_BD: Array, logits_BM: Array, prototypes: Prototypes | None, config: Config) -> Array:
    """Return minus the mean square distance to each class's prototype, `[B, M]`.

    A class without a prototype never wins. Without any prototypes the scores are the logits.
    """
    if prototypes is None:
        return logits_BM
    vectors_MD, is_known_M = _by_class(ops, prototypes, CLASSES)
    gap_BMD = features_BD[:, None, :] - vectors_MD[None, :, :]
    return ops.where(is_known_M[None, :], -(gap_BMD**2).mean(-1), -float("inf"))


def personal(config: Config) -> Personal:
    """Return the tensors that clients keep."""
    return "head" if config.own_head else "none"


def uploads_personal(config: Config) -> bool:
    """Whether updates have them all the same."""
    return config.upload_head


METHOD = Method(
    name="fedmlp",
    paper="Guo et al., 2023, https://arxiv.org/abs/2312.09881",
    config=Config,
    client_loss=client_loss,
    fold=fedavg.fold,
    parts=(
        PrototypeExchange(
            kind=CLASS_MEAN,
            report=client_report,
            merge=server_prototypes,
            carry=carry_prototypes,
            comparison="distance",
            weights_are_counts=True,
            scores=scores,
            own_scores=own_scores,
        ),
        KeptState(
            for_loss=loss_state,
            of_stages=StageMemory(begins=begins_stage, state=stage_state, with_report=state_with_report),
        ),
        PersonalTensors(which=personal, is_uploaded=uploads_personal),
    ),
    neutral={"lambda1": 0.0, "lambda2": 0.0, "lambda3": 0.0, "own_head": False, "upload_head": True},
)
