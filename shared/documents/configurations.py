"""Documents of configurations: the possible methods, models and keys, and the check of one."""

from __future__ import annotations

from typing import Any

from shared.documents.document import Document, Sha256
from shared.documents.problems import FieldProblem


class MethodChoice(Document):
    """A method that a run may have."""

    name: str
    """As a configuration writes it in `run.method`."""
    title: str
    """As its paper writes it."""
    summary: str
    """What it does, in a sentence."""
    paper: str
    """Where it is published."""
    has_prototypes: bool
    """Whether its clients upload prototypes."""
    settings: dict[str, Any]
    """JSON Schema of its hyper-parameters, the section `[method]`, with defaults and what each key means."""


class ModelChoice(Document):
    """A model that is built in."""

    name: str
    """As a configuration writes it in `model.name`."""
    stems: list[str]
    """The stems that it may have, the usual one first; empty where there is none to choose."""


class ModelForm(Document):
    """A form in which `model.name` may name other models."""

    form: str
    """How the name is written."""
    summary: str
    """What it names."""


class RunConfigurationForm(Document):
    """What a run may be configured with: enough to make a form."""

    sections: dict[str, dict[str, Any]]
    """JSON Schema of each section by its name, with what each key means; `[method]` is in `methods`."""
    defaults: dict[str, dict[str, Any]]
    """By section, what each key is where it is not written; null where it is not set then. A key without one must be."""
    methods: list[MethodChoice]
    models: list[ModelChoice]
    model_forms: list[ModelForm]
    timm_options: dict[str, Any]
    """JSON Schema of `model.options` of a model timm:NAME."""


class ConfigurationCheck(Document):
    """What is wrong with a run's configuration, or what it comes to. Nothing was created."""

    problems: list[FieldProblem]
    """Everything that is wrong, each at its key ("training.batch_size", "data.classes.3"), at its section, or, where the
    whole is meant, at ""; empty if it can be posted."""
    config: dict[str, Any] | None
    """The configuration with the defaults filled in; null if something is wrong."""
    config_hash: Sha256 | None
    """SHA-256 of its canonical JSON: the run's, unless it begins with a model that a run or a file is named for."""
    toml: str | None
    """What was sent, as the TOML file that `fedplcc run start --config FILE` takes; null if something is wrong, or
    where TOML cannot say it."""
