"""The contract of every method, whatever it computes. Every row of the table is tried, and every setting of method_settings.

Shape legend: N samples of a client, D feature size, M classes.
"""

from __future__ import annotations

import inspect
import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from aggregator.computation.update_checks import MAX_PROTOTYPE_BYTES, check_counts, check_prototypes
from shared.config.run import parse_run_config
from shared.methods import METHODS, fedavg
from shared.methods.base import MAX_ROWS_PER_CLASS, Method, MethodConfig, Report, excess_rows, fold_weights
from shared.tensors import from_bytes, prototypes_from_bytes, prototypes_to_bytes, to_bytes
from shared.types import Client, Payload, PrototypeSet, Update
from tests.support.federation.methods_in_a_run import (
    DIM,
    NUM_CLASSES,
    Model,
    a_client,
    a_model,
    in_order,
    kept,
    merged,
    mid_run,
    reported,
    reports_of,
)
from tests.support.oracles.client_losses import (
    FEATURES,
    Situation,
    a_point,
    assert_torch_agrees_with_numpy,
    gradients,
    on_numpy,
    on_torch,
    values,
)
from tests.support.oracles.numpy_ops import NumpyOps, on_device
from tests.support.records.method_settings import SETTINGS, Setting, of_methods, of_settings
from trainer.learning.ops import TorchOps, to_device

CPU = torch.device("cpu")

every_method = of_methods()
every_setting = of_settings()
every_prototype_setting = of_settings(lambda setting: setting.method.has_prototypes)
every_setting_with_state = of_settings(lambda setting: setting.method.keeps_client_state)
every_setting_that_keeps = of_settings(lambda setting: setting.method.keeps_client_state and bool(kept(setting)))
every_setting_with_a_neutral_one = of_settings(lambda setting: setting.method.neutral is not None)
every_method_with_a_neutral_setting = of_methods(lambda method: method.neutral is not None)


# -- The record ---------------------------------------------------------------------------------------------------------


class TestRecord:
    @every_method
    def test_a_method_is_found_by_its_name_and_cites_its_paper(self, method: Method) -> None:
        assert METHODS[method.name] is method
        assert "https://" in method.paper
        assert method.client_loss.__module__ == f"shared.methods.{method.name}"
        assert "https://" in (sys.modules[method.client_loss.__module__].__doc__ or "")

    @every_method
    def test_prototype_halves_come_together(self, method: Method) -> None:
        halves = (method.prototype_kind, method.client_report, method.server_prototypes)
        assert {half is None for half in halves} == {not method.has_prototypes}
        assert method.has_prototypes or not method.weights_are_counts

    @every_method
    def test_what_needs_a_client_s_state_comes_with_a_state(self, method: Method) -> None:
        assert method.keeps_client_state or (method.start_model, method.local_model) == (None, None)

    @every_method
    def test_a_method_can_be_fedavg_or_says_why_it_cannot(self, method: Method) -> None:
        said = (sys.modules[method.client_loss.__module__].__doc__ or "").partition("\n")[2]
        assert method.neutral is not None or "FedAvg" in said

    def test_methods_need_no_torch(self) -> None:
        code = "import sys, shared.methods; sys.exit('torch' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0

    def test_every_setting_is_another_one(self) -> None:
        names = [setting.name for setting in SETTINGS]
        assert len(set(names)) == len(names)
        assert all(setting.config != setting.method.config() for setting in SETTINGS if setting.hyper)


# -- Hyper-parameters ---------------------------------------------------------------------------------------------------


def a_document(method_name: str, hyper: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "run": {"method": method_name, "clients": ["a", "b"]},
        "data": {"classes": ["x", "y", "z"]},
        "method": dict(hyper),
    }


