"""The result of a run, from its folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from fedplcc.runs.artifacts import RunRecord, read_record
from fedplcc.shared.config.run import RunConfig, parse_run_config

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure
    from torch import nn

    from fedplcc.models.trained_model import TrainedModel
    from fedplcc.shared.types import PrototypeSet

Row = TypeVar("Row")
BEFORE = "initial"
NO_DOMAINS = ("mean", "worst")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRow:
    """One committed round.

    Attributes:
        round: Its number, from 1.
        mean_accuracy: Mean over the domains, a fraction; None where the round was not evaluated.
        worst_accuracy: That of the worst domain.
        worst_domain: Which that is.
        loss: Mean training loss by term.
        local_prototypes: Prototypes that clients sent.
        global_prototypes: Prototypes that the aggregator made of them.
        num_examples: Training images behind the round.
        seconds: From its opening to its commit; None if unknown.
        model_sha256: Names the global model.
    """

    round: int
    mean_accuracy: float | None
    worst_accuracy: float | None
    worst_domain: str | None
    loss: Mapping[str, float]
    local_prototypes: int
    global_prototypes: int
    num_examples: int
    seconds: float | None
    model_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainRow:
    """The accuracy of one domain in one evaluated round, a fraction; None without a report.

    Attributes:
        round: The round.
        domain: The domain.
        model: "global", "local" for the clients' own models, or "alone" for those of their own images alone.
        accuracy: Fraction of correct test images.
    """

    round: int
    domain: str
    model: str
    accuracy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRow:
    """One client's count for one class in one evaluated round.

    Attributes:
        round: The round.
        client: The client.
        domain: Its domain.
        class_name: The class.
        set_name: "test", or another evaluation set such as test/fgsm.
        model: "global", "local" or "alone".
        correct: Correct predictions.
        total: Images of the class.
        precision: Of the images that were given the class those that are of it; None without evaluation.confusion or any.
        specificity: Of the images of other classes those that were not given the class; None likewise.
        f1: Harmonic mean of precision and recall, which is `accuracy`; None likewise.
    """

    round: int
    client: str
    domain: str
    class_name: str
    set_name: str
    model: str
    correct: int
    total: int
    precision: float | None = None
    specificity: float | None = None
    f1: float | None = None

    @property
    def accuracy(self) -> float | None:
        """Fraction of correct predictions; None without images."""
        return self.correct / self.total if self.total else None


class Table(Sequence[Row], Generic[Row]):
    """Typed records in order; `frame()` gives them as a pandas DataFrame."""

    def __init__(self, kind: type[Row], rows: Sequence[Row]) -> None:
        self._kind, self._rows = kind, tuple(rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        """Return a record, or several."""
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        """Return the kind and number of the records."""
        return f"<{len(self)} of {self._kind.__name__}>"

    def frame(self) -> pandas.DataFrame:
        """Return the records as a DataFrame, a column a field; fields that are tables become columns FIELD.KEY.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("frames need pandas: pip install 'fedplcc[pandas]'", name="pandas") from error
        columns = [each.name for each in fields(self._kind)]  # type: ignore[arg-type]  # rows are dataclasses
        rows = [_flat(asdict(row)) for row in self._rows]  # type: ignore[call-overload]
        return pandas.DataFrame(rows, columns=None if rows else columns)

    def _repr_html_(self) -> str:
        """Show the records in a notebook as pandas would, or as text."""
        try:
            frame: Any = self.frame()
        except ModuleNotFoundError:
            return f"<pre>{'<br>'.join(map(repr, self._rows[:50]))}</pre>"
        return str(frame._repr_html_())


