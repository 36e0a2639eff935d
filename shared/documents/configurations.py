"""Documents of run configurations: keys for forms, and the result of a check."""

from __future__ import annotations

from typing import Any

from fedplcc.shared.documents.document import Document, Sha256
from fedplcc.shared.documents.problems import FieldProblem


class MethodChoice(Document):
    """A federated method."""

    name: str
    """Its name in `run.method`."""
    title: str
    """Its name in the paper."""
    summary: str
    """One sentence about it."""
    paper: str
    """Title, venue and link of the paper."""
    has_prototypes: bool
    """Whether its clients upload prototypes."""
    settings: dict[str, Any]
    """JSON Schema of its hyper-parameters, the section `[method]`, with defaults and meanings."""


class ModelChoice(Document):
    """A built-in model."""

    name: str
    """Its name in `model.name`."""
    stems: list[str]
    """Its stems, the default first; empty without a choice."""


class ModelForm(Document):
    """A form of `model.name` for other models."""

    form: str
    """Form of the name."""
    summary: str
    """The models of this form."""


class RecipeChoice(Document):
    """Tables to begin with, for a kind of images."""

    name: str
    """Its name for `fedplcc config init --recipe`."""
    title: str
    """The images."""
    summary: str
    """What it does."""
    smallest_side: int | None
    """Fewest pixels of the smaller side of all images with which it is taken by itself; null if never."""
    of_others: dict[str, Any]
    """Hyper-parameters of another method than its own, where that has them."""
    config: dict[str, Any]
    """Its tables, without clients and classes."""


class RunConfigurationForm(Document):
    """Everything that a form for run configurations needs."""

    sections: dict[str, dict[str, Any]]
    """JSON Schema of each section by name, with meanings; `[method]` is in `methods`."""
    defaults: dict[str, dict[str, Any]]
    """Default of each key by section; null for a key that is not set. A key without an entry is required."""
    methods: list[MethodChoice]
    models: list[ModelChoice]
    model_forms: list[ModelForm]
    timm_options: dict[str, Any]
    """JSON Schema of `model.options` for timm:NAME."""
    recipes: list[RecipeChoice]
    at_sites: dict[str, Any]
    """Hyper-parameters that a run of clients that have joined begins with, where its method has them."""


class ConfigurationCheck(Document):
    """The problems of a run's configuration, or the configuration with its defaults. Nothing was created."""

    problems: list[FieldProblem]
    """Every problem with its key ("training.batch_size", "data.classes.3"), its section, or "" for the whole configuration;
    empty if it can be posted."""
    config: dict[str, Any] | None
    """The configuration with its defaults; null if there are problems."""
    config_hash: Sha256 | None
    """SHA-256 of its canonical JSON. It is the run's hash unless `run.initial_model` names a run or a file."""
    toml: str | None
    """The request as a TOML file for `fedplcc run start --config FILE`; null if there are problems, or if TOML cannot
    express it."""
