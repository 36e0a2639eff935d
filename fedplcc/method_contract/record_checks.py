"""Checks of a method's record, its docstrings and its hyper-parameters."""

from __future__ import annotations

import inspect
from typing import get_args

from pydantic import ValidationError

from fedplcc.method_contract.checks import Checks, module_text, require
from fedplcc.method_contract.settings import Setting
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.parts.part import Part
from fedplcc.shared.methods.parts.personal import Personal
from fedplcc.shared.methods.parts.phases import Trains

check = Checks()


@check()
def it_cites_its_paper(setting: Setting) -> None:
    require("https://" in setting.method.paper, "METHOD.paper has no link (https://...) to the paper")
    require("https://" in module_text(setting), "the module's docstring has no link (https://...) to the paper")


@check()
def the_module_begins_with_its_name_and_a_sentence(setting: Setting) -> None:
    first = module_text(setting).partition("\n\n")[0]
    require(": " in first, "the module's docstring must begin with 'NAME: SENTENCE'; forms show both")


@check()
def it_can_be_fedavg_or_says_why_it_cannot(setting: Setting) -> None:
    said = module_text(setting).partition("\n")[2]
    require(
        setting.method.neutral is not None or "FedAvg" in said,
        "METHOD.neutral is not set, and the module's docstring does not say why the method cannot be FedAvg",
    )


@check()
def it_has_at_most_one_part_of_each_kind(setting: Setting) -> None:
    kinds = [type(part) for part in setting.method.parts]
    require(all(issubclass(kind, Part) for kind in kinds), "parts has something that is no Part")
    require(len(set(kinds)) == len(kinds), "parts has two of one kind")


@check()
def no_two_parts_have_something_of_the_same_name(setting: Setting) -> None:
    parts, config = setting.method.parts, setting.config
    kept = [name for part in parts for name in part.server_arrays(config, 3, 4)]
    sent = [name for part in parts for name in part.uploads(config, 3, 4)]
    for names in (kept, sent):
        require(len(set(names)) == len(names), f"two parts have a group of the same name: {sorted(names)}")


@check()
def what_is_stretched_over_all_rounds_has_a_key_that_is_not_set(setting: Setting) -> None:
    key = setting.config.length_key
    require(
        key is None or getattr(setting.config, key, 0) is None,
        f"length_key names {key!r}, which is no hyper-parameter that is not set",
    )


@check()
def what_needs_a_clients_state_comes_with_a_state(setting: Setting) -> None:
    method = setting.method
    require(
        method.keeps_client_state or not method.has("local_model"),
        "a model of its own is one that a client has kept: a part needs next_state",
    )


@check()
def what_clients_keep_for_themselves_is_a_part_that_the_server_can_leave_out(setting: Setting) -> None:
    method, config = setting.method, setting.config
    require(setting.personal_part in get_args(Personal), f"personal must be one of {get_args(Personal)}")
    require(
        method.withheld_part(config) == "none" or method.shares_model(config),
        "uploads_personal says what updates have of the model, and they have no model",
    )
    require(
        method.withheld_part(config) == "none" or not method.keeps_server_state(config),
        "a server that keeps something folds whole models: uploads_personal must hold",
    )


@check()
def its_phases_train_parts_of_the_model_for_some_time(setting: Setting) -> None:
    phases = setting.method.phases(setting.config)
    is_made = setting.method.has_global_model(setting.config) and not setting.method.shares_model(setting.config)
    require(phases or is_made, "there is no phase, so nothing would be trained, and the server makes no model")
    for phase in phases:
        require(phase.trains in get_args(Trains), f"a phase trains one of {get_args(Trains)}")
        require(phase.epochs is None or phase.epochs >= 1, "a phase takes at least one pass")


@check()
def its_configuration_survives_json(setting: Setting) -> None:
    again = setting.method.config.model_validate_json(setting.config.model_dump_json())
    require(again == setting.config, "hyper-parameters that are written as JSON and read again are others")


@check()
def its_configuration_is_frozen_and_knows_its_keys(setting: Setting) -> None:
    kind = setting.method.config
    require(issubclass(kind, MethodConfig), "config must be a class derived from MethodConfig")
    try:
        kind().averaging = "equal"  # type: ignore[misc]  # mypy knows it as well
    except ValidationError:
        pass
    else:
        raise AssertionError("a configuration that was made can be changed: leave model_config as MethodConfig has it")
    try:
        kind.model_validate({"no_such_key": 1})
    except ValidationError:
        return
    raise AssertionError("an unknown key is accepted: leave model_config as MethodConfig has it")


@check()
def every_hyper_parameter_is_documented(setting: Setting) -> None:
    kinds = [kind for kind in setting.method.config.__mro__ if issubclass(kind, MethodConfig)]
    lines = "\n".join(map(inspect.getsource, kinds)).splitlines()
    for name in setting.method.config.model_fields:
        numbers = [number for number, text in enumerate(lines) if text.startswith(f"    {name}: ")]
        require(numbers, f"{name} is not declared as a line 'name: type = default'")
        below = lines[numbers[0] + 1] if numbers[0] + 1 < len(lines) else ""
        require(below.startswith('    """'), f"hyper-parameter {name} has no docstring on the line below it")
