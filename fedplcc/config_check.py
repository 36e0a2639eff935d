"""Everything that is wrong with a configuration file, in one go. Pure but for the model that a run may begin with.

What decides whether a configuration is right is `shared.run_config.parse_federation`; it stops at the first unknown key.
Here every section is looked at for itself first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from fedplcc.configuration import local_clients
from fedplcc.initial_model import with_model_file
from shared.errors import InvalidConfig
from shared.methods import METHODS
from shared.run_config import ClientSection, FederationFile, RunConfig, parse_federation
from shared.sections import explain, unknown


@dataclass(frozen=True, slots=True)
class Verdict:
    """A configuration, or what is wrong with it: one sentence for each problem."""

    federation: FederationFile | None
    problems: tuple[str, ...] = ()


def judge(document: Mapping[str, Any]) -> Verdict:
    """Check the tables of a configuration file, and the model file that it may name."""
    problems = list(dict.fromkeys(_problems(document)))
    if problems:
        return Verdict(None, tuple(problems))
    try:
        federation = with_model_file(parse_federation(document))
        if federation.clients:
            local_clients(federation)
    except InvalidConfig as error:
        return Verdict(None, (error.detail,))
    return Verdict(federation)


def _problems(document: Mapping[str, Any]) -> Iterator[str]:
    known = {*RunConfig.model_fields, "clients", "partition"}
    for section in document:
        if section not in known:
            yield unknown("section", str(section), known)
    run = document.get("run", {})
    tables = document.get("clients", {})
    if isinstance(run, Mapping) and not {"clients", "min_clients"} & run.keys() and (tables or "partition" in document):
        run = {**run, "min_clients": 1}  # the tables make the roster; what is wrong with them is said below
    yield from problems_of_table("run", run, RunConfig.model_fields["run"].annotation)
    method = run.get("method") if isinstance(run, Mapping) else None
    if isinstance(method, str) and method in METHODS:
        yield from problems_of_table("method", document.get("method", {}), METHODS[method].config)
    for section, field in RunConfig.model_fields.items():
        if section not in {"run", "method"}:
            yield from problems_of_table(section, document.get(section, {}), field.annotation)
    if isinstance(tables, Mapping):
        for client, table in tables.items():
            yield from problems_of_table(f"clients.{client}", table, ClientSection)


def problems_of_table(name: str, table: Any, kind: Any) -> Iterator[str]:
    """What is wrong with a table of this kind of `Section`: unknown keys, then values; the name stands before each key."""
    if not isinstance(table, Mapping):
        yield f"{name} is a table of keys; write [{name}]"
        return
    fields = kind.model_fields
    for key in table:
        if key not in fields:
            yield unknown("key", str(key), fields, f"{name}.")
    yield from _of_values(name, {key: value for key, value in table.items() if key in fields}, kind)


def _of_values(name: str, values: Mapping[str, Any], kind: type[BaseModel]) -> Iterator[str]:
    try:
        kind.model_validate(values)
    except ValidationError as error:
        yield from (explain(problem, f"{name}.") for problem in error.errors())
    except InvalidConfig as error:
        yield error.detail
