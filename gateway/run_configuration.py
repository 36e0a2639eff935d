"""The keys of a run's configuration, and the problems of one: for forms, and for scripts before they start a run.

Both follow from the records that the aggregator validates with, so they agree with its refusals. The aggregator alone checks
the run or model to begin with and its own lease, when the run starts.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from pydantic import BaseModel

from fedplcc.shared import documents
from fedplcc.shared.config.key_descriptions import key_descriptions
from fedplcc.shared.config.problems import run_problems
from fedplcc.shared.config.recipes import AT_SITES, RECIPES, recipe
from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.config.tables.model import STEMS, TimmOptions
from fedplcc.shared.config.toml_text import toml_tables
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.method import Method

FORMS_OF_MODELS = (
    documents.ModelForm(form="timm:NAME", summary="A backbone of timm by its name there, with a new head."),
    documents.ModelForm(
        form="package.module:factory",
        summary="Your own code, which every trainer can import and allows; model.options are its arguments.",
    ),
)
_EXAMPLE: Mapping[str, Any] = {"run": {"method": "fedavg", "min_clients": 1}, "data": {"classes": ["a", "b"]}}


@cache
def form() -> documents.RunConfigurationForm:
    """Return everything that a form needs; it never changes within a process."""
    return documents.RunConfigurationForm(
        sections={name: described_schema(kind) for name, kind in section_kinds()},
        defaults=_defaults(),
        methods=[_choice(method) for method in METHODS.values()],
        models=[documents.ModelChoice(name=name, stems=list(stems)) for name, stems in STEMS.items()],
        model_forms=list(FORMS_OF_MODELS),
        timm_options=described_schema(TimmOptions),
        recipes=[documents.RecipeChoice(**asdict(each), config=recipe(each.name)) for each in RECIPES.values()],
        at_sites=dict(AT_SITES),
    )


def check(document: Mapping[str, Any]) -> documents.ConfigurationCheck:
    """Return the problems of a configuration, or the configuration with its defaults."""
    found = run_problems(document)
    if found:
        problems = [documents.FieldProblem(location=each.location, detail=each.detail) for each in found]
        return documents.ConfigurationCheck(problems=problems, config=None, config_hash=None, toml=None)
    config = parse_run_config(document)
    return documents.ConfigurationCheck(
        problems=[],
        config=json.loads(config.canonical_json),
        config_hash=config.hash,
        toml=_toml(document),
    )


def section_kinds() -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the sections of a configuration by name, without [method], whose keys depend on the method."""
    for name, field in RunConfig.model_fields.items():
        if name != "method" and isinstance(field.annotation, type):
            yield name, field.annotation


def described_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a table, with the meaning of each key."""
    schema = kind.model_json_schema()
    described(schema, kind)
    return schema


def described(schema: dict[str, Any], kind: type[BaseModel]) -> None:
    """Write the meaning of each key into a table's JSON Schema."""
    for key, meaning in key_descriptions(kind).items():
        schema["properties"][key]["description"] = meaning


def _toml(document: Mapping[str, Any]) -> str | None:
    text = toml_tables({name: document[name] for name in RunConfig.model_fields if name in document})
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None  # the options of a model of the user's own hold a null, which TOML does not have
    return text


def _defaults() -> dict[str, dict[str, Any]]:
    """Return the default of each key by section: null for a key that is not set, no entry for a required key."""
    config = parse_run_config(_EXAMPLE)
    defaults: dict[str, dict[str, Any]] = {}
    for name, kind in section_kinds():
        own = {key: getattr(getattr(config, name), key) for key in kind.model_fields}
        for key in _EXAMPLE.get(name, {}):
            if kind.model_fields[key].is_required():
                del own[key]
            else:
                own[key] = kind.model_fields[key].default
        defaults[name] = own
    return defaults


def _choice(method: Method) -> documents.MethodChoice:
    module = inspect.getmodule(method.config)
    # A method's file begins with its name and a sentence; without docstrings (-OO) the name alone is left.
    title, _, sentence = ((module and module.__doc__) or method.name).partition("\n\n")[0].partition(": ")
    sentence = " ".join(sentence.split())
    return documents.MethodChoice(
        name=method.name,
        title=title.strip(),
        summary=sentence[:1].upper() + sentence[1:],
        paper=method.paper,
        has_prototypes=method.has_prototypes,
        settings=described_schema(method.config),
    )
