"""Checks of a method's prototypes, and of how a local model names classes by them."""

from __future__ import annotations

import math

import numpy as np
import torch

from fedplcc.aggregator.computation.prototype_checks import MAX_PROTOTYPE_BYTES, check_prototypes
from fedplcc.aggregator.computation.update_checks import check_counts
from fedplcc.method_contract.checks import Checks
from fedplcc.method_contract.client_losses import Situation, a_point, values
from fedplcc.method_contract.numpy_ops import NumpyOps, on_device
from fedplcc.method_contract.settings import Setting
from fedplcc.method_contract.uploads import DIM, NUM_CLASSES, a_client, in_order, merged, reported, reports_of
from fedplcc.shared.methods.parts.prototypes import MAX_ROWS_PER_CLASS, PrototypeExchange, Report, excess_rows
from fedplcc.shared.tensors import prototypes_from_bytes, prototypes_to_bytes
from fedplcc.shared.types import Client, Payload, PrototypeSet, Update
from fedplcc.trainer.learning.ops import TorchOps, to_device

CPU = torch.device("cpu")
check = Checks()


def exchange_of(setting: Setting) -> PrototypeExchange:
    """Return the method's part about prototypes."""
    exchange = setting.method.part(PrototypeExchange)
    assert exchange is not None
    return exchange


def carries(setting: Setting) -> bool:
    """Whether global prototypes are made of those of the round before too."""
    return setting.method.has_prototypes and exchange_of(setting).carry is not None


def clients_to_report() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Features and labels of clients that a summary may stumble over."""
    features, labels = a_client(0)
    some_zero = features.copy()
    some_zero[::3] = 0
    pairs = np.repeat(np.random.default_rng(5).normal(size=(300, DIM)), 2, axis=0)
    return {
        "usual": (features, labels),
        "one sample": (features[:1], labels[:1]),
        "one sample of each class": (features[:3], np.arange(3)),
        "one class": (features, np.full(40, 2)),
        "all alike": (np.tile(features[:1], (40, 1)), labels),
        "some zero": (some_zero, labels),
        "all zero": (np.zeros((4, DIM), np.float32), np.zeros(4, np.int64)),
        "opposite": (np.concatenate([features, -features]), np.concatenate([labels, labels])),
        "as many clusters as can be": (pairs.astype(np.float32), np.zeros(600, np.int64)),
    }


def assert_the_aggregator_takes(setting: Setting, report: Report, labels: np.ndarray) -> None:
    """Through the aggregator's own checks, after its way over the wire."""
    counts = np.bincount(labels, minlength=NUM_CLASSES)
    data = prototypes_to_bytes(report.prototypes)
    assert len(data) <= MAX_PROTOTYPE_BYTES
    update = Update(
        client_id="a",
        payload=Payload(),
        num_examples=len(labels),
        num_excluded=report.num_excluded,
        class_counts=tuple(counts.tolist()),
    )
    check_counts(update, Client(client_id="a", domain="a", num_examples=len(labels)), NUM_CLASSES)
    uploaded = prototypes_from_bytes(data)
    check_prototypes(uploaded, update, method=setting.method, dim=DIM, class_counts=update.class_counts)
    assert excess_rows(uploaded, NUM_CLASSES, MAX_ROWS_PER_CLASS) is None


def assert_clients_can_use(prototypes: PrototypeSet) -> None:
    """What a client relies on in a set that it receives, after its way over the wire."""
    received = prototypes_from_bytes(prototypes_to_bytes(prototypes))
    assert received.vectors.tobytes() == prototypes.vectors.tobytes()
    assert received.vectors.shape == (len(received), DIM)
    assert np.isfinite(received.vectors).all()
    assert np.isfinite(received.weights).all()
    assert (received.weights > 0).all()
    assert received.class_ids.min() >= 0
    assert received.class_ids.max() < NUM_CLASSES
    assert received.group_ids.min() >= -1
    constants = to_device(received, NUM_CLASSES, CPU)
    assert constants is not None
    assert constants.class_sizes_M.sum() == len(received)
    assert bool(constants.class_means_MD.isfinite().all())


