"""Settings of a process, read once at its start: defaults < file < environment < flags."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource

from fedplcc.shared.config.sections import explain, problems_of, read_document, unknown
from fedplcc.shared.config.settings.processes import (
    HIDDEN,
    AggregatorSettings,
    GatewaySettings,
    Settings,
    TrainerSettings,
)
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.process.resources import hold_streams

EXIT_CONFIG = 2
"""Exit code of a process whose settings are wrong."""

_Kind = TypeVar("_Kind", bound="Settings")


def load(
    kind: type[_Kind],
    flags: Mapping[str, Any] | None = None,
    file: Path | None = None,
    first: Callable[[Mapping[str, Any]], None] = lambda _values: None,
) -> _Kind:
    """Read a process's settings.

    Args:
        kind: Settings class of the process.
        flags: Values from the command line by field; None or an empty list means not given.
        file: TOML file with a table for the process.
        first: Called with the values that were given, before they are completed and validated.

    Raises:
        InvalidConfig: With every problem: field, value and range.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None and value not in ([], ())}
    from_file = {} if file is None else _table(file, kind.table)
    strange = sorted(from_file.keys() - kind.model_fields.keys())
    if strange:
        raise InvalidConfig(f"{file}: {unknown('key', strange[0], kind.model_fields, f'{kind.table}.')}")
    values = {**from_file, **EnvSettingsSource(kind)(), **given}
    first(values)
    try:
        return kind(**kind.completed(values))
    except ValidationError as error:
        raise InvalidConfig("; ".join(_sentence(kind, problem) for problem in problems_of(error))) from None


def _sentence(kind: type[Settings], problem: ErrorDetails) -> str:
    """Return the sentence for a problem; for a missing setting, with the ways to give it."""
    if problem["loc"][:1] == ("database_url",):
        return explain({**problem, "input": ()})  # it holds a password
    if problem["type"] != "missing":
        return explain(problem)
    name = str(problem["loc"][0])
    variable = f"{Settings.model_config['env_prefix']}{name.upper()}"
    ways = [f"give --{name.replace('_', '-')} or set {variable}", *filter(None, [kind.otherwise.get(name)])]
    return f"{explain(problem)}; {', '.join(ways)}"


def from_command_line(
    kind: type[_Kind],
    program: str,
    description: str,
    arguments: Sequence[str] | None = None,
    first: Callable[[Mapping[str, Any]], None] = lambda _values: None,
) -> _Kind:
    """Read a process's settings with a flag for every field, for `python -m ...`; `--config` names a file.

    Raises:
        InvalidConfig: A value is wrong.
        SystemExit: For `--help`, or with code 2 for a flag that does not exist.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--config", type=Path, help=f"TOML file with a table [{kind.table}]")
    for name, field in kind.model_fields.items():
        flag = "--" + name.replace("_", "-")
        has_default = not field.is_required() and field.default is not None and field.default is not False
        text = (field.description or "") + (f" Default: {field.default}." if has_default else "")
        if field.annotation is bool and field.default:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
        elif field.annotation is bool:
            parser.add_argument(flag, action="store_const", const=True, help=text)
        elif is_list(field.annotation):
            parser.add_argument(flag, action="append", help=field.description, metavar=name.upper())
        else:
            shown = argparse.SUPPRESS if is_hidden(field) else text
            parser.add_argument(flag, help=shown, metavar=name.upper())
    flags = vars(parser.parse_args(arguments))
    file = flags.pop("config")
    return load(kind, flags, file, first)


def is_hidden(field: FieldInfo) -> bool:
    """Whether a setting is in no help and no table."""
    return field.json_schema_extra == HIDDEN


def is_list(annotation: object) -> bool:
    """Whether a setting has several values, so that its flag may be repeated."""
    return get_origin(annotation) is tuple


def run_from_command_line(
    kind: type[_Kind],
    run: Callable[[_Kind], int],
    program: str,
    description: str,
    arguments: Sequence[str] | None = None,
    first: Callable[[Mapping[str, Any]], None] = lambda _values: None,
) -> int:
    """Run a process with the settings of its command line; returns its exit code, or 2 after a sentence on stderr."""
    hold_streams()
    try:
        settings = from_command_line(kind, program, description, arguments, first)
    except InvalidConfig as error:
        print(f"{program}: {error.detail}", file=sys.stderr)
        return EXIT_CONFIG
    return run(settings)


def _table(file: Path, name: str) -> dict[str, Any]:
    document = read_document(file)
    tables = [kind.table for kind in (AggregatorSettings, GatewaySettings, TrainerSettings)]
    for strange in sorted(document.keys() - {*tables}):
        if not isinstance(document[strange], dict):
            raise InvalidConfig(f"{file}: {strange!r} stands in no table; write it below [{name}]")
        if strange == "run":
            raise InvalidConfig(f"{file} is the configuration of a run, for `fedplcc run start --config`")
        raise InvalidConfig(f"{file}: {unknown('table', strange, tables)}")
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise InvalidConfig(f"{file}: {name} is not a table")
    return table
