"""Configurations as Python gives them: a file, a mapping or a checked record, with other clients and settings in it."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from fedplcc.comparison.file import assignments
from fedplcc.comparison.sweep.section import flat
from fedplcc.python_api.class_names import are_numbers
from fedplcc.python_api.client import STORED, Client
from fedplcc.runs.configuration import Overrides, demo_file, local_clients, override, require_validation
from fedplcc.runs.initial_model import anchored, doubts, require_file, with_model_file
from fedplcc.runs.readiness import idle_settings
from fedplcc.runs.run_folder import RUNS
from fedplcc.shared.config.recipes import RECIPES, recipe_for, with_recipe
from fedplcc.shared.config.run import FederationFile, RunConfig, parse_federation, read_document
from fedplcc.shared.errors import InvalidConfig, InvalidData
from fedplcc.terminal.class_sentences import class_sentences
from fedplcc.trainer.data.loading import describe
from fedplcc.trainer.data.names import listed
from fedplcc.trainer.data.survey import smallest_of

ConfigSource: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | RunConfig | FederationFile"
"""A run's configuration: the name of a recipe ("photos"), a TOML file, its tables as a mapping, or a checked record."""


def federation_of(
    config: ConfigSource | None,
    clients: Mapping[str, Client] | None,
    settings: Mapping[str, Any] | None,
    out: Path | None,
) -> FederationFile:
    """Return the checked configuration with its clients.

    Args:
        config: The configuration; if None the recipe for the clients' images, without clients the digits of four domains, as
            in `fedplcc demo`.
        clients: Clients by name, instead of the configuration's own and of its `run.clients`.
        settings: Keys to change, dotted or as nested tables. `run.method` drops the former method's hyper-parameters.
        out: Folder of the run; images from Python are written beside it.

    Raises:
        InvalidConfig: Something in them is wrong, with a sentence for every problem.
        InvalidData: A client's images from Python have another form.
    """
    folder = (RUNS if out is None else out.parent) / STORED
    if clients is not None and not (isinstance(clients, Mapping) and clients):
        raise InvalidConfig("clients= names at least one fedplcc.Client: clients={name: fedplcc.Client(...)}")
    if config is None and clients is not None:
        specs = [_client(name, client).table((), folder)["data"] for name, client in clients.items()]
        smallest = smallest_of(specs)
        config = recipe_for(None if smallest is None else min(smallest))
    changes = flat(settings or {})
    document = _changed(_document(config, changes.get("run.method")), changes)
    run, data = document.get("run"), document.get("data")
    classes = data.get("classes", ()) if isinstance(data, Mapping) else ()
    if isinstance(classes, set | frozenset):
        raise InvalidConfig("data.classes is a set, which has no order; give a list")
    if clients is not None:
        document.pop("partition", None)
        document["clients"] = {name: _client(name, client).table(classes, folder) for name, client in clients.items()}
        if isinstance(run, Mapping) and "run.clients" not in changes:
            document["run"] = {key: value for key, value in run.items() if key != "clients"}
    if isinstance(config, str) and config in RECIPES:
        document = _with_roster(document)
    federation = with_model_file(parse_federation(anchored(document, Path.cwd())))
    local_clients(federation)
    require_validation(federation)
    require_file(federation)
    for doubt in (*doubts(federation), *idle_settings([federation])):
        warnings.warn(doubt, stacklevel=3)
    return federation


def _with_roster(document: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe's document with the names of its clients, and of the classes that their data have."""
    tables = document.get("clients")
    if not tables:
        raise InvalidConfig("a recipe has no clients of its own: give clients={name: fedplcc.Client(...)}")
    counts = {client: describe(table["data"]) for client, table in tables.items()}
    numbered, named = [{name for name, of in counts.items() if are_numbers([*of]) is each} for each in (True, False)]
    pairs = (
        (one, other) for one in sorted(numbered) for other in sorted(named) if not {*counts[one]} & {*counts[other]}
    )
    if (pair := next(pairs, None)) is not None:
        without, having = pair
        raise InvalidData(
            f"client {without} has the classes {listed([*counts[without]])} and client {having} has "
            f"{listed([*counts[having]])}: labels without names count in an order that nobody said; name them with classes="
        )
    classes = sorted({name for of in counts.values() for name in of})
    for sentence in class_sentences(counts, classes, fewest=0):
        warnings.warn(sentence, stacklevel=4)
    return {
        **document,
        "run": {"clients": sorted(tables), **document["run"]},
        "data": {"classes": classes, **document["data"]},
    }


def _changed(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    others = {key: value for key, value in changes.items() if key != "run.method"}
    return override(document, Overrides(method=changes.get("run.method"), assignments=assignments(others)))


def _document(config: ConfigSource | None, method: Any) -> dict[str, Any]:
    if isinstance(config, FederationFile):
        clients = {name: client.model_dump(mode="json") for name, client in config.clients.items()}
        return {**json.loads(config.config.canonical_json), "clients": clients}
    if isinstance(config, RunConfig):
        document: dict[str, Any] = json.loads(config.canonical_json)
        return document
    if isinstance(config, Mapping):
        return dict(config)
    if isinstance(config, str) and config in RECIPES:
        chosen = {"method": method} if isinstance(method, str) else {}
        return with_recipe({"run": {"name": config, **chosen}}, config)
    if config is not None and not isinstance(config, str | os.PathLike):
        raise InvalidConfig(f"config is a path, a mapping or a RunConfig, not {type(config).__name__}")
    path = demo_file() if config is None else Path(config)
    return anchored(read_document(path), path.parent)


def _client(name: str, client: object) -> Client:
    if not isinstance(client, Client):
        raise InvalidConfig(f"clients[{name!r}] is {type(client).__name__}; give a fedplcc.Client")
    return client