FIRST_RELEASES: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {"averaging": "weighted"},
    "fedprox": {"averaging": "weighted", "mu": 0.01},
    "moon": {"averaging": "weighted", "mu": 1.0, "tau": 0.5},
    "fedntd": {"averaging": "weighted", "beta": 1.0, "tau": 1.0},
    "fedproto": {"averaging": "weighted", "lambda1": 1.0, "proto_avg": "plain", "share_model": True},
    "fpl": {
        "averaging": "weighted",
        "lambda1": 1.0,
        "lambda2": 1.0,
        "partition": "last",
        "tau": 0.02,
        "upcr_reduction": "mean",
    },
    "fedplvm": {
        "alpha": 0.25,
        "averaging": "weighted",
        "corr": "mean_proto",
        "lambda1": 100.0,
        "min_cluster_size": 1,
        "partition": "last",
        "tau": 0.07,
    },
    "fedplcc": {
        "alpha": 0.5,
        "averaging": "weighted",
        "lambda1": 100.0,
        "lambda2": 1000.0,
        "merge_mean": "plain",
        "min_cluster_size": 1,
        "partition": "last",
        "phi": 0.5,
        "tau": 0.07,
        "topk_rank": "weighted",
    },
    "fedccl": {
        "averaging": "weighted",
        "lambda1": 1.0,
        "lambda2": 1.0,
        "max_pool_per_class": None,
        "min_cluster_size": 1,
        "partition": "last",
        "tau": 0.07,
    },
}
"""Golden: what a run that sets none of a method's keys wrote down when the method first came. Hashes rest on it."""


class TestConfig:
    @every_setting
    def test_a_config_survives_json(self, setting: Setting) -> None:
        assert setting.method.config.model_validate_json(setting.config.model_dump_json()) == setting.config

    @every_method
    def test_a_config_is_frozen_and_knows_its_keys(self, method: Method) -> None:
        with pytest.raises(ValidationError):
            method.config().averaging = "equal"  # type: ignore[misc]  # mypy knows it as well
        with pytest.raises(ValidationError, match="no_such_key"):
            method.config.model_validate({"no_such_key": 1})

    @every_method
    def test_every_hyper_parameter_is_documented(self, method: Method) -> None:
        classes = [kind for kind in method.config.__mro__ if issubclass(kind, MethodConfig)]
        lines = "\n".join(map(inspect.getsource, classes)).splitlines()
        for name in method.config.model_fields:
            (line,) = [number for number, text in enumerate(lines) if text.startswith(f"    {name}: ")]
            assert lines[line + 1].startswith('    """'), f"{name} has no docstring"

    @every_method
    def test_a_key_that_is_younger_than_its_method_changes_no_hash_where_it_is_not_set(self, method: Method) -> None:
        plain = parse_run_config(a_document(method.name, {}))
        written = json.loads(plain.canonical_json)["method"]
        fields = method.config.model_fields
        assert method.config.younger <= fields.keys()
        for name in method.config.younger:
            assert name not in written
            assert parse_run_config(a_document(method.name, {name: fields[name].default})).hash == plain.hash

    @of_methods(lambda method: method.name in FIRST_RELEASES)
    def test_a_run_that_sets_nothing_writes_down_what_it_did_when_its_method_first_came(self, method: Method) -> None:
        config = parse_run_config(a_document(method.name, {}))
        assert json.loads(config.canonical_json)["method"] == FIRST_RELEASES[method.name]

    @every_setting
    def test_every_setting_has_a_hash_of_its_own_and_is_read_back_from_its_canonical_json(
        self, setting: Setting
    ) -> None:
        config = parse_run_config(a_document(setting.method.name, setting.hyper))
        again = parse_run_config(json.loads(config.canonical_json))
        assert (again.method, again.hash) == (setting.config, config.hash)
        if setting.hyper:
            assert config.hash != parse_run_config(a_document(setting.method.name, {})).hash


# -- The loss -----------------------------------------------------------------------------------------------------------


def awkward_sets() -> dict[str, PrototypeSet]:
    """Global sets that are hard on a loss; each has pooled rows and one of the whole, as FedCCL's have."""
    rows = [(1, 0, 0, 0), (1, 1, 0, 0), (0, 0, 1, 1), (0.5, 0.5, 0, 0)]

    def a_set(vectors: Any, class_ids: Sequence[int]) -> PrototypeSet:
        plain = PrototypeSet.of(vectors, class_ids, [0.5, 0.5, 1, 1])
        return replace(plain, group_ids=np.array([0, 1, 0, -1]))

    return {
        "one class known": a_set(rows, [0, 0, 0, 0]),
        "two of three known": a_set(rows, [0, 0, 1, 0]),
        "all known": a_set(rows, [0, 1, 2, 0]),
        "all alike": a_set([rows[0]] * 4, [0, 0, 1, 1]),
        "opposite ones": a_set([rows[0], (-1, 0, 0, 0), *rows[2:]], [0, 0, 1, 0]),
        "a zero one": a_set([*rows[:3], (0, 0, 0, 0)], [0, 0, 1, 0]),
    }


