"""What a run may be configured with, and what is wrong with a configuration: for forms, and for scripts before they start.

All of it follows from the records that the aggregator checks with, so nothing is described here that it would refuse. What
only the aggregator can know (a run or a model to begin with, its lease) it says itself when the run is started.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from shared import documents
from shared.config.key_descriptions import key_descriptions
from shared.config.problems import run_problems
from shared.config.run import STEMS, RunConfig, TimmOptions, parse_run_config
from shared.config.toml_text import toml_tables
from shared.methods import METHODS
from shared.methods.base import Method

FORMS_OF_MODELS = (
    documents.ModelForm(form="timm:NAME", summary="A backbone of timm, by its name there, with a head of its own."),
    documents.ModelForm(
        form="package.module:factory",
        summary="Your own code, which every trainer must be able to import; model.options are its arguments.",
    ),
)
_EXAMPLE: Mapping[str, Any] = {"run": {"method": "fedavg", "min_clients": 1}, "data": {"classes": ["a", "b"]}}


@cache
def form() -> documents.RunConfigurationForm:
    """Everything that a form needs to know; the same for as long as the process lives."""
    return documents.RunConfigurationForm(
        sections={name: described_schema(kind) for name, kind in section_kinds()},
        defaults=_defaults(),
        methods=[_choice(method) for method in METHODS.values()],
        models=[documents.ModelChoice(name=name, stems=list(stems)) for name, stems in STEMS.items()],
        model_forms=list(FORMS_OF_MODELS),
        timm_options=described_schema(TimmOptions),
    )


def check(document: Mapping[str, Any]) -> documents.ConfigurationCheck:
    """What is wrong with a configuration, or what it comes to."""
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
    """The sections of a configuration by name, but for the method's, which each method has its own of."""
    for name, field in RunConfig.model_fields.items():
        if name != "method" and isinstance(field.annotation, type):
            yield name, field.annotation


def described_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a table, with what each of its keys means."""
    schema = kind.model_json_schema()
    described(schema, kind)
    return schema


def described(schema: dict[str, Any], kind: type[BaseModel]) -> None:
    """Write what each key means into a table's JSON Schema."""
    for key, meaning in key_descriptions(kind).items():
        schema["properties"][key]["description"] = meaning


def _toml(document: Mapping[str, Any]) -> str | None:
    text = toml_tables({name: document[name] for name in RunConfig.model_fields if name in document})
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None  # the options of somebody's own model hold a null, which TOML has not
    return text


def _defaults() -> dict[str, dict[str, Any]]:
    """What each key is where nobody writes it; keys without a default are not there, keys that are not set are null."""
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
