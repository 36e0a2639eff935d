"""FedMLP: values by hand and by torch's smooth L1, the minority, clusters of classes, and what outlives a round."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch.nn.functional import kl_div, smooth_l1_loss

from fedplcc.method_contract.client_losses import Situation, a_point, assert_torch_agrees_with_numpy, on_numpy, values
from fedplcc.shared.methods.arithmetic.finch import finch
from fedplcc.shared.methods.arrays import ClientState
from fedplcc.shared.methods.parts.kept_state import StageBegin
from fedplcc.shared.methods.prototypical import fedmlp
from fedplcc.shared.methods.prototypical.fedmlp import (
    ANCHOR_CLASSES,
    SEMANTIC,
    Config,
    begins_stage,
    carry_prototypes,
    server_prototypes,
    state_with_report,
)
from fedplcc.shared.types import PrototypeSet

ROWS = PrototypeSet(
    np.array([(0, 0, 0.5), (2, 0, 0), (0, 1, 0), (1, 1, 1)], np.float32),
    np.array([0, 1, 3, 3]),
    np.array([20, 8, 3, 2], np.float32),
    np.array([0, 0, 0, 1]),
)
"""Class prototypes of classes 0, 1 and 3, and a semantic one of class 3."""


def terms(features: list[tuple[float, ...]], labels: list[int], **hyper: float) -> dict[str, float]:
    situation = Situation(labels_B=labels, num_classes=4, prototypes=ROWS)
    return dict(values(fedmlp.client_loss, fedmlp.Config.model_validate(hyper), a_point(features, 4), situation))


class TestLoss:
    def test_the_value_of_the_page_of_algorithms(self) -> None:
        found = terms([(0.2, 1.5, 0)], [0])
        assert found["proto"] == pytest.approx(0.381667, abs=5e-7)
        assert found["semantic"] == 0, "class 0 is not of the minority"

    def test_a_class_of_the_minority_has_both_distances_and_each_is_torchs(self) -> None:
        z, known = (0.25, -2.5, 3.0), {"proto": ROWS.vectors[2], "semantic": ROWS.vectors[3]}
        found = terms([z], [3])
        for name, vector in known.items():
            expected = smooth_l1_loss(torch.tensor(z), torch.tensor(vector)).item()
            assert found[name] == pytest.approx(expected, rel=1e-6)

    def test_a_sample_without_a_prototype_adds_nothing_and_counts(self) -> None:
        alone, beside = terms([(0.2, 1.5, 0)], [0]), terms([(0.2, 1.5, 0)] * 2, [0, 2])
        assert beside["proto"] == pytest.approx(alone["proto"] / 2, rel=1e-12)


class TestMinority:
    def test_it_is_the_classes_with_the_fewest_samples_and_of_equal_ones_the_later(self) -> None:
        counts = np.array([5.0, 2, 9, 5, 0])
        assert fedmlp.minority(counts, fedmlp.Config()).tolist() == [1, 4]
        assert fedmlp.minority(counts, fedmlp.Config(minority_share=0.6)).tolist() == [1, 3, 4]
        assert fedmlp.minority(counts, fedmlp.Config(minority_share=0.0)).tolist() == []
        assert fedmlp.minority(counts, fedmlp.Config(minority_share=1.0)).tolist() == [0, 1, 2, 3, 4]

    @given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.floats(0, 1))
    def test_no_class_outside_has_fewer_samples_than_one_inside(self, counts: list[int], share: float) -> None:
        inside = set(fedmlp.minority(np.array(counts, float), fedmlp.Config(minority_share=share)).tolist())
        assert len(inside) == int(len(counts) * share)
        ranks = [(count, -class_id) for class_id, count in enumerate(counts)]
        outside = [rank for class_id, rank in enumerate(ranks) if class_id not in inside]
        assert all(ranks[each] < rank for each in inside for rank in outside)


def of(rows: dict[int, tuple[float, ...]], *counts: int) -> PrototypeSet:
    return PrototypeSet.of(list(rows.values()), list(rows), counts)


class TestServer:
    LEFT = of({0: (1, 0), 1: (0.9, 0.1), 2: (0, 1)}, 10, 4, 4)
    RIGHT = of({0: (0.8, 0), 3: (0.1, 0.9)}, 6, 2)

    def test_a_class_prototype_is_the_plain_mean_of_the_clients_that_have_it_and_samples_add_up(self) -> None:
        made = fedmlp.server_prototypes([self.LEFT, self.RIGHT], 5, fedmlp.Config())
        is_class = made.group_ids == 0
        assert made.class_ids[is_class].tolist() == [0, 1, 2, 3]
        assert made.weights[is_class].tolist() == [16, 4, 4, 2]
        assert made.vectors[0] == pytest.approx([0.9, 0])

    def test_a_semantic_prototype_is_the_mean_of_the_classes_in_its_cluster(self) -> None:
        made = fedmlp.server_prototypes([self.LEFT, self.RIGHT], 5, fedmlp.Config())
        class_rows = made.vectors[made.group_ids == 0]
        (labels, *_) = finch(class_rows)
        assert labels.tolist() == [0, 0, 1, 1]
        is_semantic = made.group_ids == fedmlp.SEMANTIC
        # Of five classes two are the minority: class 4, which nobody has, and class 3.
        assert made.class_ids[is_semantic].tolist() == [3]
        assert made.vectors[is_semantic][0] == pytest.approx(class_rows[2:4].mean(0))
        assert made.weights[is_semantic].tolist() == [6], "the samples of classes 2 and 3"

    def test_a_class_that_nobody_has_keeps_its_prototype_and_all_samples_count(self) -> None:
        first = fedmlp.server_prototypes([self.LEFT], 4, fedmlp.Config())
        second = fedmlp.carry_prototypes(
            fedmlp.server_prototypes([self.RIGHT], 4, fedmlp.Config()), first, 4, fedmlp.Config()
        )
        rows = {int(each): row for row, each in enumerate(second.class_ids) if second.group_ids[row] == 0}
        assert sorted(rows) == [0, 1, 2, 3]
        assert second.vectors[rows[1]] == pytest.approx([0.9, 0.1])
        assert second.vectors[rows[0]] == pytest.approx([0.8, 0])
        assert [second.weights[rows[each]] for each in range(4)] == [16, 4, 4, 2]
        assert second.class_ids[second.group_ids == fedmlp.SEMANTIC].tolist() == [2, 3], "of classes 1 and 2 the later"

    def test_a_round_in_which_nobody_reports_leaves_the_set_as_it_was(self) -> None:
        first = server_prototypes([self.LEFT, self.RIGHT], 4, Config())
        nothing = server_prototypes([], 4, Config())
        again = carry_prototypes(nothing, first, 4, Config())
        assert again.vectors.tolist() == first.vectors.tolist()
        assert again.weights.tolist() == first.weights.tolist()

    def test_a_zero_prototype_is_in_no_cluster(self) -> None:
        made = server_prototypes([of({0: (0, 0), 1: (1, 0), 2: (1, 0.1)}, 1, 2, 3)], 3, Config(minority_share=1.0))
        assert made.class_ids[made.group_ids == SEMANTIC].tolist() == [1, 2]


class TestScores:
    def scores(
        self, features: list[tuple[float, ...]], **hyper: str
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        situation = Situation(labels_B=[0] * len(features), num_classes=4, prototypes=ROWS)
        step = on_numpy(a_point(features, 4), situation)
        return np.asarray(
            fedmlp.scores(
                step.ops, step.features_BD, step.logits_BM, step.prototypes, fedmlp.Config.model_validate(hyper)
            )
        )

    def test_the_nearest_class_prototype_wins_and_semantic_ones_name_nothing(self) -> None:
        found = self.scores([(1, 1, 1), (2, 0, 0.1), (0, 0, 0.4)], scores="prototype")
        assert found.argmax(-1).tolist() == [3, 1, 0]
        assert np.isneginf(found[:, 2]).all(), "a class without a prototype never wins"

    def test_the_classifier_names_by_its_logits(self) -> None:
        situation = Situation(labels_B=[0], num_classes=4, prototypes=ROWS)
        step = on_numpy(a_point([(1, 1, 1)], 4), situation)
        assert (self.scores([(1, 1, 1)]) == step.logits_BM).all()


def test_heads_and_what_is_evaluated() -> None:
    assert fedmlp.METHOD.evaluated_models(fedmlp.Config()) == ("global", "local")
    assert fedmlp.METHOD.evaluated_models(fedmlp.Config(upload_head=False)) == ("local",)
    assert fedmlp.METHOD.evaluated_models(fedmlp.Config(own_head=False)) == ("global",)
    with pytest.raises(ValidationError, match="only a head of its own can stay with a client"):
        fedmlp.Config(own_head=False, upload_head=False)


def at(number: int, stage: int) -> dict[str, float]:
    return {"pass": float(number), "stage": float(stage)}


def remembered(rows: dict[int, tuple[float, ...]], state: ClientState | None, scalars: dict[str, float]) -> ClientState:
    prototypes = of(rows, *[5] * len(rows))
    return fedmlp.state_with_report({}, state, prototypes, scalars, fedmlp.Config())


def begun(
    state: ClientState, features: list[tuple[float, ...]], labels: list[int], scalars: dict[str, float]
) -> ClientState:
    begin = StageBegin(
        features_ND=np.array(features, np.float32),
        labels_N=np.array(labels),
        num_classes=4,
        state=state,
        scalars=scalars,
    )
    return fedmlp.stage_state(begin, fedmlp.Config())


class TestBetweenTasks:
    def test_the_value_of_the_page_of_algorithms(self) -> None:
        kept = {fedmlp.ANCHORS: np.array([[1, 0, 0]], np.float32), fedmlp.ANCHOR_CLASSES: np.array([2])}
        situation = Situation(labels_B=[2], num_classes=4, prototypes=None, kept=kept)
        found = dict(values(fedmlp.client_loss, fedmlp.Config(), a_point([(0.2, 1.5, 0)], 4), situation))
        assert found["inter_task"] == pytest.approx(0.494105, abs=5e-7)
        beside = Situation(labels_B=[2, 0], num_classes=4, prototypes=None, kept=kept)
        found = dict(values(fedmlp.client_loss, fedmlp.Config(), a_point([(0.2, 1.5, 0), (3, 1, 2)], 4), beside))
        assert found["inter_task"] == pytest.approx(0.494105 / 2, abs=5e-7), "a sample without an anchor counts as 0"
        found = dict(values(fedmlp.client_loss, fedmlp.Config(lambda3=0.0), a_point([(0.2, 1.5, 0)], 4), situation))
        assert list(found) == ["ce"]

    @pytest.mark.parametrize("temperature", [0.25, 1.0, 4.0])
    def test_torch_agrees_with_numpy_and_with_its_own_divergence(self, temperature: float) -> None:
        rng = np.random.default_rng(0)
        anchors = rng.normal(size=(2, 3))
        situation = Situation(
            labels_B=[0, 1, 2, 3],
            num_classes=4,
            prototypes=ROWS,
            kept={fedmlp.ANCHORS: anchors, fedmlp.ANCHOR_CLASSES: np.array([3, 0])},
        )
        features = rng.normal(size=(4, 3), scale=2)
        config = fedmlp.Config(it_temperature=temperature)
        assert_torch_agrees_with_numpy(fedmlp.client_loss, config, a_point(features, 4), situation)
        found = dict(values(fedmlp.client_loss, config, a_point(features, 4), situation))
        z, own = torch.tensor(features[[0, 3]]) / temperature, torch.tensor(anchors[[1, 0]]) / temperature
        expected = kl_div(z.log_softmax(1), own.log_softmax(1), reduction="sum", log_target=True).item() / 4
        assert found["inter_task"] == pytest.approx(expected, rel=1e-6)
        assert found["inter_task"] >= 0

    def test_a_class_is_a_running_mean_from_its_first_update_on(self) -> None:
        state = remembered({0: (1, 0, 0), 2: (0, 4, 0)}, None, at(1, 1))
        state = remembered({2: (0, 0, 2)}, state, at(1, 1))
        state = remembered({1: (5, 5, 5)}, state, at(1, 2))
        assert state[fedmlp.MEMORY_CLASSES].tolist() == [0, 1, 2]
        assert state[fedmlp.MEMORY].tolist() == [[1, 0, 0], [5, 5, 5], [0, 2, 1]]
        assert state[fedmlp.FIRST_SEEN].tolist() == [[1, 1], [1, 2], [1, 1]]

    def test_anchors_are_what_is_remembered_of_earlier_stages_and_of_clusters_for_new_classes(self) -> None:
        rows = {0: (1.0, 0, 0), 1: (0.9, 0.1, 0), 2: (0, 0, 1.0), 3: (0, 0.1, 0.9)}
        state = remembered({name: rows[name] for name in (0, 1, 2)}, None, at(1, 1))
        assert not fedmlp.begins_stage(state, at(1, 1), fedmlp.Config())
        assert fedmlp.loss_state(state, fedmlp.Config())[fedmlp.ANCHOR_CLASSES].tolist() == [], (
            "in the first task nothing is earlier"
        )
        assert fedmlp.begins_stage(state, at(1, 2), fedmlp.Config())
        assert not fedmlp.begins_stage(state, at(1, 2), fedmlp.Config(lambda3=0.0))
        state = begun(state, [(0.1, 0, 0.8), (0.8, 0, 0)], [3, 0], at(1, 2))
        assert not fedmlp.begins_stage(state, at(1, 2), fedmlp.Config())
        kept = fedmlp.loss_state(state, fedmlp.Config())
        assert kept[fedmlp.ANCHOR_CLASSES].tolist() == [0, 1, 2, 3]
        labels = finch(np.array([rows[name] for name in (0, 1, 2)]))[0]
        of_cluster = np.array([rows[name] for name in (0, 1, 2)])[labels == labels[2]].mean(0)
        assert kept[fedmlp.ANCHORS][3] == pytest.approx(of_cluster), (
            "the centre nearest to the new class's mean feature"
        )
        later = remembered({0: (0, 1, 0), 3: rows[3]}, state, at(1, 2))
        assert np.array_equal(later[fedmlp.ANCHORS], state[fedmlp.ANCHORS]), (
            "anchors of new classes stay until the stage ends"
        )
        again = fedmlp.loss_state(later, fedmlp.Config())
        assert again[fedmlp.ANCHOR_CLASSES].tolist() == [0, 1, 2, 3]
        assert again[fedmlp.ANCHORS][0] == pytest.approx((0.5, 0.5, 0)), "of an earlier class what is remembered now"
        third = begun(later, [(0.8, 0, 0)], [0], at(2, 1))
        assert third[fedmlp.PLACE].tolist() == [2, 1]
        assert fedmlp.loss_state(third, fedmlp.Config())[fedmlp.ANCHOR_CLASSES].tolist() == [0, 1, 2, 3]
        assert len(third[fedmlp.ANCHOR_CLASSES]) == 0

    def test_a_run_without_stages_remembers_nothing(self) -> None:
        assert state_with_report({"head": np.ones(1)}, None, of({0: (1, 0, 0)}, 5), {}, Config()).keys() == {"head"}
        assert not begins_stage({}, {}, Config())

    def test_a_memory_without_direction_anchors_no_new_class(self) -> None:
        state = remembered({0: (0, 0, 0)}, None, at(1, 1))
        state = begun(state, [(1, 0, 0)], [3], at(1, 2))
        assert state[ANCHOR_CLASSES].tolist() == []
