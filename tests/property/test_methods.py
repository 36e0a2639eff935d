"""Guarantees of FedPLCC's loss, upload and download for every input, and of every prototype method's.

Shape legend: B batch, D feature size, M classes, G prototypes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedplcc.aggregator.computation.prototype_checks import check_prototypes
from fedplcc.method_contract.settings import Setting
from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.arithmetic.finch import MergeMean
from fedplcc.shared.methods.parts.private_sums import private_means
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange
from fedplcc.shared.methods.private_form import private_form
from fedplcc.shared.methods.prototypical.fedplcc import Config, client_loss, client_report, server_prototypes
from fedplcc.shared.privacy.class_sums import Release, class_sums, released
from fedplcc.shared.tensors import prototypes_from_bytes, prototypes_to_bytes
from fedplcc.shared.types import Payload, PrototypeSet, Update
from tests.support import present
from tests.support.mini_batch import a_step
from tests.support.records.method_settings import SETTINGS

unhurried = settings(deadline=None)
SEEDS = st.integers(0, 2**32 - 1)

configs = st.builds(
    Config,
    alpha=st.floats(0.05, 1),
    tau=st.floats(0.02, 2),
    phi=st.floats(0.01, 1),
    topk_rank=st.sampled_from(["weighted", "similarity"]),
)


@dataclass(frozen=True)
class Batch:
    """Features that may point anywhere, or nowhere, and prototypes of some of the classes."""

    features_BD: np.ndarray
    labels_B: np.ndarray
    prototypes: PrototypeSet
    num_classes: int


@st.composite
def batches(draw: st.DrawFn, max_classes: int = 4) -> Batch:
    rng = np.random.default_rng(draw(SEEDS))
    num_classes = draw(st.integers(1, max_classes))
    dim = draw(st.integers(1, 5))
    class_sizes = draw(st.lists(st.integers(0, 5), min_size=num_classes, max_size=num_classes))
    if not any(class_sizes):
        class_sizes[0] = 1
    class_ids = np.repeat(np.arange(num_classes), class_sizes)
    counts = rng.integers(1, 1000, size=len(class_ids)).astype(np.float64)
    counts /= np.bincount(class_ids, counts)[class_ids]
    features = rng.normal(size=(draw(st.integers(1, 6)), dim))
    features[rng.random(len(features)) < 0.2] = 0
    return Batch(
        features_BD=features,
        labels_B=rng.integers(0, num_classes, size=len(features)),
        prototypes=PrototypeSet.of(rng.normal(size=(len(class_ids), dim)), class_ids, counts),
        num_classes=num_classes,
    )


def values_of(batch: Batch, config: Config) -> dict[str, float]:
    step = a_step(batch.features_BD, batch.labels_B, batch.prototypes, num_classes=batch.num_classes)
    return {name: float(term.value) for name, term in client_loss(step, config).items()}


def cosine_of(left: np.ndarray, right: np.ndarray) -> float:
    norms = math.hypot(*left.tolist()) * math.hypot(*right.tolist())
    return float(sum(a * b for a, b in zip(left.tolist(), right.tolist(), strict=True))) / norms


def terms_sample_by_sample(batch: Batch, config: Config) -> tuple[float, float]:
    """FedPLCC, eq. 6 to 8, as they are written, one sample and one prototype at a time."""
    rows = [
        (vector.astype(np.float64), int(class_id), float(weight))
        for vector, class_id, weight in zip(
            batch.prototypes.vectors, batch.prototypes.class_ids, batch.prototypes.weights, strict=True
        )
    ]
    contra = corr = 0.0
    for feature, label in zip(batch.features_BD, batch.labels_B, strict=True):
        own_size = sum(class_id == label for _, class_id, _ in rows)
        if own_size == 0 or not feature.any():
            continue
        similarity = [max(cosine_of(feature, vector), 1e-4) ** config.alpha for vector, _, _ in rows]
        mass = [math.exp(s / config.tau) * weight for s, (_, _, weight) in zip(similarity, rows, strict=True)]
        own_mass = [m for m, (_, class_id, _) in zip(mass, rows, strict=True) if class_id == label]
        contra += -math.log(sum(own_mass) / sum(mass))
        own = [(s, s * weight) for s, (_, class_id, weight) in zip(similarity, rows, strict=True) if class_id == label]
        own.sort(key=lambda pair: -pair[1] if config.topk_rank == "weighted" else -pair[0])
        corr -= sum(pull for _, pull in own[: max(1, math.ceil(config.phi * own_size - 1e-9))])
    return contra / len(batch.labels_B), corr / len(batch.labels_B)


@unhurried
@given(batches(), configs)
def test_the_loss_over_the_batch_is_the_loss_sample_by_sample(batch: Batch, config: Config) -> None:
    contra, corr = terms_sample_by_sample(batch, config)
    values = values_of(batch, config)
    assert values["contra"] == pytest.approx(contra, rel=1e-7, abs=1e-9)
    assert values["corr"] == pytest.approx(corr, rel=1e-7, abs=1e-9)


clients_features = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 25), st.just(3)), elements=st.integers(-2, 3).map(float)
)


@unhurried
@given(clients_features, st.integers(1, 4), st.integers(1, 4), SEEDS)
def test_an_upload_stands_for_every_sample_once(
    features: np.ndarray, num_classes: int, min_cluster_size: int, seed: int
) -> None:
    labels = np.random.default_rng(seed).integers(0, num_classes, size=len(features))
    report = client_report(features, labels, num_classes, Config(min_cluster_size=min_cluster_size))
    prototypes = report.prototypes
    is_zero = ~features.any(axis=1)
    represented = np.bincount(prototypes.class_ids, prototypes.weights, num_classes)
    counts = np.bincount(labels[~is_zero], minlength=num_classes)
    assert represented.sum() + report.num_excluded == len(features)
    if min_cluster_size == 1:
        assert represented.tolist() == counts.tolist()
    assert (represented <= counts).all()
    assert (prototypes.weights >= min_cluster_size).all()
    assert prototypes.weights.tolist() == np.round(prototypes.weights).tolist()


@unhurried
@given(
    st.lists(clients_features, min_size=1, max_size=5), st.integers(1, 3), SEEDS, st.sampled_from(["plain", "weighted"])
)
def test_a_download_weighs_every_class_one(
    clients: list[np.ndarray], num_classes: int, seed: int, merge_mean: MergeMean
) -> None:
    rng = np.random.default_rng(seed)
    config = Config(merge_mean=merge_mean)
    sets = [
        client_report(features, rng.integers(0, num_classes, len(features)), num_classes, config).prototypes
        for features in clients
    ]
    merged = server_prototypes(sets, num_classes, config)
    # A centre of opposite prototypes may be zero; then it is not one that FINCH* can pool.
    pooled = {
        int(class_id)
        for uploaded in sets
        for vector, class_id in zip(uploaded.vectors, uploaded.class_ids, strict=True)
        if vector.any()
    }
    assert set(merged.class_ids.tolist()) == pooled
    assert merged.class_ids.tolist() == sorted(merged.class_ids)
    assert (merged.weights > 0).all()
    for class_id in pooled:
        assert merged.weights[merged.class_ids == class_id].sum(dtype=np.float64) == pytest.approx(1, abs=1e-6)


prototype_settings = st.sampled_from([setting for setting in SETTINGS if setting.method.has_prototypes])


@unhurried
@given(prototype_settings, st.lists(clients_features, min_size=1, max_size=4), st.integers(1, 3), st.booleans(), SEEDS)
def test_whatever_clients_hold_the_aggregator_takes_it_and_every_loss_is_finite(
    setting: Setting, clients: list[np.ndarray], num_classes: int, is_far: bool, seed: int
) -> None:
    """Zero, equal, opposite and huge features; classes that nobody has; through the aggregator's own check."""
    method, config = setting.method, setting.config
    exchange = present(method.part(PrototypeExchange))
    rng = np.random.default_rng(seed)
    labels = [rng.integers(0, num_classes, len(features)) for features in clients]
    features = [rows * np.float32(1e6 if is_far else 1) for rows in clients]
    reports = [exchange.report(*client, num_classes, config) for client in zip(features, labels, strict=True)]
    for report, classes in zip(reports, labels, strict=True):
        counts = tuple(np.bincount(classes, minlength=num_classes).tolist())
        update = Update(
            client_id="a",
            payload=Payload(),
            num_examples=len(classes),
            num_excluded=report.num_excluded,
            class_counts=counts,
        )
        uploaded = prototypes_from_bytes(prototypes_to_bytes(report.prototypes))
        check_prototypes(uploaded, update, method=method, dim=3, class_counts=counts)
    made = exchange.merge([report.prototypes for report in reports], num_classes, config)
    assert np.isfinite(made.vectors).all()
    assert (made.weights > 0).all()
    assert set(made.class_ids.tolist()) <= {int(label) for classes in labels for label in classes}
    for rows, classes in zip(features, labels, strict=True):
        step = a_step(rows, classes, made, num_classes=num_classes)
        for name, term in method.client_loss(step, config).items():
            assert math.isfinite(term.value), name


