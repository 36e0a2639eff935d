"""ClassSums' two halves: sums of clients, the head that the server makes of them, and the heads that clients keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fedplcc.shared.methods.arithmetic.exact_maths import shuffled
from fedplcc.shared.methods.arrays import ArrayGroup, most_bytes
from fedplcc.shared.methods.heads import classsums
from fedplcc.shared.methods.heads.class_heads import ABSENT, Classes, linear_head, sums_of
from fedplcc.shared.methods.heads.classsums import (
    ALONE,
    CLIENT,
    FIRST,
    GLOBAL_SUMS,
    GRIDS,
    METHOD,
    SCORES,
    SENT,
    SHARE,
    SUMS,
    Config,
    best_shrinkage,
    mixed,
    upload_fault,
)
from fedplcc.shared.methods.heads.own_share import best_row
from fedplcc.shared.methods.parts.part import BeforeTraining, ClientEnd, ServerResult, ServerRound
from fedplcc.shared.tensors import to_bytes
from tests.support import present

NUM_CLASSES, DIM = 3, 6
HEAD = {"weight": np.zeros((NUM_CLASSES, DIM), np.float32), "bias": np.zeros(NUM_CLASSES, np.float32)}
MEANS = np.random.default_rng(99).normal(size=(NUM_CLASSES, DIM))
HEADS = [Config(head=head) for head in ("means", "lda", "ridge")]
every_head = pytest.mark.parametrize("config", HEADS, ids=[config.head for config in HEADS])

Groups = Mapping[str, ArrayGroup]


def samples(number: int, counts: Sequence[int] = (9, 5, 7), noise: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(number)
    labels_N = np.repeat(np.arange(NUM_CLASSES), counts)
    shift_D = 0.5 * rng.normal(size=DIM)
    features_ND = MEANS[labels_N] + shift_D + noise * rng.normal(size=(len(labels_N), DIM))
    return features_ND.astype(np.float32), labels_N


def a_client(
    number: int, arrays: Groups | None = None, state: ArrayGroup | None = None, round: int = 1, **how: Any
) -> BeforeTraining:
    features_ND, labels_N = samples(number, **how)
    return BeforeTraining(
        features_ND=features_ND,
        labels_N=labels_N,
        num_classes=NUM_CLASSES,
        head=HEAD,
        received=arrays or {},
        state=state,
        round=round,
        seed=number,
    )


def stepped(uploads: Sequence[Groups], config: Config, number: int = 1) -> ServerResult:
    step = ServerRound(
        round=number,
        seed=0,
        num_classes=NUM_CLASSES,
        feature_dim=DIM,
        uploads=uploads,
        arrays={},
        start_head=HEAD,
        head=HEAD,
    )
    return METHOD.server_step(step, config)


def uploaded(config: Config, *numbers: int) -> list[Groups]:
    return [METHOD.before_training(a_client(number), config) for number in numbers]


def bytes_of(result: ServerResult) -> tuple[bytes, bytes]:
    assert result.head is not None
    return to_bytes(result.head), to_bytes(result.arrays[GLOBAL_SUMS])


def the_end(kept: ArrayGroup) -> ClientEnd:
    return ClientEnd(received={}, trained={}, state=None, round=1, made=kept)


class Run:
    """Rounds of some clients, of which each may take part or not."""

    def __init__(self, config: Config) -> None:
        self.config, self.number = config, 0
        self.arrays: Groups = {}
        self.states: dict[int, ArrayGroup] = {}
        self.uploads: list[Groups] = []

    def round(self, *numbers: int) -> ServerResult:
        self.number += 1
        self.uploads, kept = [], {}
        for number in numbers:
            before = a_client(number, self.arrays, self.states.get(number), self.number)
            groups = METHOD.before_training(before, self.config)
            assert upload_fault(groups, [9, 5, 7], self.config) is None
            kept[number] = METHOD.kept_after(the_end(METHOD.kept_before(before, groups, self.config)), self.config)
            self.uploads.append(groups)
        result = stepped(self.uploads, self.config, self.number)
        self.arrays, self.states = result.arrays, {**self.states, **kept}
        return result


# -- Sums ---------------------------------------------------------------------------------------------------------------


@every_head
@given(order=st.permutations(range(5)))
@settings(max_examples=5)
def test_the_order_of_clients_changes_no_byte(config: Config, order: list[int]) -> None:
    found = [bytes_of(stepped(uploaded(config, *numbers), config)) for numbers in (range(5), order)]
    assert found[0] == found[1]


@every_head
def test_the_head_is_that_of_the_pooled_features(config: Config) -> None:
    result = stepped(uploaded(config, 0, 1, 2), config)
    features_ND, labels_N = (np.concatenate(each) for each in zip(*map(samples, range(3)), strict=True))
    sums = sums_of(features_ND, labels_N, NUM_CLASSES, has_moment=True)
    pooled = linear_head(Classes.of(sums), config.head, FIRST[config.head])
    assert result.head is not None
    np.testing.assert_allclose(result.head["weight"], pooled.weight_MD, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(result.head["bias"], pooled.bias_M, rtol=1e-6, atol=1e-6)


@every_head
def test_one_that_leaves_takes_its_sums_away_and_one_that_comes_later_adds_them(config: Config) -> None:
    run, others = Run(config), Run(config)
    run.round(0, 1, 2), others.round(0, 1)
    run.round(0, 1), others.round(0, 1)
    assert bytes_of(run.round(0, 1)) == bytes_of(others.round(0, 1))
    assert bytes_of(run.round(0, 1, 2, 3))[1] == bytes_of(stepped(run.uploads[::-1], config, 4))[1]


@every_head
def test_a_round_of_the_same_clients_changes_nothing_after_the_choice(config: Config) -> None:
    run = Run(config)
    run.round(0, 1, 2)
    second, scores = run.round(0, 1, 2), [to_bytes(group) for groups in run.uploads for group in groups.values()]
    kept = {number: METHOD.own_model(HEAD, state, config) for number, state in run.states.items()}
    third = run.round(0, 1, 2)
    assert bytes_of(second)[0] == bytes_of(third)[0]
    assert [to_bytes(group) for groups in run.uploads for group in groups.values()] == scores
    for number, state in run.states.items():
        own, before = METHOD.own_model(HEAD, state, config), kept[number]
        assert own is not None
        assert before is not None
        assert to_bytes(own) == to_bytes(before)


def test_a_client_sends_few_bytes() -> None:
    def size(head: str, num_classes: int) -> int:
        config = Config.model_validate({"head": head})
        return most_bytes(METHOD.uploads(config, num_classes, 1280), num_classes)

    assert size("means", 10) <= 64 * 1024
    assert size("lda", 7) == size("ridge", 7) <= 6.7e6


def test_classes_that_nobody_has_are_never_predicted() -> None:
    for config in HEADS:
        result = stepped([METHOD.before_training(a_client(0, counts=(4, 0, 5)), config)], config)
        assert result.head is not None
        assert result.head["bias"][1] == ABSENT


# -- The choice ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["lda", "ridge"])
@pytest.mark.parametrize("balanced", [False, True])
def test_the_second_round_takes_the_shrinkage_that_scores_best_in_all(head: str, balanced: bool) -> None:
    config = Config.model_validate({"head": head, "balanced": balanced})
    run = Run(config)
    first = run.round(0, 1, 2)
    assert not any(groups[SCORES]["scored"].any() for groups in run.uploads)
    assert first.arrays[GLOBAL_SUMS]["shrinkage"].tolist() == [np.float32(FIRST[config.head])]
    second = run.round(0, 1, 2)
    correct_SM = sum(groups[SCORES]["correct"].astype(np.float64) for groups in run.uploads)
    chosen = best_shrinkage(np.asarray(correct_SM), np.array([27.0, 15, 21]), config.head, is_balanced=balanced)
    assert second.arrays[GLOBAL_SUMS]["shrinkage"].tolist() == [np.float32(chosen)]
    given = Config.model_validate({"head": head, "balanced": balanced, "shrinkage": chosen})
    assert second.head is not None
    expected = present(stepped(uploaded(given, 0, 1, 2), given).head)
    assert to_bytes(second.head) == to_bytes(expected)


def test_folds_score_the_global_sums_without_themselves() -> None:
    """A client alone in a run: what is left of the global sums without a fold are its other folds."""
    config = Config(head="lda")
    run = Run(config)
    run.round(4)
    run.round(4)
    (groups,) = run.uploads
    features_ND, labels_N = samples(4)
    order_N = shuffled(len(labels_N), 4)
    order_N = order_N[np.argsort(labels_N[order_N], kind="stable")]
    expected_SM = np.zeros((len(GRIDS["lda"]), NUM_CLASSES))
    for number in range(classsums.FOLDS):
        out, rest = order_N[number :: classsums.FOLDS], np.setdiff1d(order_N, order_N[number :: classsums.FOLDS])
        sums = sums_of(features_ND[rest], labels_N[rest], NUM_CLASSES, has_moment=True)
        for row, shrinkage in enumerate(GRIDS["lda"]):
            head = linear_head(Classes.of(sums), "lda", shrinkage)
            found = (features_ND[out].astype(np.float64) @ head.weight_MD.T + head.bias_M).argmax(1)
            expected_SM[row] += np.bincount(labels_N[out][found == labels_N[out]], minlength=NUM_CLASSES)
    assert groups[SCORES]["correct"].tolist() == expected_SM.tolist()
    assert groups[SCORES]["scored"].tolist() == [9, 5, 7]


def test_a_client_that_is_not_among_the_global_sums_adds_itself_before_it_scores() -> None:
    config = Config(head="ridge")
    whole, without = Run(config), Run(config)
    whole.round(0, 1, 2), without.round(0, 1)
    scores = []
    for run in (whole, without):
        run.round(0, 1, 2)
        scores.append(run.uploads[2][SCORES]["correct"].tolist())
    assert scores[0] == scores[1]


def test_a_client_whose_images_are_others_than_those_that_it_sent_adds_them_too() -> None:
    """In a run whose data change the sums of the round before have the images of another stage."""
    config = Config(head="lda", shrinkage=0.2)
    run = Run(config)
    run.round(0, 1)
    same, other = a_client(0, run.arrays, run.states[0], 2), a_client(5, run.arrays, run.states[0], 2)
    without_state = a_client(5, run.arrays, None, 2)
    counts = []
    for before in (same, other, without_state):
        METHOD.kept_before(before, {}, config)
        counts.append(before.notes[CLIENT].whole.counts_M.tolist())
    assert counts == [[18, 10, 14], [27, 15, 21], [27, 15, 21]]


def test_best_is_the_row_with_the_most_or_the_most_even_hits_and_of_equal_ones_the_most_usual() -> None:
    correct_SM, total_M = np.array([[90.0, 0.0], [80.0, 5.0], [70.0, 10.0], [90.0, 0.0]]), np.array([100.0, 10.0])
    assert best_row(correct_SM, total_M, is_balanced=True, usual=0) == 2
    for usual, expected in ((0, 0), (1, 0), (2, 3), (3, 3)):
        assert best_row(correct_SM, total_M, is_balanced=False, usual=usual) == expected
    for head in ("lda", "ridge"):
        assert best_shrinkage(np.ones((8, 2)), total_M, head, is_balanced=False) == FIRST[head]


def test_a_choice_takes_two_rounds_and_a_share_is_at_most_one() -> None:
    assert (Config().fewest_rounds, Config(shrinkage=0.2).fewest_rounds, Config(head="means").fewest_rounds) == (
        2,
        1,
        1,
    )
    Config(head="ridge", shrinkage=2.0)
    for wrong in ({"shrinkage": 2.0}, {"shrinkage": 0.0}, {"shrinkage": "best"}, {"head": "ridge", "shrinkage": 1e4}):
        with pytest.raises(ValidationError):
            Config.model_validate(wrong)


# -- A client's own model -----------------------------------------------------------------------------------------------


@every_head
def test_a_client_has_a_model_of_its_own_from_the_second_round_on(config: Config) -> None:
    run, received = Run(config), {**HEAD, "base": np.ones(2, np.float32)}
    run.round(0, 1, 2)
    assert METHOD.own_model(received, run.states[0], config) is None
    run.round(0, 1, 2)
    own, alone = (hook(received, run.states[0], config) for hook in (METHOD.own_model, METHOD.alone_model))
    for found in (own, alone):
        assert found is not None
        assert found["base"] is received["base"]
        assert found.keys() == received.keys()
        assert found["weight"].any()
    assert run.states[0][SENT][0] == 2


@every_head
def test_the_model_of_a_clients_images_alone_knows_nothing_of_the_others(config: Config) -> None:
    alone = []
    for others in ((1, 2), (3, 4, 5)):
        run = Run(config)
        run.round(0, *others)
        run.round(0, *others)
        found = present(METHOD.alone_model(HEAD, run.states[0], config))
        alone.append(to_bytes(found))
    assert alone[0] == alone[1]
    if config.is_chosen:
        sums = sums_of(*samples(0), NUM_CLASSES, has_moment=True)
        heads = [linear_head(Classes.of(sums), config.head, each).weight_MD for each in GRIDS[config.head]]
        assert found is not None
        assert any(np.allclose(found["weight"], weight, rtol=1e-5, atol=1e-6) for weight in heads)


def test_a_client_unlike_the_others_mixes_more_of_its_own() -> None:
    """Its classes have one another's features: the others' sums are of no use to it."""
    config = Config(head="lda", shrinkage=0.2)
    run = Run(config)
    run.round(*range(6))
    odd = a_client(7, run.arrays, counts=(30, 30, 30))
    turned = BeforeTraining(
        features_ND=odd.features_ND, labels_N=(odd.labels_N + 1) % NUM_CLASSES, num_classes=NUM_CLASSES, head=HEAD,
        received=run.arrays, round=2,
    )  # fmt: skip
    own = METHOD.own_model(dict(run.round(*range(6)).head or {}), METHOD.kept_before(turned, {}, config), config)
    assert own is not None
    found_N = (turned.features_ND @ own["weight"].T + own["bias"]).argmax(1)
    assert (found_N == turned.labels_N).mean() > 0.8


def test_a_mix_is_either_head_at_the_ends_and_leaves_a_class_that_the_client_has_not_to_the_others() -> None:
    whole_NM, alone_NM = (
        np.array([[1.0, 2.0, 4.0], [3.0, 1.0, 0.0]]),
        np.array([[3.0, 0.0, ABSENT], [5.0, 0.0, ABSENT]]),
    )
    is_own_M = np.array([True, True, False])
    assert mixed(whole_NM, alone_NM, is_own_M, 0.0) is whole_NM
    assert mixed(whole_NM, alone_NM, is_own_M, 1.0).tolist() == [[3.0, 0.0, 4.0], [5.0, 0.0, 0.5]]
    assert mixed(whole_NM, alone_NM, is_own_M, 0.5).tolist() == [[2.0, 1.0, 4.0], [4.0, 0.5, 0.25]]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_clients_model_is_the_global_one_or_its_own_where_one_of_them_has_the_whole_share(share: float) -> None:
    config = Config(head="lda")
    run = Run(config)
    run.round(0, 1, 2)
    received = dict(run.round(0, 1, 2).head or {})
    state = {**run.states[0], SHARE: np.array([share], np.float32)}
    own, alone = METHOD.own_model(received, state, config), METHOD.alone_model(received, state, config)
    assert own is not None
    assert alone is not None
    for name in received:
        assert own[name].tobytes() == (alone if share else received)[name].tobytes()
        assert alone[name].tobytes() == state[ALONE + name].tobytes()


@given(counts=st.lists(st.integers(0, 4), min_size=3, max_size=3).filter(any))
@settings(max_examples=20, deadline=None)
@pytest.mark.parametrize("balanced", [False, True])
def test_clients_with_few_samples_score_and_keep_finite_heads(balanced: bool, counts: list[int]) -> None:
    for config in HEADS:
        config = config.model_copy(update={"balanced": balanced})
        arrays = stepped(uploaded(config, 0), config).arrays
        before = a_client(1, arrays, counts=counts)
        groups = METHOD.before_training(before, config)
        assert upload_fault(groups, counts, config) is None
        assert all(np.isfinite(array).all() for array in METHOD.kept_before(before, groups, config).values())


# -- Hostile clients ----------------------------------------------------------------------------------------------------


def changed(groups: Groups, group: str, name: str, place: Any, value: Any) -> Groups:
    array = np.array(groups[group][name])
    array[place] = value
    return {**groups, group: {**groups[group], name: array}}


@pytest.mark.parametrize("head", ["lda", "ridge"])
@pytest.mark.parametrize(
    ("group", "name", "place", "value", "said"),
    [
        (SUMS, "counts", 0, 10, "not the client's samples"),
        (SUMS, "counts", 0, -1, "not the client's samples"),
        (SUMS, "sums", (0, 0), 2**62, "too large"),
        (SUMS, "sums", (0, 0), -(2**63), "too large"),
        (SUMS, "moment", -1, 2**63 - 1, "too large"),
        (SUMS, "sums", (0, 0), 2**50, "scatter within classes is negative"),
        (SUMS, "moment", 0, -1, "scatter within classes is negative"),
        (SUMS, "moment", 1, 2**55, "scatter within classes is negative"),
        (SUMS, "moment", slice(None), 0, "scatter within classes is negative"),
        (SCORES, "correct", (2, 1), 6, "more correct samples"),
        (SCORES, "correct", (2, 1), -1, "more correct samples"),
        (SCORES, "scored", 1, 4, "not of all"),
        (SCORES, "scored", slice(None), 0, "more correct samples"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(
    head: str, group: str, name: str, place: Any, value: Any, said: str
) -> None:
    config = Config.model_validate({"head": head})
    run = Run(config)
    run.round(0, 1)
    run.round(0, 1)
    assert upload_fault(run.uploads[0], [9, 5, 7], config) is None
    fault = present(upload_fault(changed(run.uploads[0], group, name, place, value), [9, 5, 7], config))
    assert said in fault


def test_sums_of_a_class_without_samples_are_refused() -> None:
    for config in HEADS:
        groups = classsums.METHOD.before_training(a_client(0, counts=(4, 0, 5)), config)
        assert classsums.upload_fault(groups, [4, 0, 5], config) is None
        fault = present(classsums.upload_fault(changed(groups, classsums.SUMS, "sums", (1, 0), 1), [4, 0, 5], config))
        assert "no samples of" in fault


def test_means_that_are_too_large_are_refused() -> None:
    groups = changed(uploaded(HEADS[0], 0)[0], classsums.SUMS, "sums", (0, 0), np.float32(2**30))
    assert "too large" in (classsums.upload_fault(groups, [9, 5, 7], HEADS[0]) or "")


def test_features_that_are_too_large_for_exact_sums_are_refused_with_the_remedy() -> None:
    for config in HEADS:
        before = a_client(0)
        large = BeforeTraining(
            features_ND=before.features_ND * np.float32(1e30), labels_N=before.labels_N, num_classes=3, head=HEAD,
            received={},
        )  # fmt: skip
        fault = present(upload_fault(METHOD.before_training(large, config), [9, 5, 7], config))
        assert "normalise" in fault


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_no_sums_that_pass_break_the_step(data: st.DataObject) -> None:
    """Bits of one client's sums turned at random: what is not refused makes a finite head."""
    config = data.draw(st.sampled_from(HEADS))
    groups = uploaded(config, 0)[0]
    name = data.draw(st.sampled_from(sorted(groups[SUMS].keys() - {"counts"})))
    flat = np.array(groups[SUMS][name]).ravel()
    place = data.draw(st.integers(0, len(flat) - 1))
    scale = data.draw(st.integers(-40, 61))
    flat[place] = min(2.0**scale, 2.0**29) if flat.dtype == np.float32 else 2 ** max(scale, 0)
    turned = {**groups, SUMS: {**groups[SUMS], name: flat.reshape(groups[SUMS][name].shape)}}
    if upload_fault(turned, [9, 5, 7], config) is None:
        result = stepped([turned, *uploaded(config, 1)], config)
        assert result.head is not None
        assert all(np.isfinite(array).all() for array in result.head.values())


def test_a_groups_samples_are_in_one_fold_and_groups_of_one_change_nothing() -> None:
    """A patient in two folds is recognised, and the shrinkage and the client's own share are chosen by that."""
    config = Config(head="lda", shrinkage=0.2)
    run = Run(config)
    run.round(3)

    def folds(*groups: str) -> list[list[int]]:
        before = replace(a_client(3, run.arrays, run.states[3], 2), groups=groups)
        METHOD.kept_before(before, {}, config)
        return [fold_F.tolist() for fold_F in before.notes[CLIENT].folds]

    patients = [f"patient {number}" for number in (0, 0, 0, 1, 1, 2, 3, 4, 5, 5, 6, 7, 0, 8, 9, 10, 11, 12, 13, 14, 1)]
    found = folds(*patients)
    assert sorted(i for fold in found for i in fold) == list(range(21))
    assert sum(len({patients[i] for i in fold}) for fold in found) == len(set(patients))
    assert folds(*map(str, range(21))) == folds()
