"""What every method must do, whatever it computes. Every row of the table is tried."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from shared.methods import METHODS, fedavg
from shared.methods.base import ClientEnd, ClientState, LossTerms, Method, MethodConfig, fold_weights
from shared.tensors import from_bytes, to_bytes
from shared.types import PrototypeSet
from tests.numpy_ops import a_step

every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
with_prototypes = [method for method in METHODS.values() if method.has_prototypes]
every_prototype_method = pytest.mark.parametrize("method", with_prototypes, ids=[m.name for m in with_prototypes])

with_references = [method for method in METHODS.values() if method.reference_models is not None]
every_method_with_references = pytest.mark.parametrize("method", with_references, ids=[m.name for m in with_references])
with_state = [method for method in METHODS.values() if method.keeps_client_state and method.name != "fedproto"]
every_method_with_state = pytest.mark.parametrize("method", with_state, ids=[m.name for m in with_state])

NUM_CLASSES = 3
DIM = 4


def a_cohort(num_clients: int = 3) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Features and labels by client id; each client lacks one class."""
    cohort = {}
    for client in range(num_clients):
        rng = np.random.default_rng(client)
        labels = rng.integers(0, NUM_CLASSES, 40)
        labels[labels == client % NUM_CLASSES] = (client + 1) % NUM_CLASSES
        modes = np.random.default_rng(100).uniform(0.2, 2, size=(NUM_CLASSES, 2, DIM))
        features = modes[labels, rng.integers(0, 2, 40)] + 0.1 * rng.normal(size=(40, DIM))
        cohort[f"client-{client}"] = np.abs(features).astype(np.float32), labels
    return cohort


def reports_of(method: Method) -> dict[str, PrototypeSet]:
    assert method.client_report is not None
    return {
        client_id: method.client_report(features, labels, NUM_CLASSES, method.config()).prototypes
        for client_id, (features, labels) in a_cohort().items()
    }


def a_linear_model(seed: int) -> dict[str, np.ndarray]:
    """A model whose features are a matrix times its input."""
    return {"weight": np.random.default_rng(seed).normal(size=(DIM, DIM)).astype(np.float32), "steps": np.array(seed)}


def participation(
    method: Method, state: ClientState | None, seed: int = 0, **hyper: Any
) -> tuple[LossTerms, ClientState]:
    """The loss of one mini-batch of a client with this state, under a trained model, and what the client keeps then."""
    config = method.config.model_validate(hyper)
    received, trained = a_linear_model(seed), a_linear_model(seed + 1)
    inputs = np.random.default_rng(seed).normal(size=(5, DIM))
    references = {} if method.reference_models is None else method.reference_models(received, state, config)
    step = a_step(
        inputs @ trained["weight"],
        [0, 1, 2, 0, 1],
        None,
        num_classes=NUM_CLASSES,
        reference_features={name: inputs @ arrays["weight"] for name, arrays in references.items()},
    )
    assert method.next_client_state is not None
    end = ClientEnd(received=received, trained=trained, state=state, round=1)
    return method.client_loss(step, config), method.next_client_state(end, config)


def merge(method: Method, sets: Mapping[str, PrototypeSet]) -> PrototypeSet:
    """The server's half on uploads in client-id order, as the aggregator calls it."""
    assert method.server_prototypes is not None
    return method.server_prototypes([sets[client_id] for client_id in sorted(sets)], NUM_CLASSES, method.config())


class TestRecord:
    @every_method
    def test_a_method_is_found_by_its_name_and_cites_its_paper(self, method):
        assert METHODS[method.name] is method
        assert "https://" in method.paper
        assert method.client_loss.__module__ == f"shared.methods.{method.name}"
        assert "https://" in (sys.modules[method.client_loss.__module__].__doc__ or "")

    @every_method
    def test_prototype_halves_come_together(self, method):
        halves = (method.prototype_kind, method.client_report, method.server_prototypes)
        assert {half is None for half in halves} == {not method.has_prototypes}
        assert method.has_prototypes or not method.weights_are_counts

    def test_methods_need_no_torch(self):
        code = "import sys, shared.methods; sys.exit('torch' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


class TestConfig:
    @every_method
    def test_defaults_are_valid_and_survive_json(self, method):
        config = method.config()
        assert method.config.model_validate_json(config.model_dump_json()) == config

    @every_method
    def test_a_config_is_frozen_and_knows_its_keys(self, method):
        with pytest.raises(ValidationError):
            method.config().averaging = "equal"
        with pytest.raises(ValidationError, match="no_such_key"):
            method.config.model_validate({"no_such_key": 1})

    @every_method
    def test_every_hyper_parameter_is_documented(self, method):
        classes = [kind for kind in method.config.__mro__ if issubclass(kind, MethodConfig)]
        lines = "\n".join(map(inspect.getsource, classes)).splitlines()
        for name in method.config.model_fields:
            (line,) = [number for number, text in enumerate(lines) if text.startswith(f"    {name}: ")]
            assert lines[line + 1].startswith('    """'), f"{name} has no docstring"