class Result:
    """A run that has ended: its numbers, model and pictures.

    `Result("fedplcc-runs/digits")` reads any run's folder: of `simulate`, `demo`, a comparison's cell or `run fetch`.
    """

    def __init__(self, folder: Path | str, *, record: RunRecord | None = None, is_own: bool = False) -> None:
        """Read a run's folder.

        Args:
            folder: The folder.
            record: Its results, where the caller has read them.
            is_own: Whether the run's configuration is the caller's own, so that `model()` may run the code that it names.

        Raises:
            InvalidConfig: It does not hold a run's results.
        """
        self.folder = Path(folder).absolute()  # a notebook may go to another folder
        self._record = read_record(self.folder) if record is None else record
        self._is_own = is_own
        self._seconds: dict[int, float | None] = {}
        for line in map(json.loads, self._record.timings_lines):
            self._seconds[line["round"]] = line.get("seconds", {}).get("total")

    def __repr__(self) -> str:
        """Return folder, status and last accuracy."""
        last = next((row.mean_accuracy for row in reversed(self.rounds) if row.mean_accuracy is not None), None)
        accuracy = "" if last is None else f", mean accuracy {100 * last:.1f}%"
        return (
            f"<Result of {self.config.run.method}: {len(self.rounds)} rounds, {self.status}{accuracy}; {self.folder}>"
        )

    @cached_property
    def config(self) -> RunConfig:
        """The run's configuration with its defaults."""
        return parse_run_config(self._record.manifest["config"])

    @property
    def status(self) -> str:
        """How the run ended: completed, stopped or failed."""
        return self._record.status

    @property
    def reason(self) -> str:
        """Why it failed, was stopped or ended early; empty if there is nothing to say."""
        return self._record.reason

    @property
    def run_id(self) -> str:
        """The run's id."""
        return str(self._record.manifest["run_id"])

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return self._record.metrics

    @cached_property
    def rounds(self) -> Table[RoundRow]:
        """A record for each round."""
        return Table(RoundRow, [_round_row(line, self._seconds.get(line["round"])) for line in self.metrics])

    @cached_property
    def domains(self) -> Table[DomainRow]:
        """A record for each evaluated round, domain and kind of model."""
        return Table(DomainRow, list(_domain_rows(self.metrics)))

    @cached_property
    def classes(self) -> Table[ClassRow]:
        """A record for each evaluated round, client, class, set and model; empty for a run that was fetched."""
        return Table(ClassRow, list(_class_rows(self._record.evaluations_lines, self.config.data.classes)))

    def model(self, *, device: str = "cpu") -> nn.Module:
        """Return the global model of the last round in eval mode; see `fedplcc.load_model`.

        Raises:
            InvalidModel: The method shares no model, or the folder lacks it.
        """
        return self._trained(device).model

    def prototypes(self) -> PrototypeSet:
        """Return the global prototypes of the last round; empty where the method has none."""
        return self._trained("cpu").prototypes

    def plot_accuracy(self) -> Figure:
        """Return a figure of each domain's accuracy, in percent, over the rounds.

        Raises:
            ModuleNotFoundError: matplotlib is not installed.
        """
        from fedplcc.runs.plots import accuracy_figure

        run = self.config.run
        return _shown(accuracy_figure(self.metrics, title=f"{run.name}: {run.method}, seed {run.seed}"))

    def plot_map(self, *, before: Literal["initial"] | None = None, per_class: int = 20, device: str = "cpu") -> Figure:
        """Return a figure of features and prototypes on a plane, as `fedplcc model map` draws it.

        Args:
            before: "initial" for a panel of the model that the run began with, too.
            per_class: Test images of each class and domain.
            device: Where features are computed.

        Raises:
            InvalidConfig, InvalidData: The folder does not name the clients' data, or they are missing.
            ModuleNotFoundError: matplotlib or scikit-learn is not installed.
        """
        from fedplcc.pictures.making import make_map
        from fedplcc.pictures.map_drawing import map_figure
        from fedplcc.pictures.models import first_model
        from fedplcc.pictures.shown_clients import shown_clients

        trained = self._trained(device)
        clients = shown_clients(trained.file, trained.config)
        first = first_model(trained) if before == BEFORE else None
        return _shown(map_figure(make_map(trained, first, clients, per_class=per_class)))

    def _trained(self, device: str) -> TrainedModel:
        from fedplcc.models.trained_model import read_trained_model

        trusted = self.config.model.name if self._is_own else None
        return read_trained_model(self.folder, device=device, trusted_factory=trusted)


def _shown(figure: Figure) -> Figure:
    """Return the figure as one that a notebook shows: without pyplot, which is not for libraries, it would show its name."""
    from fedplcc.runs.plots import png

    figure._repr_png_ = lambda: png(figure)  # type: ignore[attr-defined]
    return figure


def _round_row(line: Mapping[str, Any], seconds: float | None) -> RoundRow:
    accuracy = line["accuracy"] or {}
    domains = {name: value for name, value in accuracy.items() if name not in NO_DOMAINS and value is not None}
    return RoundRow(
        round=line["round"],
        mean_accuracy=accuracy.get("mean"),
        worst_accuracy=accuracy.get("worst"),
        worst_domain=min(domains, key=lambda name: domains[name]) if domains else None,
        loss=dict(line["loss"]),
        local_prototypes=line["prototypes"]["local"],
        global_prototypes=line["prototypes"]["global"],
        num_examples=line["num_examples"],
        seconds=seconds,
        model_sha256=line["model_sha256"],
    )


def _domain_rows(lines: Sequence[Mapping[str, Any]]) -> Iterator[DomainRow]:
    for line in lines:
        kinds = {
            "local" if line.get("accuracy_of") else "global": line["accuracy"],
            "local": line.get("accuracy_local"),
            "alone": line.get("accuracy_alone"),
            "pooled": line.get("accuracy_pooled"),
        }
        if line.get("accuracy_of"):
            kinds = {"local": line["accuracy"]}
        for model, accuracy in kinds.items():
            for domain, value in (accuracy or {}).items():
                if domain not in NO_DOMAINS:
                    yield DomainRow(round=line["round"], domain=domain, model=model, accuracy=value)


def _class_rows(lines: Sequence[str], classes: Sequence[str]) -> Iterator[ClassRow]:
    for report in map(json.loads, lines):
        for counts in report["counts"]:
            scores = counts.get("scores") or {}
            for place, (name, correct, total) in enumerate(
                zip(classes, counts["correct"], counts["total"], strict=True)
            ):
                yield ClassRow(
                    round=report["round"],
                    client=report["client_id"],
                    domain=report["domain"],
                    class_name=name,
                    set_name=counts["set_name"],
                    model=counts["model"],
                    correct=correct,
                    total=total,
                    **{key: scores[key][place] for key in ("precision", "specificity", "f1") if scores},
                )


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        found |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, Mapping) else {name: value}
    return found
