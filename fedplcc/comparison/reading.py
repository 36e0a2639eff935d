"""What a cell's folder holds: whole cells with every round's values, or why a cell is missing."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from fedplcc.comparison.plan import Cell
from fedplcc.runs.artifacts import EVALUATIONS, MANIFEST, METRICS, TIMINGS
from fedplcc.runs.configuration import federation_json
from fedplcc.runs.plots import SUMMARIES
from fedplcc.runs.run_folder import FEDERATION, RunFolder
from shared.types import GLOBAL_MODEL, LOCAL_MODEL

TEST_SET = "test"
PICTURES = "pictures"
"""Folder below a cell's: PNG and SVG files in it are shown in the report, NAME.png with the caption of NAME-facts.json."""
MAX_NAMED_KEYS = 3
"""Most keys that are named where two configurations differ."""
TRAIN_AGAIN = "restore the file, or remove the folder to train the cell again"
"""What to do about a damaged file that a report needs."""
DO_WITHOUT = "restore or remove the file; the report does without it"
"""What to do about another one."""

ARCHIVE_SUFFIX = ".zip"
Files = Path | zipfile.Path
"""A file or a folder, on the disk or in an archive."""
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


class Absence(Enum):
    """What has become of a cell that is not there."""

    NOT_TRAINED = "not trained"
    BEGUN = "begun"
    FAILED = "failed"
    UNUSABLE = "unusable"
    """What lies there is damaged, or of another configuration: somebody has to remove it first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingCell:
    """A cell that is not there, and why."""

    cell: Cell
    absence: Absence
    reason: str

    @property
    def can_be_trained(self) -> bool:
        """Whether training begins, or goes on from what lies there."""
        return self.absence is not Absence.UNUSABLE


def read_cell(cell: Cell, failure: str | None = None) -> CellResult | MissingCell:
    """Read the files of a cell: those in its folder, else those in its data set's archive.

    Args:
        cell: Which one.
        failure: Why it could not be trained the last time, if so.
    """
    with ExitStack() as opened:
        try:
            files = _files_of(cell, opened)
            unusable = None if files is None else _difference(cell, files)
            if files is not None and unusable is None and _is_whole(files):
                return _read(cell, files)
        except _Unreadable as error:
            unusable = str(error)
    if unusable is not None:
        return MissingCell(cell=cell, absence=Absence.UNUSABLE, reason=unusable)
    if failure is None and (cell.folder / FEDERATION).exists():
        reason = "begun and not finished; the same command goes on with it"
        return MissingCell(cell=cell, absence=Absence.BEGUN, reason=reason)
    if failure is None:
        return MissingCell(cell=cell, absence=Absence.NOT_TRAINED, reason="not trained yet")
    return MissingCell(cell=cell, absence=Absence.FAILED, reason=failure)


def archive_path(out: Path, dataset: str) -> Path:
    """The archive of a data set's cells: a ZIP file that holds ROW/seed-SEED/FILE."""
    return out / f"{dataset}{ARCHIVE_SUFFIX}"


def _files_of(cell: Cell, opened: ExitStack) -> Files | None:
    """The folder of a cell's files, in its archive where the disk has none; None if it is in neither.

    Raises:
        _Unreadable: The archive cannot be opened.
    """
    archive = archive_path(cell.folder.parents[2], cell.dataset)
    if cell.folder.is_dir() or not archive.is_file():
        return cell.folder if cell.folder.is_dir() else None
    try:
        folder = zipfile.Path(opened.enter_context(zipfile.ZipFile(archive)), f"{cell.row}/seed-{cell.seed}/")
    except (OSError, zipfile.BadZipFile) as error:
        raise _Unreadable(f"{archive}: cannot be read ({error}); restore the file") from error
    return folder if folder.exists() else None


def _is_whole(files: Files) -> bool:
    """Whether a cell's run has committed all its rounds and its files are there; False where training goes on with it.

    Raises:
        _Unreadable: It has ended, and lost something since.
    """
    manifest, metrics = files / MANIFEST, files / METRICS
    if not manifest.exists():
        return False
    goes_on = isinstance(files, Path) and RunFolder(files, False).state.exists()
    try:
        with _reading(manifest, TRAIN_AGAIN):
            num_rounds = _object(manifest)["total_rounds"]
        with _reading(metrics, TRAIN_AGAIN):
            has_all: bool = len(metrics.read_text(encoding="utf-8").splitlines()) == num_rounds
    except _Unreadable:
        if goes_on:
            return False  # its files are written anew
        raise
    if not has_all and not goes_on:
        raise _Unreadable(
            f"{_name(files)}: there is a {MANIFEST} but not a line for each round in {METRICS}; {TRAIN_AGAIN}"
        )
    return has_all


def strays(out: Path, cells: Iterable[Cell]) -> list[str]:
    """Names of runs in a comparison's folder and its archives that are none of its cells, sorted."""
    planned = {cell.name for cell in cells}
    found = {path.parent.relative_to(out).as_posix() for path in out.glob(f"*/*/seed-*/{MANIFEST}")}
    for archive in out.glob(f"*{ARCHIVE_SUFFIX}"):
        with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(archive) as opened:
            names = [name.rpartition("/") for name in opened.namelist()]
            found |= {f"{archive.stem}/{folder}" for folder, _, file in names if file == MANIFEST}
    return sorted(found - planned)