class TestClientLoss:
    PROTOTYPES = PrototypeSet.of([(1, 0, 0, 0), (1, 1, 0, 0), (0, 0, 1, 1)], [0, 0, 1], [0.25, 0.75, 1])

    @every_method
    def test_the_first_term_is_cross_entropy(self, method):
        step = a_step(np.eye(4), [0, 1, 2, 0], self.PROTOTYPES, num_classes=NUM_CLASSES)
        name, term = next(iter(method.client_loss(step, method.config()).items()))
        assert name == "ce"
        assert term.value is step.task_loss
        assert term.coefficient == 1

    @every_method
    def test_the_neutral_setting_has_fedavgs_terms(self, method):
        step = a_step(np.eye(4), [0, 1, 2, 0], self.PROTOTYPES, num_classes=NUM_CLASSES)
        neutral = method.config.model_validate(method.neutral)
        assert method.client_loss(step, neutral) == fedavg.client_loss(step, fedavg.Config())

    @every_prototype_method
    def test_a_round_without_prototypes_has_fedavgs_terms(self, method):
        step = a_step(np.eye(4), [0, 1, 2, 0], None, num_classes=NUM_CLASSES, round_number=1)
        assert method.client_loss(step, method.config()) == fedavg.client_loss(step, fedavg.Config())

    @every_method
    @pytest.mark.parametrize("cosine", [-1.0, -1e-8, 0.0, 1e-8, 1.0])
    @pytest.mark.parametrize("classes", [[0, 0, 0], [0, 0, 1]], ids=["one class known", "two of three known"])
    def test_terms_are_finite_at_awkward_points(self, method, cosine, classes):
        prototypes = PrototypeSet.of(self.PROTOTYPES.vectors, classes, [0.5, 0.5, 1])
        feature = np.array([cosine, 0, 0, np.sqrt(1 - cosine**2)])
        step = a_step([feature, feature, feature, np.zeros(4)], [0, 1, 2, 0], prototypes, num_classes=NUM_CLASSES)
        for name, term in method.client_loss(step, method.config()).items():
            assert np.isfinite(term.value), name
            assert np.ndim(term.value) == 0, name

    @every_method
    def test_the_order_of_the_batch_does_not_matter(self, method):
        rng = np.random.default_rng(0)
        features, labels = rng.normal(size=(12, 4)), rng.integers(0, NUM_CLASSES, 12)
        order = rng.permutation(12)
        straight = a_step(features, labels, self.PROTOTYPES, num_classes=NUM_CLASSES)
        shuffled = a_step(features[order], labels[order], self.PROTOTYPES, num_classes=NUM_CLASSES)
        left, right = (method.client_loss(step, method.config()) for step in (straight, shuffled))
        assert left.keys() == right.keys()
        for name in left.keys() - {"ce"}:
            assert float(left[name].value) == pytest.approx(float(right[name].value), rel=1e-12)


class TestFold:
    @every_method
    def test_any_cut_of_the_model_gives_the_same_bytes(self, method):
        rng = np.random.default_rng(1)
        state, *blocks = rng.normal(size=(5, 101)).astype(np.float32)
        weights = fold_weights([30, 1, 700, 12], method.config())
        whole = method.fold(state, iter(blocks), weights, method.config())
        for cut in (1, 7, 100):
            pieces = [
                method.fold(
                    state[part : part + cut],
                    iter([block[part : part + cut] for block in blocks]),
                    weights,
                    method.config(),
                )
                for part in range(0, 101, cut)
            ]
            assert np.concatenate(pieces).tobytes() == whole.tobytes()

    @every_method
    def test_one_client_under_the_neutral_setting_is_central_training(self, method):
        state, trained = np.random.default_rng(2).normal(size=(2, 50)).astype(np.float32)
        config = method.config.model_validate(method.neutral)
        folded = method.fold(state, iter([trained]), fold_weights([123], config), config)
        assert folded.tobytes() == trained.tobytes()

    @every_method
    @pytest.mark.parametrize("averaging", ["weighted", "equal"])
    def test_the_neutral_setting_folds_like_fedavg(self, method, averaging):
        rng = np.random.default_rng(3)
        state, *blocks = rng.normal(size=(4, 50)).astype(np.float32)
        config = method.config.model_validate({**method.neutral, "averaging": averaging})
        weights = fold_weights([5, 6, 7], config)
        expected = np.average(
            np.asarray(blocks, dtype=np.float64), axis=0, weights=[5, 6, 7] if averaging == "weighted" else None
        )
        folded = method.fold(state, iter(blocks), weights, config)
        assert folded.tobytes() == fedavg.fold(state, iter(blocks), weights, fedavg.Config()).tobytes()
        np.testing.assert_allclose(folded, expected, rtol=1e-6, atol=1e-7)

    @every_method
    def test_counters_keep_their_type_and_arguments_their_values(self, method):
        counters = [np.array([3, 10], np.int64), np.array([4, 9], np.int64)]
        folded = method.fold(
            np.array([0, 0], np.int64), iter(counters), fold_weights([1, 1], method.config()), method.config()
        )
        assert folded.dtype == np.int64
        assert [block.tolist() for block in counters] == [[3, 10], [4, 9]]