class TestClientLoss:
    @every_setting
    def test_the_first_term_is_cross_entropy(self, setting: Setting) -> None:
        step = on_numpy(*mid_run(setting))
        name, term = next(iter(setting.method.client_loss(step, setting.config).items()))
        assert name == "ce"
        assert term.value is step.task_loss
        assert term.coefficient == 1

    @every_setting
    def test_no_term_is_multiplied_by_zero_and_none_is_there_in_vain(self, setting: Setting) -> None:
        terms = setting.method.client_loss(on_numpy(*mid_run(setting)), setting.config)
        assert len(terms) > 1 or setting.method is fedavg.METHOD
        assert all(0 < term.coefficient < math.inf for term in terms.values())

    @every_setting_with_a_neutral_one
    def test_the_neutral_setting_has_fedavgs_terms_whatever_there_is_to_look_at(self, setting: Setting) -> None:
        step = on_numpy(*mid_run(setting, config=setting.neutral))
        assert setting.method.client_loss(step, setting.neutral) == fedavg.client_loss(step, fedavg.Config())

    @of_settings(lambda setting: setting.method.needs_earlier_round)
    def test_a_client_s_first_round_has_fedavgs_terms(self, setting: Setting) -> None:
        step = on_numpy(*mid_run(setting, is_first_time=True))
        assert setting.method.client_loss(step, setting.config) == fedavg.client_loss(step, fedavg.Config())

    @every_setting
    def test_torch_has_the_value_of_numpy_and_the_gradient_of_its_differences(self, setting: Setting) -> None:
        assert_torch_agrees_with_numpy(setting.method.client_loss, setting.config, *mid_run(setting))

    @every_setting
    def test_values_and_gradients_are_finite_at_awkward_points(self, setting: Setting) -> None:
        """docs/algorithms.md, rule 13.7, in the trainer's float32; one over the floor of a norm is no slope."""
        rows = [(cosine, 0, 0, math.sqrt(1 - cosine**2)) for cosine in (-1.0, -1e-8, 0.0, 1e-8, 1.0)]
        features = np.array([row for row in [*rows, (0, 0, 0, 0)] for _ in range(NUM_CLASSES)])
        point, base = mid_run(setting)
        point = {**point, **a_point(features, NUM_CLASSES)}
        references = dict.fromkeys(base.references, features)
        # Their logits are as awkward, and of other samples: a teacher who is of another mind.
        logits = dict.fromkeys(base.reference_logits, np.roll(point["logits"], 1, axis=0))
        labels_B = np.arange(len(features)) % NUM_CLASSES
        base = replace(base, labels_B=labels_B, references=references, reference_logits=logits)
        for what, prototypes in awkward_sets().items():
            situation = replace(base, prototypes=prototypes if setting.method.has_prototypes else None)
            for name, term in setting.method.client_loss(on_numpy(point, situation), setting.config).items():
                assert np.ndim(term.value) == 0, name
                assert np.isfinite(term.value), f"{name}, {what}"
            found = gradients(setting.method.client_loss, setting.config, point, situation, torch.float32)
            for name, (value, slopes) in found.items():
                assert math.isfinite(value), f"{name}, {what}"
                for leaf, slope in slopes.items():
                    assert np.abs(slope).max() < 1e5, f"gradient of {name} with respect to {leaf}, {what}"

    @every_setting
    def test_prototypes_and_references_far_off_are_finite_too(self, setting: Setting) -> None:
        point, situation = mid_run(setting)
        point = {**point, FEATURES: point[FEATURES] * 1e6}
        for value, slopes in gradients(
            setting.method.client_loss, setting.config, point, situation, torch.float32
        ).values():
            assert math.isfinite(value)
            assert all(np.isfinite(slope).all() for slope in slopes.values())

    @every_setting
    def test_the_order_of_the_batch_does_not_matter(self, setting: Setting) -> None:
        point, situation = mid_run(setting)
        order = np.array([3, 0, 4, 2, 1])
        turned = {**point, FEATURES: point[FEATURES][order], "logits": point["logits"][order]}
        shuffled = replace(
            situation,
            labels_B=np.asarray(situation.labels_B)[order],
            references={name: rows[order] for name, rows in situation.references.items()},
            reference_logits={name: rows[order] for name, rows in situation.reference_logits.items()},
        )
        left = values(setting.method.client_loss, setting.config, point, situation)
        right = values(setting.method.client_loss, setting.config, turned, shuffled)
        assert left == pytest.approx(right, rel=1e-12)

    @every_setting
    def test_what_is_kept_from_one_step_of_a_round_to_the_next_changes_nothing(self, setting: Setting) -> None:
        """A trainer has one `Ops` and one set of prototypes for all steps of a round."""
        step, _ = on_torch(*mid_run(setting))
        setting.method.client_loss(step, setting.config)
        other, _ = on_torch(*mid_run(setting, seed=5))
        later = replace(other, prototypes=step.prototypes, ops=step.ops)
        anew = replace(later, ops=TorchOps())
        left, right = (setting.method.client_loss(each, setting.config) for each in (later, anew))
        assert {name: term.value.item() for name, term in left.items()} == {
            name: term.value.item() for name, term in right.items()
        }

    @every_setting
    def test_it_leaves_its_arguments_alone(self, setting: Setting) -> None:
        point, situation = mid_run(setting)
        step = on_numpy(point, situation)
        before = {name: np.copy(value) for name, value in point.items()}
        vectors = np.zeros(0) if step.prototypes is None else step.prototypes.vectors_GD.copy()
        first = {name: float(term.value) for name, term in setting.method.client_loss(step, setting.config).items()}
        assert values(setting.method.client_loss, setting.config, point, situation) == first
        assert all(np.array_equal(point[name], before[name]) for name in point)
        assert step.prototypes is None or np.array_equal(step.prototypes.vectors_GD, vectors)


