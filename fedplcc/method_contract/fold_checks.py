"""Checks of a method's fold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedplcc.method_contract.checks import Checks, require
from fedplcc.method_contract.settings import Setting
from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arrays import Block
from fedplcc.shared.methods.config import fold_weights
from fedplcc.shared.methods.parts.slots import RESERVED, SLOT_NAME, FoldedBlock, ServerSlots, ServerView

check = Checks()

VIEW = ServerView(round=3, num_eligible=5)


def has_slots(setting: Setting) -> bool:
    """Whether the method keeps slots under this setting."""
    return bool(setting.method.server_slots(setting.config))


def slot_folded(
    setting: Setting, start: Block, blocks: Sequence[Block], counts: Sequence[int], slots: Mapping[str, Block]
) -> FoldedBlock:
    """Fold blocks with slots."""
    part = setting.method.part(ServerSlots)
    assert part is not None
    weights = fold_weights(counts, setting.config)
    return part.fold(start, iter(blocks), weights, slots, VIEW, setting.config)


def first_slots(setting: Setting, size: int) -> dict[str, Block]:
    """The slots before a run's first round."""
    return {
        name: np.full(size, value, np.float32) for name, value in setting.method.server_slots(setting.config).items()
    }


def blocks_of(folded: FoldedBlock) -> dict[str, Block]:
    """Everything that a slot fold made, by name."""
    start = {} if folded.start is None else {"start": folded.start}
    return {"result": folded.result, **start, **folded.slots}


@check()
def any_cut_of_the_model_gives_the_same_bytes(setting: Setting) -> None:
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


@check(has_slots)
def slots_have_names_of_their_own_and_finite_first_values(setting: Setting) -> None:
    slots = setting.method.server_slots(setting.config)
    for name, value in slots.items():
        require(SLOT_NAME.fullmatch(name), f"slot {name!r}: a name has letters, digits and _, at most 32 of them")
        require(name not in RESERVED, f"slot {name!r}: the round's results have that name")
        require(np.isfinite(np.float32(value)), f"slot {name!r}: its first value is no finite float32")


@check(has_slots)
def a_slot_fold_makes_float32_of_every_slot_and_keeps_its_arguments(setting: Setting) -> None:
    rng = np.random.default_rng(4)
    start, *blocks = rng.normal(size=(3, 20)).astype(np.float32)
    slots = first_slots(setting, 20)
    arguments = [start, *blocks, *slots.values()]
    before = [block.tobytes() for block in arguments]
    folded = slot_folded(setting, start, blocks, [2, 5], slots)
    require(folded.slots.keys() == slots.keys(), f"it gives the slots {sorted(folded.slots)}, not {sorted(slots)}")
    part = setting.method.part(ServerSlots)
    assert part is not None
    has_start = part.has_start(setting.config)
    require((folded.start is not None) == has_start, "a start block is given where has_start says so, and only there")
    for name, block in blocks_of(folded).items():
        require(block.dtype == np.float32 and block.shape == (20,), f"{name} is no float32 block of the same length")
    require([block.tobytes() for block in arguments] == before, "it changes what it is given")


@check(has_slots)
def any_cut_of_the_model_gives_the_same_bytes_of_model_and_slots(setting: Setting) -> None:
    rng = np.random.default_rng(5)
    start, *blocks = rng.normal(size=(5, 101)).astype(np.float32)
    counts = [30, 1, 700, 12]
    slots = slot_folded(setting, start, blocks, counts, first_slots(setting, 101)).slots
    whole = blocks_of(slot_folded(setting, start, blocks, counts, slots))
    for cut in (1, 7, 100):
        pieces = [
            blocks_of(
                slot_folded(
                    setting,
                    start[part : part + cut],
                    [block[part : part + cut] for block in blocks],
                    counts,
                    {name: block[part : part + cut] for name, block in slots.items()},
                )
            )
            for part in range(0, 101, cut)
        ]
        for name, block in whole.items():
            assert np.concatenate([piece[name] for piece in pieces]).tobytes() == block.tobytes(), name


@check(has_slots)
def a_slot_fold_stays_finite_whatever_clients_send(setting: Setting) -> None:
    largest = np.finfo(np.float32).max
    values = np.array([0, 1e-45, 1, -1, largest, -largest], np.float32)
    start, first, second = (array.ravel() for array in np.meshgrid(values, values, values))
    slots = first_slots(setting, len(start))
    for _round in range(3):
        folded = slot_folded(setting, start, [first, second], [1, 2**29], slots)
        for name, block in blocks_of(folded).items():
            require(np.isfinite(block).all(), f"{name} is not finite, though every client's numbers are")
        start, slots = folded.result if folded.start is None else folded.start, dict(folded.slots)


@check(lambda setting: setting.method.neutral is not None)
def the_neutral_setting_keeps_no_slots(setting: Setting) -> None:
    slots = setting.method.server_slots(setting.neutral)
    require(not slots, f"under the neutral setting it keeps the slots {sorted(slots)}")


@check(lambda setting: setting.method.neutral is not None)
def one_client_under_the_neutral_setting_is_central_training(setting: Setting) -> None:
    state, trained = np.random.default_rng(2).normal(size=(2, 50)).astype(np.float32)
    config = setting.method.config.model_validate(setting.method.neutral)
    folded = setting.method.fold(lambda: state, iter([trained]), fold_weights([123], config), config)
    assert folded.tobytes() == trained.tobytes()


@check(lambda setting: setting.method.neutral is not None)
def the_neutral_setting_folds_like_fedavg(setting: Setting) -> None:
    rng = np.random.default_rng(3)
    state, *blocks = rng.normal(size=(4, 50)).astype(np.float32)
    for averaging, shares in (("weighted", [5, 6, 7]), ("equal", None)):
        config = setting.method.config.model_validate({**(setting.method.neutral or {}), "averaging": averaging})
        weights = fold_weights([5, 6, 7], config)
        expected = np.average(np.asarray(blocks, dtype=np.float64), axis=0, weights=shares)
        folded = setting.method.fold(lambda: state, iter(blocks), weights, config)
        assert folded.tobytes() == fedavg.fold(lambda: state, iter(blocks), weights, fedavg.Config()).tobytes()
        np.testing.assert_allclose(folded, expected, rtol=1e-6, atol=1e-7)


@check()
def types_stay_and_arguments_keep_their_values(setting: Setting) -> None:
    for dtype in (np.int64, np.float32):
        state = np.zeros(2, dtype)
        blocks = [np.array([3, 10], dtype), np.array([4, 9], dtype)]
        weights = fold_weights([1, 1], setting.config)
        folded = setting.method.fold(lambda state=state: state, iter(blocks), weights, setting.config)  # type: ignore[misc]
        assert (folded.dtype, folded.shape) == (np.dtype(dtype), (2,))
        assert [block.tolist() for block in (state, *blocks)] == [[0, 0], [3, 10], [4, 9]]
