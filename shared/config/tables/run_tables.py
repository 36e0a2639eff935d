"""Tables of a run's configuration: the sections that belong to runs alone, and all of them together. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from fedplcc.shared.config.class_map import ClassMap, class_map
from fedplcc.shared.config.initial_model import MAX_INITIAL_RUNS, RunId, parse_initial_model
from fedplcc.shared.config.sections import FACTORY as FACTORY
from fedplcc.shared.config.sections import InvalidKey, Name, Section, unknown
from fedplcc.shared.config.sections import read_document as read_document
from fedplcc.shared.config.tables.adversarial import EPSILON
from fedplcc.shared.config.tables.aggregation import AggregationSection
from fedplcc.shared.config.tables.evaluation import EvaluationSection
from fedplcc.shared.config.tables.membership import NO_PLAN, MembershipSection
from fedplcc.shared.config.tables.model import ModelSection
from fedplcc.shared.config.tables.privacy import PrivacySection
from fedplcc.shared.config.tables.public import PublicSection
from fedplcc.shared.config.tables.stream import StreamSection
from fedplcc.shared.config.tables.training import TrainingSection as TrainingSection
from fedplcc.shared.config.tables.wire import WireSection
from fedplcc.shared.methods import METHODS, refusal
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.prototypes import MAX_ROWS_PER_CLASS, most_rows_per_class
from fedplcc.shared.methods.private_form import private_form, private_refusal
from fedplcc.shared.methods.prototypes import PrototypeConfig
from fedplcc.shared.privacy.class_sums import Release
from fedplcc.shared.types import ALONE_MODEL, LOCAL_MODEL

Positive = Annotated[float, Field(gt=0)]
MAX_CLASS_CHARACTERS = 128
"""Most characters of a class's name."""
MAX_CLASSES = 10_000
"""Most classes of a run."""
PROTOTYPES_BY_CONTENT = re.compile(r"sha256:[0-9a-f]{64}")
"""Form of `run.initial_prototypes` once the run is created."""
MAX_KEPT_ROUNDS = 100
"""Most rounds of a run whose models its configuration keeps."""
VERSION: Literal["0.2"] = "0.2"
"""Minor version of fedplcc that gives keys their meaning and their defaults; a configuration says it."""


def _checked_classes(classes: tuple[str, ...]) -> tuple[str, ...]:
    if len({unicodedata.normalize("NFC", name) for name in classes}) < len(classes):
        raise ValueError("a class is named twice")
    wrong = [name for name in classes if not name.isprintable() or not 1 <= len(name) <= MAX_CLASS_CHARACTERS]
    if wrong:
        raise ValueError(f"{wrong[0][:20]!a} is no name of 1 to {MAX_CLASS_CHARACTERS} printable characters")
    return classes