@check(lambda setting: setting.method.has_prototypes)
def the_aggregator_takes_what_any_client_reports(setting: Setting) -> None:
    for what, (features, labels) in clients_to_report().items():
        report = reported(setting, features, labels)
        assert set(report.prototypes.class_ids.tolist()) <= set(labels.tolist()), what
        assert_the_aggregator_takes(setting, report, labels)


@check(lambda setting: setting.method.has_prototypes)
def every_class_of_a_usual_client_is_reported(setting: Setting) -> None:
    features, labels = a_client(0)
    assert set(reported(setting, features, labels).prototypes.class_ids.tolist()) == set(labels.tolist())


@check(lambda setting: setting.method.has_prototypes)
def what_the_server_makes_is_what_clients_can_use(setting: Setting) -> None:
    made = merged(setting, in_order(reports_of(setting)))
    assert set(made.class_ids.tolist()) == {0, 1, 2}
    assert_clients_can_use(made)
    for number in range(3):
        features, labels = a_client(number)
        situation = Situation(labels_B=labels, num_classes=NUM_CLASSES, prototypes=made)
        terms = values(setting.method.client_loss, setting.config, a_point(features, NUM_CLASSES), situation)
        assert len(terms) > 1
        assert all(map(math.isfinite, terms.values()))


@check(lambda setting: setting.method.has_prototypes)
def so_is_what_it_makes_of_awkward_uploads(setting: Setting) -> None:
    """One client alone; opposite, equal and zero prototypes; clients without any, whose sets may have no size."""
    uploads = {what: reported(setting, *client).prototypes for what, client in clients_to_report().items()}
    uploads["zero"] = PrototypeSet.of([(0, 0, 0, 0), (1, 0, 0, 0), (-1, 0, 0, 0)], [0, 1, 1], [1, 1, 1])
    empty = [PrototypeSet.empty(), PrototypeSet.empty(DIM)]
    cohorts = [[uploaded] for uploaded in uploads.values()] + [[empty[0], *uploads.values(), empty[1]]]
    for cohort in cohorts:
        made = merged(setting, cohort)
        if len(made):
            assert_clients_can_use(made)


@check(lambda setting: setting.method.has_prototypes)
def of_nothing_it_makes_an_empty_set(setting: Setting) -> None:
    nothing: list[list[PrototypeSet]] = [[], [PrototypeSet.empty()], [PrototypeSet.empty(DIM), PrototypeSet.empty()]]
    for sets in nothing:
        made = merged(setting, sets)
        assert len(made) == 0
        assert to_device(prototypes_from_bytes(prototypes_to_bytes(made)), NUM_CLASSES, CPU) is None


@check(carries)
def what_it_carries_from_the_round_before_is_usable_and_the_same_twice(setting: Setting) -> None:
    """Of a cohort that lacks a class, of one that reports nothing, and of one that reports everything anew."""
    reports = reports_of(setting)
    previous = merged(setting, in_order(reports))
    before = prototypes_to_bytes(previous)
    for sets in ([reports["client-0"]], [PrototypeSet.empty()], in_order(reports)):
        made = merged(setting, sets, previous)
        assert_clients_can_use(made)
        read = prototypes_from_bytes(before)
        assert prototypes_to_bytes(merged(setting, sets, read)) == prototypes_to_bytes(made)
    assert prototypes_to_bytes(previous) == before


@check(carries)
def without_a_round_before_nothing_is_carried(setting: Setting) -> None:
    sets = in_order(reports_of(setting))
    alone = exchange_of(setting).merge(sets, NUM_CLASSES, setting.config)
    for nothing in (PrototypeSet.empty(), PrototypeSet.empty(DIM)):
        assert prototypes_to_bytes(merged(setting, sets, nothing)) == prototypes_to_bytes(alone)


