"""Configurations as TOML: a run with its defaults, and a template that explains every key. Pure.

Both are generated from the records that check a configuration, so they have every key.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedplcc.shared.config.key_descriptions import key_descriptions
from fedplcc.shared.config.run import ClientSection, FederationFile
from fedplcc.shared.config.sections import Section
from fedplcc.shared.config.tables.adversarial import AdversarialSettings
from fedplcc.shared.config.tables.mix_style import MixStyleSettings
from fedplcc.shared.config.tables.model import TimmOptions
from fedplcc.shared.config.tables.partition import RULES
from fedplcc.shared.config.tables.run_tables import RunSection
from fedplcc.shared.config.toml_text import WIDTH, toml_assignment, toml_key

SECTIONS = {
    "run": "The run: method, rounds and clients.",
    "method": "Hyper-parameters of the method.",
    "model": "The model.",
    "data": "Data settings that all clients share.",
    "training": "Local training.",
    "admission": "Limits on updates, and the treatment of clients whose updates exceed them.",
    "aggregation": "How the updates of a round become one.",
    "quorum": "Conditions under which a round continues without absent clients.",
    "evaluation": "The rounds in which clients evaluate.",
    "public": "Unlabelled images that every client has.",
    "stream": "Stages of a run whose data change while it trains.",
    "membership": 'Rounds in which a client takes part, by its name: "11-30", "11-" or "-30"; the others take part in all.',
    "privacy": "Noise on the class sums that clients send, and what the run claims by it.",
    "wire": "How models travel.",
}
USUAL: Mapping[str, str] = {
    "run.name": "what lists of runs show",
    "run.method": "fedavg averages; others also share prototypes",
    "run.rounds": "most rounds; a completed run can go on to more",
    "run.seed": "another one is another draw of everything",
    "run.clients": "the run starts when all of them are there",
    "model.name": "resnet10, resnet18, cnn4, cnn5, timm:NAME or your own",
    "model.stem": "the first layers, by the size of the images",
    "data.classes": "as the folders are named, in the order of the model's outputs",
    "data.image_size": "pixels of a side",
    "training.local_steps": "batches of a client in a round",
    "training.local_epochs": "passes over a client's images in a round",
    "training.batch_size": "",
    "training.learning_rate": "",
    "training.augment": "changes of the training images",
}
"""Keys that people change, with a word on each."""
ABOUT_CLIENTS = (
    "# The clients, for demo and simulate; a deployed trainer says the same on its command line.",
    "# Paths in data are read from the folder that a command runs in, one in run.initial_model from this file's.",
)
EXAMPLES: Mapping[str, Any] = {
    "run.min_clients": 2,
    "run.cohort_size": 2,
    "run.patience": 5,
    "run.keep_every": 10,
    "run.initial_model": "run:scans-97f12353",
    "run.initial_classes": ["0", "1"],
    "run.initial_runs": ["scans-97f12353"],
    "training.local_epochs": 1,
    "training.clip_norm": 40.0,
    "training.schedule_rounds": 100,
    "training.step_rounds": 30,
    "training.step_factor": 0.1,
    "training.adversarial": {"epsilon": 0.3, "step_size": 0.075, "steps": 7},
    "training.mix_style": {"probability": 0.5, "alpha": 0.1},
    "evaluation.epsilon": 0.3,
    "admission.max_update_norm": 100.0,
    "admission.max_prototype_norm": 1000.0,
    "admission.max_prototypes_per_class": 100,
    "admission.max_num_examples": 100_000,
    "admission.quarantine_after": 3,
    "aggregation.max_weight_share": 0.5,
    "quorum.deadline_s": 600.0,
    "quorum.min_clients": 2,
    "clients.samples_per_class": 50,
    "clients.fraction": 0.3,
    "clients.validation_per_class": 20,
    "data.validation_every": 5,
    "public.data": "cifar10:public-images",
    "stream.rounds_per_stage": 10,
    "stream.classes": [["0", "1"], ["2", "3"]],
    "clients.domain": "scanner-a",
    "clients.model": {"name": "cnn5"},
    "model.stem": "cifar3x3",
    "model.weights": "tf_efficientnet_lite0",
    "model.weights_sha256": "641a988bb298218421fbb803aa7e0368488e9b100f087f67296d3df14a3be604",
}
"""Values to show for keys that are not set."""


def run_text(federation: FederationFile, written: Mapping[str, Any]) -> str:
    """A run's configuration as TOML, with the defaults filled in.

    Args:
        federation: The checked file.
        written: The file's tables; values that are not in them are marked as defaults.
    """
    lines: list[str] = []
    for name, section in _sections(federation):
        table = written.get(name, {})
        values = _values(section)
        lines += ["", f"[{name}]"] if values else []
        for key, value in values.items():
            is_default = not (isinstance(table, Mapping) and key in table)
            if value is not None:
                lines.append(toml_assignment(key, value) + ("  # default" if is_default else ""))
    for name, client in federation.clients.items():
        lines += ["", f"[clients.{toml_key(name)}]"]
        lines += [toml_assignment(key, value) for key, value in _values(client).items() if value is not None]
    return "\n".join(lines[1:]) + "\n"


def short_template(federation: FederationFile) -> str:
    """A configuration file to start from: the keys that people change, and those that are not as they would be without."""
    lines = [
        "# A configuration of fedplcc: the keys that people change. Every other one has a default; all of them, each with",
        "# its range and meaning, are in the file of:  fedplcc config init FILE --full",
    ]
    for name, section in _sections(federation):
        kind = type(section)
        chosen = [
            toml_assignment(key, value) + (f"  # {about}" if (about := USUAL.get(f"{name}.{key}")) else "")
            for key, value in _values(section).items()
            if value is not None and (f"{name}.{key}" in USUAL or _differs(kind, section, key))
        ]
        lines += ["", f"[{name}]", *chosen] if chosen else []
    lines += ["", *ABOUT_CLIENTS] if federation.clients else []
    for name, client in federation.clients.items():
        given = {key: value for key, value in _values(client).items() if value is not None}
        lines += ["", f"[clients.{toml_key(name)}]"]
        lines += [toml_assignment(key, value) for key, value in given.items() if _differs(ClientSection, client, key)]
    return "\n".join(lines) + "\n"


def _differs(kind: type[BaseModel], section: BaseModel, key: str) -> bool:
    """Whether a key has another value than it would have if it were left out."""
    if key not in kind.model_fields:
        return True
    if kind is RunSection and key == "version":
        return False
    field = kind.model_fields[key]
    return field.is_required() or bool(getattr(section, key) != field.get_default(call_default_factory=True))


def template(federation: FederationFile) -> str:
    """A configuration file to start from: every key with its value, range and meaning."""
    lines = [
        "# A configuration of fedplcc. Everything but the method, the clients and the classes has a default, and keys that",
        "# are left out take it. Check a change with:  fedplcc config check FILE",
    ]
    for name, section in _sections(federation):
        lines += ["", f"# {_heading(name, section)}", f"[{name}]"]
        for key in type(section).model_fields:
            lines += explained(f"{name}.{key}", type(section), key, getattr(section, key))
        if name == "membership":
            lines.append('# north = "11-30"')
        if name == "model":
            lines += ["", "# For timm:NAME, instead of options above:", "# [model.options]"]
            for key, field in TimmOptions.model_fields.items():
                lines += explained(f"model.options.{key}", TimmOptions, key, field.default, is_used=False)
        if name == "training":
            lines += ["", "# For images that an attack has changed:"]
            lines += _unused_table("training.adversarial", AdversarialSettings)
            lines += ["", "# For features whose channel statistics are mixed between images:"]
            lines += _unused_table("training.mix_style", MixStyleSettings)
    lines += ["", *ABOUT_CLIENTS]
    for number, (name, client) in enumerate(federation.clients.items()):
        lines += ["", f"[clients.{toml_key(name)}]"] if number else [f"[clients.{toml_key(name)}]"]
        for key, value in _values(client).items():
            about = explained(f"clients.{key}", ClientSection, key, value)
            lines += about if number == 0 else [line for line in about if value is not None and line[0] != "#"]
    lines += ["", *_partition_lines()]
    return "\n".join(lines) + "\n"


def _unused_table(name: str, kind: type[Section]) -> list[str]:
    """Return the lines of a table that the file does not use."""
    lines = [f"# [{name}]"]
    for key, field in kind.model_fields.items():
        lines += explained(f"{name}.{key}", kind, key, field.default, is_used=False)
    return lines


def range_of(field: FieldInfo) -> str:
    """The range of a field, if it has one: "1 to 100", "more than 0", "one of a, b"."""
    parts = [*_parts(field.annotation), *field.metadata]
    choices = next((part for part in parts if get_origin(part) is Literal), None)
    if choices is not None:
        return f"one of {', '.join(get_args(choices))}"
    names = ("ge", "gt", "le", "lt")
    bounds = {name: getattr(limit, name) for limit in parts for name in names if hasattr(limit, name)}
    bounds = {name: int(limit) if limit == int(limit) else limit for name, limit in bounds.items()}
    low = f"more than {bounds['gt']}" if "gt" in bounds else f"at least {bounds['ge']}" if "ge" in bounds else ""
    high = f"less than {bounds['lt']}" if "lt" in bounds else f"at most {bounds['le']}" if "le" in bounds else ""
    if "ge" in bounds and "le" in bounds:
        return f"{bounds['ge']} to {bounds['le']}"
    return ", ".join(filter(None, (low, high)))


def _parts(annotation: Any) -> Iterator[Any]:
    """An annotation and everything within it: types, choices and limits."""
    yield annotation
    yield from getattr(annotation, "metadata", ())  # the limits of a pydantic field
    for part in get_args(annotation):
        yield from _parts(part)


def _sections(federation: FederationFile) -> Iterator[tuple[str, BaseModel]]:
    for name in type(federation.config).model_fields:
        section = getattr(federation.config, name)
        if isinstance(section, BaseModel):
            yield name, section


def _values(section: BaseModel) -> dict[str, Any]:
    return {**{key: getattr(section, key) for key in type(section).model_fields}, **(section.model_extra or {})}


def _heading(name: str, section: BaseModel) -> str:
    text = SECTIONS.get(name) or (inspect.getdoc(type(section)) or name).splitlines()[0]
    own = (inspect.getdoc(type(section)) or "").splitlines()
    return f"{own[0]}" if name == "method" and own else text


def explained(
    place: str,
    kind: type[BaseModel],
    key: str,
    value: Any,
    *,
    is_used: bool = True,
    examples: Mapping[str, Any] = EXAMPLES,
) -> list[str]:
    """The lines of a key below its comment; a key without a value is commented out.

    Args:
        place: Dotted key, by which an example of a value is found.
        value: Its value, or None.
        is_used: Whether the key stands; otherwise it is commented out too.
        examples: Values to show for keys that are not set.
    """
    field = kind.model_fields[key]
    said = [key_descriptions(kind).get(key, ""), f"({range_of(field)})" if range_of(field) else ""]
    comment = " ".join(filter(None, said))
    shown = examples.get(place, _anything(field)) if value is None else value
    assignment = toml_assignment(key, shown)
    if value is None or not is_used:
        assignment = textwrap.indent(assignment, "# ", lambda line: True)
    return [*textwrap.wrap(comment, WIDTH, initial_indent="# ", subsequent_indent="# "), *assignment.splitlines()]


def _anything(field: FieldInfo) -> Any:
    kinds = (field.annotation, *get_args(field.annotation))
    return 1 if int in kinds else 1.0 if float in kinds else "..."


def _partition_lines() -> list[str]:
    texts = [
        "Instead of [clients.NAME] tables, [partition] divides one data set among simulated clients. Its keys are kind, "
        "data and num_clients, and those of the kind:"
    ]
    for name, rule in RULES.items():
        keys = ", ".join(key for key in rule.model_fields if key != "seed")
        texts.append(f'kind = "{name}": {(inspect.getdoc(rule) or name).splitlines()[0]} Keys: {keys}.')
    return [f"# {line}" for text in texts for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ")]
