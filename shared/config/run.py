"""Run configuration: its sections, validation, defaults and hash.

Every key but the method, the clients and the classes has a default. An error names the key, its value and the range, or a
known key. The configuration's hash is the SHA-256 of its canonical JSON with the defaults filled in.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from fedplcc.shared.bounds import MODEL_KIND, MODEL_KIND_RULE, NAME_PATTERN, SUBSET_RULE
from fedplcc.shared.config.claims import check_privacy, client_refusal
from fedplcc.shared.config.class_map import class_fault
from fedplcc.shared.config.initial_model import ModelBlob, lineage
from fedplcc.shared.config.run_checks import check_sections
from fedplcc.shared.config.sections import FACTORY as FACTORY
from fedplcc.shared.config.sections import InvalidKey, Name, Places, Section, check_keys, dotted_keys, validate
from fedplcc.shared.config.sections import read_document as read_document
from fedplcc.shared.config.tables.model import ModelSection, batch_norm_refusal, mixing_refusal
from fedplcc.shared.config.tables.partition import expand
from fedplcc.shared.config.tables.run_tables import DataSection as DataSection
from fedplcc.shared.config.tables.run_tables import RunTables
from fedplcc.shared.config.tables.stream import StreamSection, split_stages_spec, stages_spec
from fedplcc.shared.config.tables.training import TrainingSection as TrainingSection
from fedplcc.shared.config.younger_keys import without_unset
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods import METHODS, add_methods, refusal
from fedplcc.shared.methods.config import MethodConfig


class RunConfig(RunTables):
    """Configuration of a run, with the defaults filled in."""

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        check_sections(self)
        check_privacy(self)
        return self

    def with_initial_model(
        self, sha256: str, classes: tuple[str, ...] | None = None, runs: tuple[str, ...] = ()
    ) -> RunConfig:
        """Return the same configuration with the model of this SHA-256 as its first.

        Args:
            classes: Its classes, if they are known; those that are the run's own need no mention.
            runs: Runs that are known to have trained it, the last first; they stand before those of `run.initial_runs`.

        Raises:
            InvalidConfig: The run would lose a class unasked.
        """
        update: dict[str, Any] = {"initial_model": str(ModelBlob(sha256))}
        if classes is not None:
            fault = class_fault(self.data.classes, classes, drops=self.run.drop_classes)
            if fault is not None:
                raise InvalidConfig(fault, location="run.initial_model")
            update["initial_classes"] = None if classes == self.data.classes else classes
        if runs:
            update["initial_runs"] = lineage(runs, self.run.initial_runs or ())
        return self._with_run(update)

    def with_initial_prototypes(self, sha256: str) -> RunConfig:
        """Return the same configuration with the prototypes of this SHA-256 as those of round 0."""
        return self._with_run({"initial_prototypes": f"sha256:{sha256}"})

    def _with_run(self, update: Mapping[str, Any]) -> RunConfig:
        return self.model_copy(update={"run": self.run.model_copy(update=dict(update))})

    @property
    def canonical_json(self) -> str:
        """JSON of the configuration, with sorted keys and no spaces; of younger keys than its version those that are set."""
        document = {name: getattr(self, name).model_dump(mode="json") for name in type(self).model_fields}
        return canonical_json(without_unset(document))

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical_json.encode()).hexdigest()


class ClientSection(Section):
    """`[clients.NAME]`: read by demo and simulate; a deployed trainer has the same settings on its command line."""

    domain: Name | None = None
    """Label of the domain; the client's name if not set."""
    data: str
    """Data specification: digits:DOMAIN, folder:PATH, cifar10:PATH and so on; `fedplcc data` tries one. A list has
    one for each stage of [stream]."""
    samples_per_class: int | None = Field(None, ge=1)
    """Training samples per class in a seeded, class-balanced subset; all samples if not set."""
    fraction: float | None = Field(None, gt=0, le=1)
    """Share of the training samples, drawn by the seed from each class alike, so that the classes keep their balance; at
    least one of each. In place of `samples_per_class`; all samples if neither is set."""
    validation_per_class: int | None = Field(None, ge=1)
    """Training samples of a class that are set aside for validation, drawn by the seed, at most half of them; those of
    data.validation_every if not set."""
    evaluate_only: bool = False
    """Whether it never trains and reports on its test images alone, as a domain that is left out does."""
    model: ModelSection | None = None
    """Its own kind of model: a table with the keys of [model]. Only where models are not shared; the run's if not set."""

    @field_validator("data", mode="before")
    @classmethod
    def _one_specification(cls, data: Any) -> Any:
        is_list = isinstance(data, list | tuple) and data and all(isinstance(each, str) and each for each in data)
        return stages_spec(data) if is_list else data

    @field_validator("model")
    @classmethod
    def _a_kind_that_can_be_said(cls, model: ModelSection | None) -> ModelSection | None:
        if model is not None and not MODEL_KIND.fullmatch(model.kind):
            raise ValueError(MODEL_KIND_RULE)
        return model

    @model_validator(mode="after")
    def _one_size_of_subset(self) -> Self:
        if self.samples_per_class is not None and self.fraction is not None:
            raise InvalidKey("fraction", SUBSET_RULE)
        return self


@cache
def key_places() -> Places:
    """Return the keys of a configuration file by their last part; those of the method and [partition] are not among them."""
    places: dict[str, list[str]] = {}
    for key, dotted in (*dotted_keys(RunConfig), *dotted_keys(ClientSection, "clients.NAME.")):
        if dotted != "method" and not dotted.startswith("clients.NAME.model."):  # [model] has the same keys
            places.setdefault(key, []).append(dotted)
    return places