# -- The fold -----------------------------------------------------------------------------------------------------------


class TestFold:
    @every_setting
    def test_any_cut_of_the_model_gives_the_same_bytes(self, setting: Setting) -> None:
        fold, config = setting.method.fold, setting.config
        rng = np.random.default_rng(1)
        state, *blocks = rng.normal(size=(5, 101)).astype(np.float32)
        weights = fold_weights([30, 1, 700, 12], config)
        whole = fold(lambda: state, iter(blocks), weights, config)
        for cut in (1, 7, 100):
            pieces = [
                fold(
                    lambda part=part, cut=cut: state[part : part + cut],  # type: ignore[misc]
                    iter([block[part : part + cut] for block in blocks]),
                    weights,
                    config,
                )
                for part in range(0, 101, cut)
            ]
            assert np.concatenate(pieces).tobytes() == whole.tobytes()

    @every_method_with_a_neutral_setting
    def test_one_client_under_the_neutral_setting_is_central_training(self, method: Method) -> None:
        state, trained = np.random.default_rng(2).normal(size=(2, 50)).astype(np.float32)
        config = method.config.model_validate(method.neutral)
        folded = method.fold(lambda: state, iter([trained]), fold_weights([123], config), config)
        assert folded.tobytes() == trained.tobytes()

    @every_method_with_a_neutral_setting
    @pytest.mark.parametrize("averaging", ["weighted", "equal"])
    def test_the_neutral_setting_folds_like_fedavg(self, method: Method, averaging: str) -> None:
        rng = np.random.default_rng(3)
        state, *blocks = rng.normal(size=(4, 50)).astype(np.float32)
        config = method.config.model_validate({**(method.neutral or {}), "averaging": averaging})
        weights = fold_weights([5, 6, 7], config)
        expected = np.average(
            np.asarray(blocks, dtype=np.float64), axis=0, weights=[5, 6, 7] if averaging == "weighted" else None
        )
        folded = method.fold(lambda: state, iter(blocks), weights, config)
        assert folded.tobytes() == fedavg.fold(lambda: state, iter(blocks), weights, fedavg.Config()).tobytes()
        np.testing.assert_allclose(folded, expected, rtol=1e-6, atol=1e-7)

    @every_setting
    def test_types_stay_and_arguments_keep_their_values(self, setting: Setting) -> None:
        for dtype in (np.int64, np.float32):
            state = np.zeros(2, dtype)
            blocks = [np.array([3, 10], dtype), np.array([4, 9], dtype)]
            weights = fold_weights([1, 1], setting.config)
            folded = setting.method.fold(lambda state=state: state, iter(blocks), weights, setting.config)  # type: ignore[misc]
            assert (folded.dtype, folded.shape) == (np.dtype(dtype), (2,))
            assert [block.tolist() for block in (state, *blocks)] == [[0, 0], [3, 10], [4, 9]]


