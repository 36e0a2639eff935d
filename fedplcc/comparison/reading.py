"""What a cell's folder holds: whole cells with every round's values, or why a cell is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedplcc.artifacts import EVALUATIONS, MANIFEST, METRICS, TIMINGS
from fedplcc.comparison.plan import Cell
from fedplcc.configuration import federation_json
from fedplcc.plots import SUMMARIES
from fedplcc.run_folder import FEDERATION, RunFolder
from shared.types import GLOBAL_MODEL, LOCAL_MODEL

TEST_SET = "test"
PICTURES = "pictures"
"""Folder below a cell's: PNG and SVG files in it are shown in the report, NAME.png with the caption of NAME-facts.json."""
MAX_NAMED_KEYS = 3
"""Most keys that are named where two configurations differ."""

Counts = tuple[int, int]
"""Correct and total predictions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundValues:
    """One committed round.

    Attributes:
        number: Its number, from 1.
        accuracy: By model (GLOBAL_MODEL, and LOCAL_MODEL where clients have one), then domain: fraction of the domain's test
            samples that are named right; None where nobody reported.
        counts: The integers behind them where they are known.
        computed: Losses, prototypes and the like, by name; the same on every run.
        measured: Seconds and bytes, by name.
    """

    number: int
    accuracy: Mapping[str, Mapping[str, float | None]]
    counts: Mapping[tuple[str, str], Counts]
    computed: Mapping[str, float]
    measured: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CellPicture:
    """A picture in a cell's folder.

    Attributes:
        path: Its file.
        caption: What it shows.
        alternative: What it says, for those who do not see it.
    """

    path: Path
    caption: str
    alternative: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """A cell that has been trained to its end."""

    cell: Cell
    rounds: Sequence[RoundValues]
    manifest: Mapping[str, Any]
    hashes: Mapping[str, str]
    """SHA-256 of the last model and prototypes: model, prototypes."""
    pictures: Sequence[CellPicture] = ()

    @property
    def domains(self) -> list[str]:
        """Domains of the accuracies."""
        return sorted({domain for accuracy in self.rounds[-1].accuracy.values() for domain in accuracy})


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingCell:
    """A cell that is not there, and why."""

    cell: Cell
    reason: str
    can_be_trained: bool = True
    """Whether training goes on from what lies there; otherwise somebody has to remove it first."""


def read_cell(cell: Cell, failure: str | None = None) -> CellResult | MissingCell:
    """Read what a cell's training left.

    Args:
        cell: Which one.
        failure: Why it could not be trained the last time, if so.
    """
    if cell.folder.is_dir():
        difference = difference_to(cell)
        if difference is not None:
            return MissingCell(cell=cell, reason=difference, can_be_trained=False)
        try:
            if is_whole(cell):
                return _read(cell)
        except (OSError, ValueError, LookupError, TypeError) as error:
            return _damaged(cell, f"cannot be read ({error})")
        if (cell.folder / MANIFEST).exists() and not RunFolder(cell.folder, False).state.exists():
            return _damaged(cell, f"has a {MANIFEST} but not a line for each round in {METRICS}")
        if failure is None and (cell.folder / FEDERATION).exists():
            return MissingCell(cell=cell, reason="begun and not finished; the same command goes on with it")
    return MissingCell(cell=cell, reason=failure or "not trained yet")


def is_whole(cell: Cell) -> bool:
    """Whether a cell's run has committed all its rounds and its files are there."""
    manifest = cell.folder / MANIFEST
    if not manifest.exists():
        return False
    rounds: int = json.loads(manifest.read_bytes())["total_rounds"]
    return len((cell.folder / METRICS).read_text(encoding="utf-8").splitlines()) == rounds


def difference_to(cell: Cell) -> str | None:
    """What to do about a folder that holds another configuration's run; None if it holds this one's or none."""
    path = cell.folder / FEDERATION
    try:
        held = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    wanted = federation_json(cell.federation)
    if held == wanted:
        return None
    try:
        keys = _differing(json.loads(held), json.loads(wanted))
    except ValueError:
        keys = []
    if "run.method" in keys:
        keys = [key for key in keys if not key.startswith("method.")]  # another method's are others anyway
    named = ", ".join(keys[:MAX_NAMED_KEYS]) + (" and more" if len(keys) > MAX_NAMED_KEYS else "")
    what = f" ({named})" if named else ""
    return (
        f"{cell.folder} holds a run of another configuration than the file has now{what}; "
        "remove that folder to train the cell again, or choose another with --out"
    )