class RunSection(Section):
    """`[run]`"""

    version: Literal["0.2"] = VERSION
    """Minor version of fedplcc whose keys and defaults these are; the present one if left out. It is part of the hash."""
    name: Name = "run"
    """Name for people; not unique."""
    method: str = Field(max_length=128)
    """Name of a method: one of fedplcc's, or of another package that the owners of all services allow: package.module, or
    an entry point of the group fedplcc.methods."""
    rounds: int = Field(30, ge=1, le=100_000)
    """Number of rounds after round 0."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Seed of everything random in the run."""
    clients: tuple[Name, ...] | None = Field(None, strict=False, fail_fast=True)
    """The roster. Set either this or `min_clients`."""
    min_clients: int | None = Field(None, ge=1, le=100_000)
    """Number of joined clients at which the run starts; later ones enter between two rounds."""
    cohort_size: int | None = Field(None, ge=1)
    """Clients drawn for each round; all if not set."""
    initial_model: str | None = Field(None, max_length=1024)
    """Model of round 0: file:PATH, run:RUN_ID, run:RUN_ID@ROUND or sha256:HEX; a new model if not set."""
    initial_classes: tuple[str, ...] | None = Field(
        None, min_length=2, max_length=MAX_CLASSES, strict=False, fail_fast=True
    )
    """Class names of the initial model in the order of its outputs, where they are not data.classes: the rows of its head go
    by name, and those of new classes are drawn by the seed. The aggregator knows them of run:RUN_ID."""
    initial_prototypes: bool | str = False
    """Whether round 1 has the global prototypes of the initial model's round, of the classes that stay. Only with run:RUN_ID
    of the same method. In a run's configuration it is sha256:HEX of these prototypes."""
    initial_runs: Annotated[tuple[RunId, ...], Field(max_length=MAX_INITIAL_RUNS)] | None = Field(
        None, strict=False, fail_fast=True
    )
    """Runs that trained the initial model or the weights, from the last to the first: no client tests on an image that it
    trained on in one of them. Filled in for run:RUN_ID, for a model that one of the aggregator's runs made, and for a file
    beside its run.json; [] for a model of no run here. Clients warn where it is not set."""
    drop_classes: bool = False
    """Whether the run may lack classes of the initial model."""
    patience: int | None = Field(None, ge=1, le=100_000)
    """Rounds without a better mean accuracy on validation images after which the run completes early, with the first one
    from then on that is evaluated. Never if not set, and not without validation images (data.validation_every, or
    validation_per_class of every client); refused where a client's table has none."""
    keep_every: int | None = Field(None, ge=1, le=100_000)
    """Every n-th round whose model and prototypes are kept, besides those that the aggregator keeps anyway and the best
    round by validation; at most 100 of the run."""

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
            raise ValueError(refusal(method) or unknown("method", method, METHODS))
        return method

    @field_validator("initial_classes")
    @classmethod
    def _other_names(cls, classes: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if classes is None else _checked_classes(classes)

    @field_validator("initial_prototypes")
    @classmethod
    def _prototypes_by_content(cls, value: bool | str) -> bool | str:
        if isinstance(value, str) and not PROTOTYPES_BY_CONTENT.fullmatch(value):
            raise ValueError("write true or false")
        return value

    @model_validator(mode="after")
    def _about_an_initial_model(self) -> Self:
        for key in ("initial_classes", "initial_prototypes", "drop_classes"):
            if getattr(self, key) and self.initial_model is None:
                raise InvalidKey(key, f"'{key}' is about the model that a run begins with; set 'initial_model' too")
        return self

    @field_validator("initial_model")
    @classmethod
    def _a_model(cls, text: str | None) -> str | None:
        return None if text is None else str(parse_initial_model(text))

    @model_validator(mode="after")
    def _a_bound_on_what_is_kept(self) -> Self:
        if self.keep_every is not None and self.rounds // self.keep_every > MAX_KEPT_ROUNDS:
            raise InvalidKey(
                "keep_every",
                f"keep_every = {self.keep_every} would keep the models of {self.rounds // self.keep_every} rounds, and at "
                f"most {MAX_KEPT_ROUNDS} are kept; set {-(-self.rounds // MAX_KEPT_ROUNDS)} or more",
            )
        return self

    @model_validator(mode="after")
    def _one_way_to_name_clients(self) -> Self:
        if (self.clients is None) == (self.min_clients is None):
            raise InvalidKey("clients", "set exactly one of 'clients' (the roster) and 'min_clients'")
        size = len(self.clients) if self.clients else self.min_clients
        if self.cohort_size is not None and size is not None and self.cohort_size > size:
            raise InvalidKey(
                "cohort_size", f"cohort_size = {self.cohort_size} is more than the {size} clients of the run"
            )
        return self


class DataSection(Section):
    """`[data]`: the data contract, which every client's data set must meet."""

    classes: tuple[str, ...] = Field(min_length=2, max_length=MAX_CLASSES, strict=False, fail_fast=True)
    """Class names in the order of the model's outputs; clients' folders are matched by name."""
    image_size: int = Field(32, ge=8, le=1024)
    """Height and width of the model's input in pixels."""
    mean: tuple[float, float, float] = Field((0.5, 0.5, 0.5), strict=False)
    """Mean per channel, subtracted from values in [0, 1]."""
    std: tuple[Positive, Positive, Positive] = Field((0.5, 0.5, 0.5), strict=False)
    """Standard deviation per channel, by which the difference is divided."""
    test_every: int = Field(5, ge=2, le=1000)
    """In a folder without train/ and test/, one of so many images is for testing, each by its name alone."""
    validation_every: int | None = Field(None, ge=2, le=1000)
    """One of so many training images is set aside for validation, in a folder each by its name alone, else every n-th of a
    class: it is never trained on, and reported as the set `validation`. None if not set; a client's own
    validation_per_class, and a folder val/ of its data, go before it."""
    window: Annotated[tuple[float, float], Field(strict=False)] | Literal["auto"] | None = None
    """Values that become black and white, for pictures of more than 8 bits whose file does not state its range (12 bits in
    16, fractions), and in the file's unit for DICOM: [-160, 240], say. "auto" is the smallest of 8, 10, 12, 14, 16 and 32
    bits that holds all of a site's; such pictures are left out, with the reason, if not set."""

    @field_validator("window")
    @classmethod
    def _upwards(cls, window: Any) -> Any:
        if isinstance(window, tuple) and not window[0] < window[1]:
            raise ValueError("the first of the two values is the lower one")
        return window

    @field_validator("classes")
    @classmethod
    def _unique(cls, classes: tuple[str, ...]) -> tuple[str, ...]:
        return _checked_classes(classes)


class AdmissionSection(Section):
    """`[admission]`: limits on updates, and the exclusion of clients whose updates break them."""

    max_update_norm: float | None = Field(None, gt=0)
    """Largest L2 norm of a local model minus the round's global model, over all floating-point tensors together, running
    statistics included. An update beyond it is refused, not clipped. No limit if not set. The run's
    history shows the norm of each update, and names the client of one that is more than 10 times the round's median."""
    max_prototype_norm: float | None = Field(None, gt=0)
    """Largest L2 norm of an uploaded prototype; an update with a larger one is refused. FedProto and FPL use distances:
    without a limit, one huge prototype makes a run diverge. No limit if not set."""
    max_prototypes_per_class: int | None = Field(None, ge=1, le=MAX_ROWS_PER_CLASS)
    """Largest number of prototypes of one class in an update; an update with more is refused. The aggregator's clustering
    compares every two prototypes of a class: its time grows with the square of this number times the number of clients. If
    not set, it is the largest number up to 4096 with which a round compares at most 2^32 pairs."""
    max_num_examples: int | None = Field(None, ge=1)
    """Largest number of samples of an update. A client reports the number itself and is weighted by it, unless
    method.averaging is "equal". No limit if not set."""
    quarantine_after: int | None = Field(None, ge=1, le=1_000_000)
    """Number of refused updates of a client in this run after which the client is quarantined. Repeated updates count,
    late ones do not. Never if not set."""
    quarantined: tuple[Name, ...] = Field((), strict=False, fail_fast=True)
    """Clients excluded from the start, whether or not run.clients names them."""

    @field_validator("quarantined")
    @classmethod
    def _sorted(cls, quarantined: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(quarantined)))