@unhurried
@given(st.integers(1, 30), st.floats(0.01, 100), SEEDS)
def test_the_aggregator_takes_class_means_with_noise(num: int, noise: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels_N = rng.integers(0, 4, num)
    features_ND = rng.normal(size=(num, 3)).astype(np.float32)
    exact = class_sums(features_ND, labels_N, 4, 1.0, digests=[str(n) for n in range(num)], centres=False)
    made = released(exact, Release(clip=1.0, noise=noise), bytes(32), (b"",))
    means = private_means(made.sums_MD, made.counts_M, noise, num)
    method = private_form(METHODS["fedproto"], 1.0, noise)
    update = Update(client_id="ann", payload=Payload(), num_examples=num)
    counts = np.bincount(labels_N, minlength=4).tolist()
    check_prototypes(means, update, method=method, dim=3, class_counts=counts)
    if len(means):
        heavy = replace(means, weights=means.weights * np.float32(num + 1))
        with pytest.raises(MalformedUpdate, match="weighs more than all"):
            check_prototypes(heavy, update, method=method, dim=3, class_counts=counts)


@unhurried
@given(prototype_settings, st.lists(clients_features, min_size=2, max_size=4), SEEDS)
def test_a_client_with_nothing_to_report_changes_no_byte_of_any_method(
    setting: Setting, clients: list[np.ndarray], seed: int
) -> None:
    method, config = setting.method, setting.config
    exchange = present(method.part(PrototypeExchange))
    rng = np.random.default_rng(seed)
    sets = [exchange.report(rows, rng.integers(0, 3, len(rows)), 3, config).prototypes for rows in clients]
    with_empty = [*sets, PrototypeSet.empty()]
    left, right = (exchange.merge(each, 3, config) for each in (sets, with_empty))
    assert prototypes_to_bytes(left) == prototypes_to_bytes(right)