# -- What a client keeps ------------------------------------------------------------------------------------------------


def _digest(found: Mapping[str, Any] | None) -> Any:
    """What a hook gives, comparable."""
    if found is None:
        return None
    return {name: _digest(value) if isinstance(value, Mapping) else value.tobytes() for name, value in found.items()}


def assert_is_a_model(arrays: Mapping[str, Any], like: Model) -> None:
    assert arrays.keys() == like.keys()
    for name, array in like.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)


class TestClientState:
    @every_setting_that_keeps
    def test_what_a_client_keeps_can_rest_on_its_disk(self, setting: Setting) -> None:
        state = kept(setting)
        again = from_bytes(to_bytes(state))
        assert again.keys() == state.keys()
        assert all(np.array_equal(again[name], state[name]) for name in state)

    @every_setting_that_keeps
    def test_the_same_end_gives_the_same_bytes_and_leaves_its_arguments_alone(self, setting: Setting) -> None:
        state = kept(setting, seed=7)
        before = to_bytes(state)
        first, second = (to_bytes(kept(setting, state)) for _ in range(2))
        assert first == second != before
        assert to_bytes(state) == before

    @every_setting_that_keeps
    def test_what_a_client_keeps_is_of_use(self, setting: Setting) -> None:
        """It gives another loss, another start or another model to evaluate; nothing is kept in vain."""
        method, config, received = setting.method, setting.config, a_model(0)
        first, second = (kept(setting, seed=seed) for seed in (7, 8))
        hooks = [hook for hook in (method.reference_models, method.start_model, method.local_model) if hook is not None]
        assert any(_digest(hook(received, first, config)) != _digest(hook(received, second, config)) for hook in hooks)

    @every_setting_with_state
    def test_at_first_a_client_has_nothing_of_its_own(self, setting: Setting) -> None:
        method, config, received = setting.method, setting.config, a_model(0)
        for hook in (method.start_model, method.local_model):
            assert hook is None or hook(received, None, config) is None

    @every_setting_with_state
    def test_every_model_that_it_names_is_one_of_the_run(self, setting: Setting) -> None:
        method, config, received = setting.method, setting.config, a_model(0)
        for state in (None, kept(setting, seed=7) or None):
            if method.reference_models is not None:
                for arrays in method.reference_models(received, state, config).values():
                    assert_is_a_model(arrays, received)
            for hook in (method.start_model, method.local_model):
                if hook is not None and (own := hook(received, state, config)) is not None:
                    assert_is_a_model(own, received)

    @every_setting
    def test_a_report_is_of_the_global_model_or_of_a_client_s_own(self, setting: Setting) -> None:
        evaluated = setting.method.evaluated_models(setting.config)
        assert evaluated in (("global",), ("global", "local"), ("local",))
        assert "local" not in evaluated or setting.method.local_model is not None

    @of_settings(lambda setting: not setting.method.shares_model(setting.config))
    def test_who_does_not_share_the_trained_model_keeps_it_and_goes_on_from_it(self, setting: Setting) -> None:
        method, config = setting.method, setting.config
        state = kept(setting, seed=7)
        assert method.start_model is not None
        assert method.local_model is not None
        for hook in (method.start_model, method.local_model):
            assert _digest(hook(a_model(0), state, config)) == _digest(a_model(8))


# -- Prototypes ---------------------------------------------------------------------------------------------------------


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