class QuorumSection(Section):
    """`[quorum]`: when a round proceeds without absent clients. Without it a round waits for its whole cohort."""

    deadline_s: float | None = Field(None, ge=0, le=31_536_000)
    """Seconds after the start of a phase (first model, training, evaluation) from which a round proceeds without clients
    that are away or make no progress, if the others form the quorum. It waits for clients that make progress, however slow.
    No deadline if not set."""
    hard_deadline_s: float | None = Field(None, gt=0, le=31_536_000)
    """Seconds after the start of a phase from which a round proceeds also without clients that make progress, if those that
    are done form the quorum; longer than `deadline_s`. A restart of the aggregator and a resumed run count anew. No hard
    deadline if not set."""
    min_clients: int | None = Field(None, ge=1, le=100_000)
    """Fewest clients whose updates, and later reports, a round needs. The whole cohort if neither this nor `every_domain`
    is set."""
    every_domain: bool = False
    """Whether a round needs an update, and later a report, of at least one client of every domain in its cohort."""
    silence_s: float = Field(120.0, gt=0, le=31_536_000)
    """Seconds without progress (bytes moved, an epoch advanced) after which an overdue phase no longer waits for a connected
    client; at least the aggregator's lease. It never waits for a client whose lease ran out or that reports that it cannot
    do its task. Choose it longer than a client's longest work without reported progress: reading its data, or clustering."""
    on_no_quorum: Literal["wait", "fail"] = "wait"
    """Behaviour of a run that cannot reach its quorum: wait for clients, and name them, or fail. Clients that a round did
    not draw take nobody's place: with "fail" one that stays away ends a run whose quorum needs its whole cohort."""

    @model_validator(mode="after")
    def _somebody_may_be_missing(self) -> Self:
        may_miss = self.min_clients is not None or self.every_domain
        is_timed = (
            may_miss
            or self.hard_deadline_s is not None
            or self.silence_s != type(self).model_fields["silence_s"].default
        )
        if is_timed and self.deadline_s is None:
            raise InvalidKey(
                "deadline_s", "set 'deadline_s' too: without a deadline every round waits for its whole cohort"
            )
        if self.deadline_s is not None and self.hard_deadline_s is not None and self.hard_deadline_s <= self.deadline_s:
            raise InvalidKey("hard_deadline_s", "set 'hard_deadline_s' to more seconds than 'deadline_s'")
        if self.deadline_s is not None and not may_miss and self.on_no_quorum == "wait":
            raise InvalidKey(
                "min_clients",
                "deadline_s drops nobody while the quorum is the whole cohort; set 'min_clients' or 'every_domain' too, "
                'or on_no_quorum = "fail"',
            )
        return self