class FederationFile(BaseModel):
    """Configuration file: a run, and the clients that demo and simulate start for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: RunConfig
    clients: Mapping[str, ClientSection] = Field(default_factory=dict)
    initial_model_file: Path | None = None
    """File of the model whose SHA-256 is `run.initial_model`, if the configuration named a file."""


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys, no spaces and no NaN: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def parse_run_config(document: Mapping[str, Any]) -> RunConfig:
    """Check a run configuration and fill in its defaults.

    Raises:
        InvalidConfig: With a sentence for every problem.
    """
    if not isinstance(document, Mapping):
        raise InvalidConfig("a run configuration is a table with the sections run, method, model, data and training")
    check_keys(document, RunConfig, "", key_places())
    run = document.get("run")
    name = run.get("method") if isinstance(run, Mapping) else None
    method = METHODS.get(name) if isinstance(name, str) else None
    hyper = document.get("method", {})
    values = dict(document)
    if method is not None:
        check_keys(hyper, method.config, "method.", key_places())
        values["method"] = validate(method.config, hyper, "method.")
    else:
        values["method"] = MethodConfig()
    return validate(RunConfig, _with_rounds(values), "")


def _with_rounds(document: dict[str, Any]) -> dict[str, Any]:
    """Return a run's tables with the rounds that its stream has, where `run.rounds` is left out."""
    run, stream = document.get("run"), document.get("stream")
    if not isinstance(run, Mapping) or run.get("rounds") is not None or not isinstance(stream, Mapping):
        return document
    rounds = validate(StreamSection, stream, "stream.").rounds
    return document if rounds is None else {**document, "run": {**run, "rounds": rounds}}


def parse_federation(document: Mapping[str, Any]) -> FederationFile:
    """Check a configuration file's content: a run and, optionally, its clients or a `[partition]`.

    The clients' names become the roster if `[run]` names none. A method of another package is imported: call this with a
    person's own file alone, by whom the method is listed, and never with what came over the network.

    Raises:
        InvalidConfig: The content is wrong.
    """
    document = dict(document)
    run = document.get("run")
    method = run.get("method") if isinstance(run, Mapping) else None
    if isinstance(method, str) and refusal(method) is not None:
        add_methods([method])
    tables = document.pop("clients", {})
    if not isinstance(tables, Mapping):
        raise InvalidConfig("[clients] holds one table per client: [clients.NAME]")
    if "partition" in document:
        if tables:
            raise InvalidConfig(
                "[partition] stands for [clients.NAME] tables: keep one of the two, and write a client's part as "
                'data = "part:K/N:RULE:DATA" where single clients differ'
            )
        seed = run.get("seed") if isinstance(run, Mapping) else None
        tables = expand(document.pop("partition"), seed if isinstance(seed, int) else 0)
    clients = {}
    for name, table in tables.items():
        if not re.fullmatch(NAME_PATTERN, name):
            raise InvalidConfig(f"clients.{name}: a client's name is up to 64 letters, digits, '.', '_' or '-'")
        check_keys(table, ClientSection, f"clients.{name}.", key_places())
        clients[name] = validate(ClientSection, table, f"clients.{name}.")
    if clients and isinstance(run, Mapping) and run.get("clients") is None and run.get("min_clients") is None:
        document["run"] = {**run, "clients": sorted(clients)}
    config = parse_run_config(document)
    check_scale(config)
    for name, client in clients.items():
        listed = split_stages_spec(client.data)
        if listed is not None and len(listed) != config.stream.stages:
            raise InvalidConfig(
                f"clients.{name}.data lists {len(listed)} specifications and stream.stages is {config.stream.stages}"
            )
        refused = None if client.model is None else own_kind_refusal(config, client.model)
        if refused is not None:
            raise InvalidConfig(f"clients.{name}.model: {refused}")
        refused = _claim_refusal(client) if config.withholds else None
        if refused is not None:
            raise InvalidConfig(f"clients.{name}: {refused}")
    return FederationFile(config=config, clients=clients)


def check_scale(config: RunConfig) -> None:
    """Refuse, of a new run, a mean or deviation of another scale than that of the pixels.

    Raises:
        InvalidConfig: It is so.
    """
    for name, values in (("mean", config.data.mean), ("std", config.data.std)):
        if min(values) < 0 or max(values) > 1:
            raise InvalidConfig(
                f"data.{name} = {list(values)}: pixels are numbers from 0 to 1; divide by 255 what is of 0 to 255",
                location=f"data.{name}",
            )


def _claim_refusal(client: ClientSection) -> str | None:
    return client_refusal(
        samples_per_class=client.samples_per_class,
        fraction=client.fraction,
        validation_per_class=client.validation_per_class,
        data=client.data,
    )


def own_kind_refusal(config: RunConfig, model: ModelSection | None = None) -> str | None:
    """Return why a client of a run cannot have its own kind of model, this one if it is known.

    It can, and the result is None, where models are not shared and the kind has what the run's training needs.
    """
    if config.algorithm.has_global_model(config.method):
        does = "averages models" if config.algorithm.shares_model(config.method) else "makes one head for all models"
        return f"method {config.run.method} {does}, so every client has the run's"
    if config.training.train != "all":
        return f'training.train = "{config.training.train}" trains above the backbone that all clients have'
    if model is None:
        return None
    key = config.site_statistics_key
    refused = None if key is None else batch_norm_refusal(model)
    if refused is not None:
        return f"{refused}, and {key} is about such layers"
    return None if config.training.mix_style is None else mixing_refusal(model)


def load_federation(path: Path) -> FederationFile:
    """Read a TOML configuration file.

    Raises:
        InvalidConfig: The file cannot be read, is not TOML, or its content is wrong.
    """
    return parse_federation(read_document(path))