class TestClientState:
    @every_method_with_state
    def test_what_a_client_keeps_can_rest_on_its_disk(self, method):
        _, state = participation(method, None)
        assert from_bytes(to_bytes(state)).keys() == state.keys()

    @every_method_with_state
    def test_the_first_participation_has_fedavgs_terms(self, method):
        assert list(participation(method, None)[0]) == ["ce"]

    @every_method_with_references
    def test_what_was_kept_changes_the_loss_and_the_neutral_setting_does_not_look_at_it(self, method):
        _, state = participation(method, None, seed=7)
        terms, _ = participation(method, state)
        assert len(terms) > 1
        assert all(np.isfinite(term.value) and np.ndim(term.value) == 0 for term in terms.values())
        neutral, _ = participation(method, state, **method.neutral)
        assert list(neutral) == ["ce"]

    @every_method_with_state
    def test_the_same_end_gives_the_same_bytes_and_leaves_its_arguments_alone(self, method):
        _, state = participation(method, None, seed=7)
        before = to_bytes(state)
        kept = [to_bytes(participation(method, state)[1]) for _ in range(2)]
        assert kept[0] == kept[1] != before
        assert to_bytes(state) == before


class TestPrototypes:
    @every_prototype_method
    def test_a_report_is_a_valid_upload(self, method):
        for client_id, (features, labels) in a_cohort().items():
            report = method.client_report(features, labels, NUM_CLASSES, method.config())
            uploaded = report.prototypes
            assert uploaded.vectors.shape == (len(uploaded), DIM), client_id
            assert (uploaded.vectors.dtype, uploaded.class_ids.dtype) == (np.float32, np.int64)
            assert np.isfinite(uploaded.vectors).all()
            assert set(uploaded.class_ids.tolist()) == set(labels.tolist())
            assert (uploaded.weights > 0).all()
            if method.weights_are_counts:
                assert uploaded.weights.sum() + report.num_excluded == len(labels)

    @every_prototype_method
    def test_what_the_server_makes_is_what_clients_can_use(self, method):
        merged = merge(method, reports_of(method))
        assert set(merged.class_ids.tolist()) == {0, 1, 2}
        assert (merged.weights > 0).all()
        for features, labels in a_cohort().values():
            step = a_step(features, labels, merged, num_classes=NUM_CLASSES)
            terms = method.client_loss(step, method.config())
            assert len(terms) > 1
            assert all(np.isfinite(term.value) for term in terms.values())

    @every_prototype_method
    def test_the_order_in_which_updates_arrive_changes_no_byte(self, method):
        arrived = list(reports_of(method).items())
        expected = merge(method, dict(arrived))
        for order in ([2, 0, 1], [1, 2, 0], [2, 1, 0]):
            merged = merge(method, dict(arrived[index] for index in order))
            assert merged.vectors.tobytes() == expected.vectors.tobytes()
            assert merged.weights.tobytes() == expected.weights.tobytes()

    @every_prototype_method
    def test_a_dropped_client_takes_only_its_own_rows(self, method):
        reports = reports_of(method)
        del reports["client-1"]
        empty = {**reports, "client-1": PrototypeSet.empty(DIM)}
        assert merge(method, reports).vectors.tobytes() == merge(method, empty).vectors.tobytes()

    @every_prototype_method
    def test_reports_and_merges_leave_their_arguments_alone(self, method):
        features, labels = a_cohort()["client-0"]
        kept = features.copy(), labels.copy()
        report = method.client_report(features, labels, NUM_CLASSES, method.config())
        uploaded = report.prototypes.vectors.copy(), report.prototypes.weights.copy()
        method.server_prototypes([report.prototypes], NUM_CLASSES, method.config())
        np.testing.assert_array_equal(features, kept[0])
        np.testing.assert_array_equal(labels, kept[1])
        np.testing.assert_array_equal(report.prototypes.vectors, uploaded[0])
        np.testing.assert_array_equal(report.prototypes.weights, uploaded[1])

    @every_prototype_method
    def test_a_client_without_usable_features_reports_an_empty_set(self, method):
        for count in (0, 4):
            features, labels = np.zeros((count, DIM), np.float32), np.zeros(count, np.int64)
            report = method.client_report(features, labels, NUM_CLASSES, method.config())
            assert len(report.prototypes) == 0
            assert report.num_excluded == count
        assert len(method.server_prototypes([report.prototypes], NUM_CLASSES, method.config())) == 0
