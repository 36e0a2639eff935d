"""The run configuration as a person writes it, and the errors that help with it.

Everything has a default but the method, the clients and the classes. Unknown keys are errors that name the nearest known
one; a value out of range is named with its key, its value and the range. A configuration's hash is that of its canonical
JSON, with the defaults filled in.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from shared.config.initial_model import ModelBlob, parse_initial_model
from shared.config.partition import expand
from shared.config.sections import FACTORY as FACTORY
from shared.config.sections import NAME_PATTERN as NAME_PATTERN
from shared.config.sections import AboutKey, Name, Section, check_keys, unknown, validate
from shared.config.sections import read_document as read_document
from shared.errors import InvalidConfig
from shared.methods import METHODS
from shared.methods.base import Method, MethodConfig

Positive = Annotated[float, Field(gt=0)]

MAX_CLASS_CHARACTERS = 128
"""Longest name of a class."""
STEMS: Mapping[str, tuple[str, ...]] = {
    "resnet10": ("imagenet5x5", "cifar3x3", "imagenet7x7"),
    "resnet18": ("imagenet7x7", "cifar3x3"),
    "cnn4": (),
    "cnn5": (),
}
"""The models that are built in, each with the stems that it may have, the usual one first."""
OLD_DEFAULT_STEM = "imagenet5x5"
"""Stands in older stored configurations of models that have no stem; they keep their meaning and their hash."""
TIMM = re.compile(r"^timm:(?P<name>[A-Za-z0-9][\w.-]*)$")
"""`timm:NAME`, the name as timm writes it."""
MODEL_FORMS = "write timm:NAME or package.module:factory"
YOUNGER_SECTIONS = frozenset({"admission", "quorum"})
"""Sections younger than the first release, whose hashes of runs that do not set them must not change."""


class RunSection(Section):
    """`[run]`"""

    name: Name = "run"
    """A name for people; not unique."""
    method: str
    """One of the methods in shared/methods."""
    rounds: int = Field(30, ge=1, le=100_000)
    """Rounds after round 0."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Everything random in the run derives from it."""
    clients: tuple[Name, ...] | None = Field(None, strict=False)
    """The roster. Either this or `min_clients`."""
    min_clients: int | None = Field(None, ge=1, le=100_000)
    """Start when this many clients have joined, and let later ones in at a round's boundary."""
    cohort_size: int | None = Field(None, ge=1)
    """Clients drawn for each round; all if not set."""
    initial_model: str | None = Field(None, max_length=1024)
    """What round 0 begins with: file:PATH, run:RUN_ID, run:RUN_ID@ROUND or sha256:HEX; a new model if not set."""

    @field_validator("clients")
    @classmethod
    def _sorted_and_unique(cls, clients: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if clients is None:
            return None
        if not clients:
            raise ValueError("the roster must name at least one client")
        if len(set(clients)) < len(clients):
            raise ValueError("the roster names a client twice")
        return tuple(sorted(clients))

    @field_validator("method")
    @classmethod
    def _known_method(cls, method: str) -> str:
        if method not in METHODS:
            raise ValueError(unknown("method", method, METHODS))
        return method

    @model_serializer(mode="wrap")
    def _without_what_is_not_set(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # The key is younger than the first release, whose hashes of runs without it must not change.
        values: dict[str, Any] = plain(self)
        if values["initial_model"] is None:
            del values["initial_model"]
        return values

    @field_validator("initial_model")
    @classmethod
    def _a_model(cls, text: str | None) -> str | None:
        return None if text is None else str(parse_initial_model(text))

    @model_validator(mode="after")
    def _one_way_to_name_clients(self) -> Self:
        if (self.clients is None) == (self.min_clients is None):
            raise AboutKey("clients", "set exactly one of 'clients' (the roster) and 'min_clients'")
        size = len(self.clients) if self.clients else self.min_clients
        if self.cohort_size is not None and size is not None and self.cohort_size > size:
            raise AboutKey(
                "cohort_size", f"cohort_size = {self.cohort_size} is more than the {size} clients of the run"
            )
        return self


class TimmOptions(Section):
    """`[model.options]` of timm:NAME."""

    hidden_dim: int = Field(128, ge=0, le=65_536)
    """Width of the hidden layer between backbone and classifier, whose rectified values are the features. 0: no such
    layer, the features are the backbone's own."""
    pretrained: bool = False
    """Begin with timm's weights, which the client that makes the first model downloads."""
    checkpoint: str | None = Field(None, min_length=1)
    """Begin with the weights of this safetensors file on the client that makes the first model; nothing is downloaded."""
    freeze_backbone: bool = False
    """Train the head alone."""

    @model_validator(mode="after")
    def _one_source_of_weights(self) -> Self:
        if self.pretrained and self.checkpoint is not None:
            raise ValueError("set at most one of 'pretrained' and 'checkpoint'")
        return self


class ModelSection(Section):
    """`[model]`"""

    name: str = "resnet10"
    """resnet10, resnet18, cnn4, cnn5, timm:NAME or package.module:factory."""
    stem: str | None = Field(None, validate_default=True)
    """Stem of a ResNet: imagenet5x5 is a 5x5 convolution of stride 2 with max-pooling (FedPLVM, FedPLCC), imagenet7x7 the
    7x7 one of the ResNet paper, cifar3x3 a 3x3 one of stride 1 without pooling (FPL). The model's usual one if not set."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict, validate_default=True)
    """See `TimmOptions` for timm:NAME; keyword arguments for package.module:factory."""

    @property
    def is_factory(self) -> bool:
        """Whether the name is of somebody's own code, which making the model imports and runs."""
        return self.name not in STEMS and not TIMM.fullmatch(self.name)

    @field_validator("name")
    @classmethod
    def _known_model(cls, name: str) -> str:
        if name in STEMS or TIMM.fullmatch(name):
            return name
        if name.startswith("timm:"):
            raise ValueError("write timm:NAME with a name of timm's own; names of other hubs are not taken")
        if not FACTORY.fullmatch(name):
            raise ValueError(f"{unknown('model', name, STEMS)}; or {MODEL_FORMS}")
        return name

    @field_validator("stem")
    @classmethod
    def _stem_of_the_model(cls, stem: str | None, info: ValidationInfo) -> str | None:
        if "name" not in info.data:
            return stem  # what is wrong is the name, and that is said
        name = info.data["name"]
        stems = STEMS.get(name, ())
        if stem is None:
            return stems[0] if stems else None
        if not stems and stem == OLD_DEFAULT_STEM:
            return stem
        if not stems:
            raise ValueError(f"model {name!r} has no stem to choose; leave the key out")
        if stem not in stems:
            raise ValueError(f"model {name!r} has the stems {', '.join(stems)}")
        return stem

    @field_validator("options")
    @classmethod
    def _options_of_the_model(cls, options: Mapping[str, JsonValue], info: ValidationInfo) -> Mapping[str, JsonValue]:
        name = info.data.get("name", "")
        if name in STEMS and options:
            raise ValueError(f"model {name!r} takes no options; they are for timm:NAME and package.module:factory")
        if not TIMM.fullmatch(name):
            return options
        check_keys(options, TimmOptions, "model.options.")
        return validate(TimmOptions, options, "model.options.").model_dump()


class DataSection(Section):
    """`[data]`: the run's data contract."""

    classes: tuple[str, ...] = Field(min_length=2, max_length=10_000, strict=False)
    """Class names in the order of the model's outputs; client folders map to them by name."""
    image_size: int = Field(32, ge=8, le=1024)
    """Height and width of the model's input in pixels."""
    mean: tuple[float, float, float] = Field((0.5, 0.5, 0.5), strict=False)
    """Subtracted per channel from values in [0, 1]."""
    std: tuple[Positive, Positive, Positive] = Field((0.5, 0.5, 0.5), strict=False)
    """Divided by, per channel."""
    test_every: int = Field(5, ge=2, le=1000)
    """Where a folder has no train/ and test/, every n-th file by sorted name is for testing."""

    @field_validator("classes")
    @classmethod
    def _unique(cls, classes: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(classes)) < len(classes):
            raise ValueError("a class is named twice")
        wrong = [name for name in classes if not name.isprintable() or not 1 <= len(name) <= MAX_CLASS_CHARACTERS]
        if wrong:
            raise ValueError(f"{wrong[0][:20]!a} is no name of 1 to {MAX_CLASS_CHARACTERS} printable characters")
        return classes


class TrainingSection(Section):
    """`[training]`: everything besides data and method that local training is a function of."""

    local_steps: int | None = Field(None, ge=1, le=1_000_000)
    """Mini-batches a round. Either this or `local_epochs`; 10 if neither is set."""
    local_epochs: int | None = Field(None, ge=1, le=100_000)
    """Passes over the client's training set a round."""
    batch_size: int = Field(32, ge=2, le=65_536)
    """Images of a mini-batch; at least 2, for batch normalisation."""
    learning_rate: float = Field(0.01, gt=0, le=10)
    """Step size of stochastic gradient descent."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Share of the step before in the next one; each round begins without any."""
    weight_decay: float = Field(1e-5, ge=0, le=1)
    """Factor of the weights that is added to their gradient."""
    clip_norm: float | None = Field(None, gt=0)
    """Largest norm of the whole gradient; no clipping if not set."""
    augment: tuple[Literal["crop", "flip"], ...] = Field((), strict=False)
    """Random crop with a margin of 1/8, random horizontal flip."""
    threads: int = Field(1, ge=1, le=256)
    """Processor threads of local training; other numbers give other last bits."""
    evaluation_batch_size: int = Field(256, ge=1, le=65_536)
    """Batch size without gradients; other sizes give other last bits of features."""

    @model_validator(mode="before")
    @classmethod
    def _one_length(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            steps, epochs = values.get("local_steps"), values.get("local_epochs")
            if steps is not None and epochs is not None:
                raise AboutKey("local_steps", "set exactly one of 'local_steps' and 'local_epochs'")
            if steps is None and epochs is None:
                return {**values, "local_steps": 10}
        return values


class AdmissionSection(Section):
    """`[admission]`: what an update must keep to, and what becomes of a client whose updates do not."""

    max_update_norm: float | None = Field(None, gt=0)
    """Largest L2 norm of a local model minus the round's global model, over all floating-point tensors together, running
    statistics included. An update beyond it is refused, not clipped. No limit if not set; where one is set, however large,
    the run's history says each update's norm."""
    max_prototype_norm: float | None = Field(None, gt=0)
    """Largest L2 norm of an uploaded prototype. An update with one beyond it is refused. Losses that see distances
    (FedProto, FPL) follow one huge prototype wherever it lies. No limit if not set."""
    max_num_examples: int | None = Field(None, ge=1)
    """Most samples that one update may stand for. A client says itself how many it has, and weighs as much as it says
    unless method.averaging is "equal". No limit if not set."""
    quarantine_after: int | None = Field(None, ge=1, le=1_000_000)
    """Refused updates of one client in this run, repeated ones included, after which it takes no more part. What counts is
    an update that is wrong in itself, not one that is late. Never if not set."""
    quarantined: tuple[Name, ...] = Field((), strict=False)
    """Clients that take no part from the beginning, whether run.clients names them or not."""

    @model_serializer(mode="wrap")
    def _without_what_is_not_set(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # The key is younger than the section, and hashes of runs that set another one must not change.
        values: dict[str, Any] = plain(self)
        if values["max_prototype_norm"] is None:
            del values["max_prototype_norm"]
        return values

    @field_validator("quarantined")
    @classmethod
    def _sorted(cls, quarantined: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(quarantined)))


class QuorumSection(Section):
    """`[quorum]`: when a round goes on without clients that are away. Without it a round waits for its whole cohort."""

    deadline_s: float | None = Field(None, ge=0, le=31_536_000)
    """Seconds after a phase of a round began (first model, training, evaluation) from which it goes on without clients that
    are away or stand still, if the others make the quorum. Clients that get on are waited for, however slow. No deadline
    if not set."""
    min_clients: int | None = Field(None, ge=1, le=100_000)
    """Fewest clients whose updates, and then reports, a round goes on with. The whole cohort if neither this nor
    `every_domain` is set."""
    every_domain: bool = False
    """Whether a round needs an update, and then a report, of at least one client of every domain in its cohort."""
    silence_s: float = Field(120.0, gt=0, le=31_536_000)
    """Seconds without progress (bytes that move, an epoch that advances) after which a connected client no longer holds an
    overdue phase up; at least the aggregator's lease. A client whose lease ran out, or that says that it cannot do its
    task, does not hold it up at all. Longer than the longest thing that a client does without telling how far it is:
    reading its data, or clustering."""
    on_no_quorum: Literal["wait", "fail"] = "wait"
    """What a run does that cannot have its quorum: wait until clients are back, and say for whom, or fail."""

    @model_validator(mode="after")
    def _somebody_may_be_missing(self) -> Self:
        may_miss = self.min_clients is not None or self.every_domain
        is_timed = may_miss or self.silence_s != type(self).model_fields["silence_s"].default
        if is_timed and self.deadline_s is None:
            raise AboutKey(
                "deadline_s", "set 'deadline_s' too: without a deadline every round waits for its whole cohort"
            )
        if self.deadline_s is not None and not may_miss and self.on_no_quorum == "wait":
            raise AboutKey(
                "min_clients",
                "deadline_s drops nobody while the quorum is the whole cohort; set 'min_clients' or 'every_domain' too, "
                'or on_no_quorum = "fail"',
            )
        return self


class RunConfig(BaseModel):
    """A run, with the defaults filled in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: RunSection
    method: MethodConfig
    model: ModelSection = ModelSection()
    data: DataSection
    training: TrainingSection = TrainingSection.model_validate({})
    admission: AdmissionSection = AdmissionSection.model_validate({})
    quorum: QuorumSection = QuorumSection.model_validate({})

    @model_validator(mode="after")
    def _a_quorum_that_can_be(self) -> Self:
        needed, out = self.quorum.min_clients, self.admission.quarantined
        roster = None if self.run.clients is None else set(self.run.clients) - set(out)
        sizes = {
            "in run.clients" + (" that are not quarantined" if out else ""): None if roster is None else len(roster),
            "that the run begins with (run.min_clients)": self.run.min_clients,
            "drawn for each round (run.cohort_size)": self.run.cohort_size,
        }
        for which, size in sizes.items():
            if needed is not None and size is not None and needed > size:
                raise AboutKey(
                    "quorum.min_clients",
                    f"quorum.min_clients = {needed} is more than {size}, the number of clients {which}",
                )
        return self

    @model_validator(mode="after")
    def _somebody_takes_part(self) -> Self:
        if self.run.clients is not None and set(self.run.clients) <= set(self.admission.quarantined):
            raise AboutKey(
                "admission.quarantined", "admission.quarantined names every client of the run; leave at least one"
            )
        return self

    @model_validator(mode="after")
    def _a_limit_on_what_is_sent(self) -> Self:
        if self.admission.max_update_norm is not None and not self.algorithm.shares_model(self.method):
            raise AboutKey(
                "admission.max_update_norm",
                "admission.max_update_norm limits the models that clients send, and in this run they keep them; leave it "
                "out",
            )
        if self.admission.max_prototype_norm is not None and self.algorithm.prototype_kind is None:
            raise AboutKey(
                "admission.max_prototype_norm",
                f"admission.max_prototype_norm limits prototypes, and {self.run.method} has none; leave it out",
            )
        return self

    def begun_with(self, sha256: str) -> RunConfig:
        """The same run, beginning with the model of this SHA-256."""
        run = self.run.model_copy(update={"initial_model": str(ModelBlob(sha256))})
        return self.model_copy(update={"run": run})

    @property
    def algorithm(self) -> Method:
        """The method's record."""
        return METHODS[self.run.method]

    @property
    def canonical_json(self) -> str:
        """The configuration with sorted keys and no spaces."""
        sections = {name: getattr(self, name) for name in type(self).model_fields}
        is_default = {name: section == type(self).model_fields[name].default for name, section in sections.items()}
        return canonical_json(
            {
                name: section.model_dump(mode="json")
                for name, section in sections.items()
                if not (name in YOUNGER_SECTIONS and is_default[name])
            }
        )

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical_json.encode()).hexdigest()


class ClientSection(Section):
    """`[clients.NAME]`: read by demo and simulate; a deployed trainer says the same on its command line."""

    domain: Name | None = None
    """The domain's label; the client's name if not set."""
    data: str
    """Data specification: digits:DOMAIN, folder:PATH, cifar10:PATH and so on; `fedplcc data describe` tries one."""
    samples_per_class: int | None = Field(None, ge=1)
    """A seeded, class-balanced subset of the training set; all samples if not set."""


class FederationFile(BaseModel):
    """A configuration file: a run, and the clients that demo and simulate make for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: RunConfig
    clients: Mapping[str, ClientSection] = Field(default_factory=dict)
    initial_model_file: Path | None = None
    """Where the model lies whose SHA-256 is `run.initial_model`, if a file was named."""


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no spaces and no NaN: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def parse_run_config(document: Mapping[str, Any]) -> RunConfig:
    """Check a run configuration and fill in its defaults.

    Raises:
        InvalidConfig: With every problem in it, one sentence each.
    """
    if not isinstance(document, Mapping):
        raise InvalidConfig("a run configuration is a table with the sections run, method, model, data and training")
    check_keys(document, RunConfig, "")
    run = document.get("run")
    name = run.get("method") if isinstance(run, Mapping) else None
    method = METHODS.get(name) if isinstance(name, str) else None
    hyper = document.get("method", {})
    values = dict(document)
    if method is not None:
        check_keys(hyper, method.config, "method.")
        values["method"] = validate(method.config, hyper, "method.")
    else:
        values["method"] = MethodConfig()
    return validate(RunConfig, values, "")


def parse_federation(document: Mapping[str, Any]) -> FederationFile:
    """Check a configuration file's content: a run and, optionally, its clients or a `[partition]` that makes them.

    The clients' names are the roster where `[run]` names none.

    Raises:
        InvalidConfig: With every problem in it.
    """
    document = dict(document)
    tables = document.pop("clients", {})
    if not isinstance(tables, Mapping):
        raise InvalidConfig("[clients] holds one table per client: [clients.NAME]")
    run = document.get("run")
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
        check_keys(table, ClientSection, f"clients.{name}.")
        clients[name] = validate(ClientSection, table, f"clients.{name}.")
    if clients and isinstance(run, Mapping) and run.get("clients") is None and run.get("min_clients") is None:
        document["run"] = {**run, "clients": sorted(clients)}
    return FederationFile(config=parse_run_config(document), clients=clients)


def load_federation(path: Path) -> FederationFile:
    """Read a TOML configuration file.

    Raises:
        InvalidConfig: The file cannot be read, is not TOML, or its content is wrong.
    """
    return parse_federation(read_document(path))