class RunTables(BaseModel):
    """Tables of a run's configuration, each right alone, and what follows from them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: RunSection
    method: MethodConfig
    model: ModelSection = ModelSection()
    data: DataSection
    training: TrainingSection = TrainingSection.model_validate({})
    admission: AdmissionSection = AdmissionSection.model_validate({})
    aggregation: AggregationSection = AggregationSection.model_validate({})
    quorum: QuorumSection = QuorumSection.model_validate({})
    evaluation: EvaluationSection = EvaluationSection.model_validate({})
    public: PublicSection = PublicSection.model_validate({})
    stream: StreamSection = StreamSection.model_validate({})
    membership: MembershipSection = NO_PLAN
    privacy: PrivacySection = PrivacySection.model_validate({})
    wire: WireSection = WireSection()

    @property
    def site_statistics_key(self) -> str | None:
        """The key, with its value, by which clients compute BatchNorm statistics of their own images; None without any."""
        if self.evaluation.batch_norm == "site":
            return 'evaluation.batch_norm = "site"'
        return 'training.prototype_statistics = "site"' if self.training.prototype_statistics == "site" else None

    @property
    def evaluated_models(self) -> tuple[str, ...]:
        """The models that a client's report covers; the accuracy of the first is the round's accuracy.

        They are those of the method, and with statistics of the site the client's own in any case; where the run says what
        joining is worth, also those that its last round makes for this.
        """
        found = self.algorithm.evaluated_models(self.method)
        if self.evaluation.joining:
            return (*found, LOCAL_MODEL, ALONE_MODEL)
        is_own = LOCAL_MODEL in found or self.evaluation.batch_norm == "shared"
        return found if is_own else (*found, LOCAL_MODEL)

    @property
    def attack_epsilon(self) -> float:
        """Largest change of a value in [0, 1] by the attacks under which clients evaluate."""
        if self.evaluation.epsilon is not None:
            return self.evaluation.epsilon
        attack = self.training.attack
        return EPSILON if attack is None else attack.epsilon

    @property
    def num_pooled_clients(self) -> int:
        """Number of clients whose prototypes a round clusters, once for each round of `method.proto_window`.

        Clients that enter the run later are not counted.
        """
        roster = self.run.min_clients if self.run.clients is None else len(self.run.clients)
        assert roster is not None
        if not isinstance(self.method, PrototypeConfig):
            return roster
        is_drawn = self.run.cohort_size is not None and not self.method.proto_staleness
        return (self.run.cohort_size or roster if is_drawn else roster) * self.method.proto_window

    @property
    def max_prototypes_per_class(self) -> int:
        """Most prototypes of a class in an update: what the configuration says, or else what `MAX_PAIRS` allows."""
        configured = self.admission.max_prototypes_per_class
        return (
            most_rows_per_class(len(self.data.classes), self.num_pooled_clients) if configured is None else configured
        )

    def evaluates(self, number: int, total_rounds: int) -> bool:
        """Whether clients evaluate a round, from 1; they evaluate the last one of every stage."""
        return self.evaluation.covers(number, total_rounds) or self.stream.ends_stage(number)

    @property
    def initial_class_map(self) -> ClassMap | None:
        """Where the classes are in the head of the initial model; None where it has the same ones, or there is none."""
        known = self.run.initial_classes
        return None if known is None else class_map(self.data.classes, known)

    @property
    def algorithm(self) -> Method:
        """The method's record; with noise that of its private form."""
        release = self.release
        if release is None or private_refusal(self.base_algorithm, self.method) is not None:
            return self.base_algorithm
        return private_form(self.base_algorithm, release.clip, release.noise)

    @property
    def base_algorithm(self) -> Method:
        """The method's record as it is without noise."""
        return METHODS[self.run.method]

    @property
    def keeps_client_state(self) -> bool:
        """Whether an update depends on what the client kept: the method's state, or what rounding left out."""
        return self.wire.is_encoded or self.algorithm.keeps_client_state

    @property
    def release(self) -> Release | None:
        """How clients release class sums; None where no noise is added."""
        return self.privacy.release(self.run.rounds)

    @property
    def withholds(self) -> bool:
        """Whether nothing that is made of training images leaves a client but releases with noise."""
        return self.privacy.claim == "site"