@check(lambda setting: setting.method.has_prototypes)
def the_order_in_which_updates_arrive_changes_no_byte(setting: Setting) -> None:
    arrived = list(reports_of(setting).items())
    expected = prototypes_to_bytes(merged(setting, in_order(dict(arrived))))
    for order in ([2, 0, 1], [1, 2, 0], [2, 1, 0]):
        again = in_order(dict(arrived[index] for index in order))
        assert prototypes_to_bytes(merged(setting, again)) == expected


@check(lambda setting: setting.method.has_prototypes)
def the_order_of_classes_within_an_upload_changes_no_byte(setting: Setting) -> None:
    plain = in_order(reports_of(setting))
    turned = []
    for uploaded in plain:
        order = np.argsort(-uploaded.class_ids, kind="stable")
        turned.append(
            PrototypeSet(
                uploaded.vectors[order],
                uploaded.class_ids[order],
                uploaded.weights[order],
                uploaded.group_ids[order],
            )
        )
    assert prototypes_to_bytes(merged(setting, turned)) == prototypes_to_bytes(merged(setting, plain))


@check(lambda setting: setting.method.has_prototypes)
def a_dropped_client_takes_only_its_own_rows(setting: Setting) -> None:
    reports = reports_of(setting)
    del reports["client-1"]
    empty = {**reports, "client-1": PrototypeSet.empty(DIM)}
    left, right = (merged(setting, in_order(sets)) for sets in (reports, empty))
    assert left.vectors.tobytes() == right.vectors.tobytes()
    assert left.weights.tobytes() == right.weights.tobytes()


@check(lambda setting: setting.method.has_prototypes)
def reports_and_merges_leave_their_arguments_alone(setting: Setting) -> None:
    features, labels = a_client(0)
    before = features.copy(), labels.copy()
    report = reported(setting, features, labels)
    uploaded = prototypes_to_bytes(report.prototypes)
    merged(setting, [report.prototypes])
    np.testing.assert_array_equal(features, before[0])
    np.testing.assert_array_equal(labels, before[1])
    assert prototypes_to_bytes(report.prototypes) == uploaded


@check(lambda setting: setting.method.has_prototypes)
def a_client_without_usable_features_reports_an_empty_set(setting: Setting) -> None:
    for count in (0, 4):
        features, labels = np.zeros((count, DIM), np.float32), np.zeros(count, np.int64)
        report = reported(setting, features, labels)
        assert len(report.prototypes) == 0
        assert report.num_excluded == count


@check(lambda setting: setting.method.has_prototypes)
def a_feature_that_is_not_finite_is_refused(setting: Setting) -> None:
    features, labels = a_client(0)
    features[3, 1] = np.nan
    try:
        reported(setting, features, labels)
    except ValueError:
        return
    raise AssertionError("a feature that is NaN is summarised like any other; raise a ValueError")


@check(lambda setting: setting.method.has_prototypes and exchange_of(setting).scores is not None)
def they_are_one_number_a_class_the_same_on_torch_and_the_best_is_finite(setting: Setting) -> None:
    scores, config = exchange_of(setting).scores, setting.config
    assert scores is not None
    features = np.random.default_rng(0).normal(size=(6, DIM)).astype(np.float32)
    logits = np.resize(features, (6, NUM_CLASSES))
    whole = merged(setting, in_order(reports_of(setting)))
    of_two = merged(setting, [reported(setting, *a_client(0)).prototypes])
    for prototypes in (None, whole, of_two):
        found = scores(
            NumpyOps(), features, logits, None if prototypes is None else on_device(prototypes, NUM_CLASSES), config
        )
        assert found.shape == (6, NUM_CLASSES)
        assert np.isfinite(found.max(-1)).all()
        by_torch = scores(
            TorchOps(),
            torch.tensor(features),
            torch.tensor(logits),
            None if prototypes is None else to_device(prototypes, NUM_CLASSES, CPU),
            config,
        )
        np.testing.assert_allclose(by_torch.numpy(), found, rtol=1e-4, atol=1e-6)