def mean_of(accuracy: Mapping[str, float | None]) -> float | None:
    """Mean over the domains that have an accuracy, as metrics.jsonl has it."""
    known = [value for value in accuracy.values() if value is not None]
    return sum(known) / len(known) if known else None


def worst_of(accuracy: Mapping[str, float | None]) -> float | None:
    """The lowest accuracy of a domain."""
    return min((value for value in accuracy.values() if value is not None), default=None)


def _damaged(cell: Cell, what: str) -> MissingCell:
    """A cell with which training would not go on: it ended long ago."""
    return MissingCell(cell=cell, reason=f"{cell.folder} {what}; remove it to train it again", can_be_trained=False)


def _read(cell: Cell) -> CellResult:
    folder = cell.folder
    metrics = _lines(folder / METRICS)
    timings = {line["round"]: line for line in _lines(folder / TIMINGS, is_optional=True)}
    reports = _counts(_lines(folder / EVALUATIONS, is_optional=True))
    last = metrics[-1]
    return CellResult(
        cell=cell,
        rounds=[_round(line, timings.get(line["round"], {}), reports.get(line["round"], {})) for line in metrics],
        manifest=json.loads((folder / MANIFEST).read_bytes()),
        hashes={"model": last["model_sha256"], "prototypes": last["prototypes_sha256"]},
        pictures=[_picture(path) for path in sorted((folder / PICTURES).glob("*")) if path.suffix in (".png", ".svg")],
    )


def _round(line: Mapping[str, Any], timing: Mapping[str, Any], counts: Mapping[tuple[str, str], Counts]) -> RoundValues:
    accuracy = {line.get("accuracy_of", GLOBAL_MODEL): line["accuracy"]}
    if "accuracy_local" in line:
        accuracy[LOCAL_MODEL] = line["accuracy_local"]
    return RoundValues(
        number=line["round"],
        accuracy={
            model: {domain: value for domain, value in values.items() if domain not in SUMMARIES}
            for model, values in accuracy.items()
        },
        counts=counts,
        computed={
            **{f"loss.{term}": value for term, value in sorted(line["loss"].items())},
            **{f"prototypes.{which}": count for which, count in sorted(line["prototypes"].items())},
            **{name: line[name] for name in ("num_examples", "num_excluded") if name in line},
        },
        measured=_measured(timing),
    )


def _picture(path: Path) -> CellPicture:
    """A picture with what its facts say of it; without any its name has to do."""
    words = path.stem.replace("-", " ").replace("_", " ")
    try:
        facts = json.loads(path.with_name(f"{path.stem}-facts.json").read_bytes())
        return CellPicture(path, str(facts["caption"]), str(facts["alt_text"]))
    except (OSError, ValueError, LookupError, TypeError):
        return CellPicture(path, words, words)


def _measured(timing: Mapping[str, Any]) -> dict[str, float]:
    """Seconds by phase, and bytes that the clients sent and received: a round's model twice, to train and to evaluate."""
    seconds = {f"seconds.{phase}": value for phase, value in sorted(timing.get("seconds", {}).items())}
    clients = list(timing.get("clients", {}).values())
    if not clients:
        return seconds
    return {
        "bytes.sent": sum(client.get("sent_bytes", 0) for client in clients),
        "bytes.received": sum(
            client.get("received_bytes", 0) + client.get("evaluation_received_bytes", 0) for client in clients
        ),
        **seconds,
    }


def _counts(reports: Iterable[Mapping[str, Any]]) -> dict[int, dict[tuple[str, str], Counts]]:
    """Correct and total predictions on the test sets by round, then domain and model; pooled over a domain's clients."""
    pooled: dict[int, dict[tuple[str, str], Counts]] = {}
    for report in reports:
        of_round = pooled.setdefault(report["round"], {})
        for counts in report["counts"]:
            if counts["set_name"] == TEST_SET:
                key = (report["domain"], counts["model"])
                correct, total = of_round.get(key, (0, 0))
                of_round[key] = (correct + sum(counts["correct"]), total + sum(counts["total"]))
    return pooled


def _lines(path: Path, *, is_optional: bool = False) -> list[dict[str, Any]]:
    if is_optional and not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _differing(held: Any, wanted: Any, prefix: str = "") -> list[str]:
    """Dotted keys whose values differ."""
    if not (isinstance(held, Mapping) and isinstance(wanted, Mapping)):
        return [] if held == wanted else [re.sub(r"^config\.", "", prefix)]
    found: list[str] = []
    for key in sorted({*held, *wanted}):
        if held.get(key) != wanted.get(key):
            found += _differing(held.get(key), wanted.get(key), f"{prefix}.{key}" if prefix else str(key))
    return found