class TestPrototypes:
    @every_prototype_setting
    def test_the_aggregator_takes_what_any_client_reports(self, setting: Setting) -> None:
        for what, (features, labels) in clients_to_report().items():
            report = reported(setting, features, labels)
            assert set(report.prototypes.class_ids.tolist()) <= set(labels.tolist()), what
            assert_the_aggregator_takes(setting, report, labels)

    @every_prototype_setting
    def test_every_class_of_a_usual_client_is_reported(self, setting: Setting) -> None:
        features, labels = a_client(0)
        assert set(reported(setting, features, labels).prototypes.class_ids.tolist()) == set(labels.tolist())

    @every_prototype_setting
    def test_what_the_server_makes_is_what_clients_can_use(self, setting: Setting) -> None:
        made = merged(setting, in_order(reports_of(setting)))
        assert set(made.class_ids.tolist()) == {0, 1, 2}
        assert_clients_can_use(made)
        for number in range(3):
            features, labels = a_client(number)
            situation = Situation(labels_B=labels, num_classes=NUM_CLASSES, prototypes=made)
            terms = values(setting.method.client_loss, setting.config, a_point(features, NUM_CLASSES), situation)
            assert len(terms) > 1
            assert all(map(math.isfinite, terms.values()))

    @every_prototype_setting
    def test_so_is_what_it_makes_of_awkward_uploads(self, setting: Setting) -> None:
        """One client alone; opposite, equal and zero prototypes; clients without any, whose sets may have no size."""
        uploads = {what: reported(setting, *client).prototypes for what, client in clients_to_report().items()}
        uploads["zero"] = PrototypeSet.of([(0, 0, 0, 0), (1, 0, 0, 0), (-1, 0, 0, 0)], [0, 1, 1], [1, 1, 1])
        empty = [PrototypeSet.empty(), PrototypeSet.empty(DIM)]
        cohorts = [[uploaded] for uploaded in uploads.values()] + [[empty[0], *uploads.values(), empty[1]]]
        for cohort in cohorts:
            made = merged(setting, cohort)
            if len(made):
                assert_clients_can_use(made)

    @every_prototype_setting
    @pytest.mark.parametrize("sets", [[], [PrototypeSet.empty()], [PrototypeSet.empty(DIM), PrototypeSet.empty()]])
    def test_of_nothing_it_makes_an_empty_set(self, setting: Setting, sets: list[PrototypeSet]) -> None:
        made = merged(setting, sets)
        assert len(made) == 0
        assert to_device(prototypes_from_bytes(prototypes_to_bytes(made)), NUM_CLASSES, CPU) is None

    @every_prototype_setting
    def test_the_order_in_which_updates_arrive_changes_no_byte(self, setting: Setting) -> None:
        arrived = list(reports_of(setting).items())
        expected = prototypes_to_bytes(merged(setting, in_order(dict(arrived))))
        for order in ([2, 0, 1], [1, 2, 0], [2, 1, 0]):
            again = in_order(dict(arrived[index] for index in order))
            assert prototypes_to_bytes(merged(setting, again)) == expected

    @every_prototype_setting
    def test_the_order_of_classes_within_an_upload_changes_no_byte(self, setting: Setting) -> None:
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

    @every_prototype_setting
    def test_a_dropped_client_takes_only_its_own_rows(self, setting: Setting) -> None:
        reports = reports_of(setting)
        del reports["client-1"]
        empty = {**reports, "client-1": PrototypeSet.empty(DIM)}
        left, right = (merged(setting, in_order(sets)) for sets in (reports, empty))
        assert left.vectors.tobytes() == right.vectors.tobytes()
        assert left.weights.tobytes() == right.weights.tobytes()

    @every_prototype_setting
    def test_reports_and_merges_leave_their_arguments_alone(self, setting: Setting) -> None:
        features, labels = a_client(0)
        before = features.copy(), labels.copy()
        report = reported(setting, features, labels)
        uploaded = prototypes_to_bytes(report.prototypes)
        merged(setting, [report.prototypes])
        np.testing.assert_array_equal(features, before[0])
        np.testing.assert_array_equal(labels, before[1])
        assert prototypes_to_bytes(report.prototypes) == uploaded

    @every_prototype_setting
    def test_a_client_without_usable_features_reports_an_empty_set(self, setting: Setting) -> None:
        for count in (0, 4):
            features, labels = np.zeros((count, DIM), np.float32), np.zeros(count, np.int64)
            report = reported(setting, features, labels)
            assert len(report.prototypes) == 0
            assert report.num_excluded == count

    @every_prototype_setting
    def test_a_feature_that_is_not_finite_is_refused(self, setting: Setting) -> None:
        features, labels = a_client(0)
        features[3, 1] = np.nan
        with pytest.raises(ValueError, match="finite"):
            reported(setting, features, labels)


# -- How a local model names classes ------------------------------------------------------------------------------------


class TestScores:
    @of_settings(lambda setting: setting.method.scores is not None)
    def test_they_are_one_number_a_class_the_same_on_torch_and_the_best_is_finite(self, setting: Setting) -> None:
        scores, config = setting.method.scores, setting.config
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
