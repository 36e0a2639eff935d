"""All problems of a run's configuration, each with its place. Pure.

`fedplcc.shared.config.run.parse_run_config` decides whether a configuration is valid, for aggregator, command and gateway
alike. It stops at the first unknown key; this module checks every section separately first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pydantic import BaseModel, ValidationError

from fedplcc.shared.config.run import RunConfig, key_places, parse_run_config
from fedplcc.shared.config.sections import (
    NOWHERE,
    InvalidKey,
    Places,
    explain,
    has_any_key,
    key_of,
    problems_of,
    shortened,
    unknown,
)
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods import METHODS

MAX_PROBLEMS = 100
"""Most problems that are listed; the last one then says that there are more."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """Problem of a configuration."""

    location: str
    """Key ("training.batch_size", "data.classes.3") or section; empty for the whole configuration."""
    detail: str
    """Sentence that names the key and the problem."""


def run_problems(document: Mapping[str, Any]) -> list[ConfigProblem]:
    """Return the first problems of a run's configuration; none exactly if `parse_run_config` accepts it."""
    found = list(dict.fromkeys(islice(section_problems(document), MAX_PROBLEMS + 1)))
    if len(found) > MAX_PROBLEMS:
        return [
            *found[:MAX_PROBLEMS],
            ConfigProblem("", f"these are the first {MAX_PROBLEMS} problems; there are more"),
        ]
    if found:
        return found
    try:
        parse_run_config(document)
    except InvalidConfig as error:
        if isinstance(error.__cause__, ValidationError):
            return list(_of_error(error.__cause__, ""))
        return [ConfigProblem("", error.detail)]
    return []


def section_problems(document: Mapping[str, Any], *, also_known: Iterable[str] = ()) -> Iterator[ConfigProblem]:
    """Yield the problems of each section, in their order; sections in `also_known` are not checked."""
    known = {*RunConfig.model_fields, *also_known}
    for section in document:
        if section not in known:
            yield ConfigProblem(shortened(str(section)), unknown("section", str(section), known))
    run = document.get("run", {})
    method = run.get("method") if isinstance(run, Mapping) else None
    for section, field in RunConfig.model_fields.items():
        table = document.get(section, {})
        if section != "method":
            yield from table_problems(section, table, field.annotation, key_places())
        elif isinstance(method, str) and method in METHODS:
            yield from table_problems(section, table, METHODS[method].config, key_places())


def table_problems(name: str, table: Any, kind: Any, places: Places = NOWHERE) -> Iterator[ConfigProblem]:
    """Yield the problems of a table of this `Section` class: unknown keys, then values.

    Args:
        name: Prefixes each key.
        places: Where keys of the whole document stand.
    """
    if not isinstance(table, Mapping):
        yield ConfigProblem(name, f"{name} is a table of keys; write [{name}]")
        return
    fields = kind.model_fields
    known = {key: value for key, value in table.items() if key in fields or has_any_key(kind)}
    for key in table:
        if key not in known:
            yield ConfigProblem(shortened(f"{name}.{key}"), unknown("key", str(key), fields, f"{name}.", places))
    yield from _of_values(name, known, kind)


def _of_values(name: str, values: Mapping[str, Any], kind: type[BaseModel]) -> Iterator[ConfigProblem]:
    try:
        kind.model_validate(values)
    except ValidationError as error:
        yield from _of_error(error, f"{name}.")
    except InvalidConfig as error:
        yield ConfigProblem(name, error.detail)


def _of_error(error: ValidationError, prefix: str) -> Iterator[ConfigProblem]:
    for problem in problems_of(error):
        cause = problem.get("ctx", {}).get("error")
        key = (cause.key,) if isinstance(cause, InvalidKey) else ()
        yield ConfigProblem(key_of((*problem["loc"], *key), prefix), explain(problem, prefix))