def _difference(cell: Cell, files: Files) -> str | None:
    """What to do about a folder that holds another configuration's run; None if it holds this one's or none.

    Both federation.json, which need not be kept, and the hash in run.json must be of the configuration.

    Raises:
        _Unreadable: federation.json cannot be read.
    """
    path = files / FEDERATION
    try:
        held = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return _difference_of_hash(cell, files)
    except OSError as error:
        raise _Unreadable(
            f"{_name(files)}: cannot read {FEDERATION} ({error.strerror or error}); see that it can be read"
        ) from error
    wanted = federation_json(cell.federation)
    if held == wanted:
        return _difference_of_hash(cell, files)
    try:
        keys = _differing(json.loads(held), json.loads(wanted))
    except ValueError:
        keys = []
    if "run.method" in keys:
        keys = [key for key in keys if not key.startswith("method.")]  # another method's are others anyway
    named = ", ".join(keys[:MAX_NAMED_KEYS]) + (" and more" if len(keys) > MAX_NAMED_KEYS else "")
    return _of_another_configuration(files, f" ({named})" if named else "")


def _difference_of_hash(cell: Cell, files: Files) -> str | None:
    try:
        found = _object(files / MANIFEST).get("config_hash")
    except (OSError, ValueError):
        return None  # not there yet, or whoever reads more of it says what is wrong
    if found in (None, cell.federation.config.hash):
        return None
    return _of_another_configuration(files, f" (by the config_hash in {MANIFEST})")


def _of_another_configuration(files: Files, how: str) -> str:
    return (
        f"{_name(files)} holds a run of another configuration than the file has now{how}; "
        "remove that folder to train the cell again, or choose another with --out"
    )


def mean_of(accuracy: Mapping[str, float | None]) -> float | None:
    """Mean over the domains that have an accuracy, as metrics.jsonl has it."""
    known = [value for value in accuracy.values() if value is not None]
    return sum(known) / len(known) if known else None


def worst_of(accuracy: Mapping[str, float | None]) -> float | None:
    """The lowest accuracy of a domain."""
    return min((value for value in accuracy.values() if value is not None), default=None)


def _name(files: object) -> str:
    return str(files).rstrip("/")


class _Unreadable(Exception):
    """Files of a cell that cannot be used, as a sentence that says what to do."""


@contextmanager
def _reading(path: Files, remedy: str) -> Iterator[None]:
    """Within the block, whatever is wrong with the content of a file names it, and says what to do."""
    try:
        yield
    except OSError as error:
        raise _Unreadable(
            f"{_name(path.parent)}: cannot read {path.name} ({error.strerror or error}); {remedy}"
        ) from error
    except KeyError as error:
        raise _Unreadable(f"{_name(path.parent)}: {path.name} does not say {error}; {remedy}") from error
    except (ValueError, TypeError, AttributeError, IndexError, zipfile.BadZipFile, zlib.error) as error:
        raise _Unreadable(f"{_name(path.parent)}: {path.name} is damaged ({error}); {remedy}") from error


def _read(cell: Cell, folder: Files) -> CellResult:
    """Read a whole cell.

    Raises:
        _Unreadable: One of its files cannot be used.
    """
    with _reading(folder / TIMINGS, DO_WITHOUT):
        measured = {line["round"]: _measured(line) for line in _lines(folder / TIMINGS, is_optional=True)}
    with _reading(folder / EVALUATIONS, DO_WITHOUT):
        counts = _counts(_lines(folder / EVALUATIONS, is_optional=True))
    with _reading(folder / MANIFEST, TRAIN_AGAIN):
        manifest = _object(folder / MANIFEST)
        _ = manifest["config_hash"]  # which the report names
    with _reading(folder / METRICS, TRAIN_AGAIN):
        metrics = _lines(folder / METRICS)
        rounds = [_round(line, measured.get(line["round"], {}), counts.get(line["round"], {})) for line in metrics]
        hashes = {"model": metrics[-1]["model_sha256"], "prototypes": metrics[-1]["prototypes_sha256"]}
    drawn = [
        path
        for path in sorted((cell.folder / PICTURES).glob("*"))
        if path.suffix in (".png", ".svg") and path.is_file()
    ]
    return CellResult(cell=cell, rounds=rounds, manifest=manifest, hashes=hashes, pictures=[*map(_picture, drawn)])


def _round(
    line: Mapping[str, Any], measured: Mapping[str, float], counts: Mapping[tuple[str, str], Counts]
) -> RoundValues:
    """A line of metrics.jsonl, with what else is known of its round."""
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
        measured=measured,
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


def _lines(path: Files, *, is_optional: bool = False) -> list[dict[str, Any]]:
    """The objects of a file that holds one in each line."""
    if is_optional and not path.exists():
        return []
    return [
        _parsed(line, f"line {number} is no JSON object")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    ]


def _object(path: Files) -> dict[str, Any]:
    return _parsed(path.read_text(encoding="utf-8"), "it is no JSON object")


def _parsed(text: str, complaint: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(complaint) from error
    if not isinstance(found, dict):
        raise ValueError(complaint)
    return found


def _differing(held: Any, wanted: Any, prefix: str = "") -> list[str]:
    """Dotted keys whose values differ."""
    if not (isinstance(held, Mapping) and isinstance(wanted, Mapping)):
        return [] if held == wanted else [re.sub(r"^config\.", "", prefix)]
    found: list[str] = []
    for key in sorted({*held, *wanted}):
        if held.get(key) != wanted.get(key):
            found += _differing(held.get(key), wanted.get(key), f"{prefix}.{key}" if prefix else str(key))
    return found
