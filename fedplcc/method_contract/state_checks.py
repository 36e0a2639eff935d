"""Checks of what a method's clients keep, and of the models that they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedplcc.method_contract.checks import Checks
from fedplcc.method_contract.mid_run import PERSONAL, STAGES, Model, a_model, in_second_stage, kept, stage_memory
from fedplcc.method_contract.settings import Setting
from fedplcc.shared.methods.parts.own_model import OwnModel
from fedplcc.shared.tensors import from_bytes, to_bytes

check = Checks()


def _digest(found: Mapping[str, Any] | None) -> Any:
    """What a hook gives, comparable."""
    if found is None:
        return None
    return {name: _digest(value) if isinstance(value, Mapping) else value.tobytes() for name, value in found.items()}


def assert_is_a_model(arrays: Mapping[str, Any], like: Model) -> None:
    assert arrays.keys() == like.keys()
    for name, array in like.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)


@check(lambda setting: setting.method.keeps_client_state and bool(kept(setting)))
def what_a_client_keeps_can_rest_on_its_disk(setting: Setting) -> None:
    state = kept(setting)
    again = from_bytes(to_bytes(state))
    assert again.keys() == state.keys()
    assert all(np.array_equal(again[name], state[name]) for name in state)


@check(lambda setting: setting.method.keeps_client_state and bool(kept(setting)))
def the_same_end_gives_the_same_bytes_and_leaves_its_arguments_alone(setting: Setting) -> None:
    state = kept(setting, seed=7)
    before = to_bytes(state)
    first, second = (to_bytes(kept(setting, state)) for _ in range(2))
    assert first == second != before
    assert to_bytes(state) == before


@check(lambda setting: setting.method.keeps_client_state and bool(kept(setting)))
def what_a_client_keeps_is_of_use(setting: Setting) -> None:
    """It gives another loss, another start or another model to evaluate; nothing is kept in vain."""
    method, config, received = setting.method, setting.config, a_model(0)
    first, second = (in_second_stage(setting, kept(setting, seed=seed), config, seed=seed) for seed in (7, 8))
    hooks = (method.reference_models, method.start_of, method.own_model)
    differs = [_digest(hook(received, first, config)) != _digest(hook(received, second, config)) for hook in hooks]
    wanted = [_digest(method.loss_arrays(state, {}, config)) for state in (first, second)]
    differs.append(wanted[0] != wanted[1])
    assert any(differs)


@check(lambda setting: stage_memory(setting) is not None)
def a_stage_s_state_is_made_once_can_rest_on_a_disk_and_leaves_the_one_before_alone(setting: Setting) -> None:
    memory, config, state = stage_memory(setting), setting.config, kept(setting, seed=7)
    assert memory is not None
    before = to_bytes(state) if state else b""
    first, second = (in_second_stage(setting, state, config, seed=7) for _ in range(2))
    assert _digest(first) == _digest(second) == _digest(from_bytes(to_bytes(first)) if first else {})
    assert (to_bytes(state) if state else b"") == before
    assert not memory.begins(first, STAGES[1], config)


@check(lambda setting: setting.method.keeps_client_state)
def at_first_a_client_has_nothing_of_its_own(setting: Setting) -> None:
    method, config, received = setting.method, setting.config, a_model(0)
    for hook in (method.start_of, method.own_model, method.alone_model):
        assert hook(received, None, config) is None


@check(lambda setting: setting.method.keeps_client_state)
def every_model_that_it_names_is_one_of_the_run(setting: Setting) -> None:
    method, config, received = setting.method, setting.config, a_model(0)
    for state in (None, kept(setting, seed=7) or None):
        for arrays in method.reference_models(received, state, config).values():
            assert_is_a_model(arrays, received)
        for hook in (method.start_of, method.own_model):
            if (own := hook(received, state, config)) is not None:
                assert_is_a_model(own, received)


@check()
def a_report_is_of_the_global_model_or_of_a_client_s_own(setting: Setting) -> None:
    evaluated = setting.method.evaluated_models(setting.config)
    assert evaluated in (("global",), ("global", "local"), ("local",), ("global", "local", "alone"))
    assert "local" not in evaluated or setting.method.has("local_model")


@check(lambda setting: setting.personal_part != "none")
def a_client_puts_its_own_tensors_into_whatever_it_receives(setting: Setting) -> None:
    method, config = setting.method, setting.config
    received, state, names = a_model(0), kept(setting, seed=7), PERSONAL[setting.personal_part]
    for found in (method.start_of(received, state, config), method.own_model(received, state, config)):
        assert found is not None
        assert all(found[name].tobytes() == a_model(8)[name].tobytes() for name in names)
        others = received.keys() - set(names)
        has_model = method.part(OwnModel) is not None
        assert has_model or all(found[name].tobytes() == received[name].tobytes() for name in others)


@check(lambda setting: not setting.method.has_global_model(setting.config))
def who_does_not_share_the_trained_model_keeps_it_and_goes_on_from_it(setting: Setting) -> None:
    method, config = setting.method, setting.config
    state = kept(setting, seed=7)
    for hook in (method.start_of, method.own_model):
        assert _digest(hook(a_model(0), state, config)) == _digest(a_model(8))
