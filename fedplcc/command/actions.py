"""Commands of one noun with several actions, as `fedplcc key create`: what each action needs and takes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

import typer

from fedplcc.command.shared_options import typed_parameters
from fedplcc.shared.errors import InvalidConfig


class Words(NamedTuple):
    """Parameters of an action; those of its command that it does not name are not its own."""

    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


Action = TypeVar("Action", bound=StrEnum)


def check_words(context: typer.Context, action: Action, of: Mapping[Action, Words]) -> None:
    """Refuse a command line that lacks what its action needs, or has what the action has no use for.

    Raises:
        InvalidConfig: It says what is missing, or which action takes what is too much.
    """
    own = {each.name: each for each in context.command.params if each.name not in (None, "action")}
    typed = {name: _shown(each) for name, each in own.items() if _is_typed(context, name)} | typed_parameters()
    for name in of[action].needs:
        if name not in typed:
            raise InvalidConfig(f"{action} needs {_shown(own[name])}: see 'fedplcc {context.info_name} --help'")
    for name, shown in typed.items():
        takers = [each.value for each, words in of.items() if name in (*words.needs, *words.takes)]
        if action.value not in takers:
            raise InvalidConfig(f"{shown} is for {' and '.join(takers)}: leave it out")


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _shown(parameter: Any) -> str:
    """Return a parameter as its help shows it."""
    return str(parameter.opts[0] if parameter.param_type_name == "option" else (parameter.metavar or parameter.name))
