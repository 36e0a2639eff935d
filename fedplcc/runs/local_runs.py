"""Runs on this machine's disk: the folders that `simulate`, `demo`, `compare` and `run fetch` leave, found and read.

A folder with run.json or federation.json is a run's. One that cannot be read is named with its problem beside the others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedplcc.runs.artifacts import MANIFEST, METRICS
from fedplcc.runs.configuration_text import SECTIONS
from fedplcc.runs.run_folder import FEDERATION
from fedplcc.shared.process.disk import open_regular, read_regular
from fedplcc.shared.scoring.scores import Score, score_of, values_of

MAX_FOLDERS = 100_000
"""Most folders that are looked into."""
MAX_RUNS = 10_000
"""Most runs that are read."""
MAX_DEPTH = 8
"""Most folders below the one that is searched."""
MAX_FILE_BYTES = 8 << 20
"""Largest configuration that is read."""
TAIL_BYTES = 256 << 10
"""Bytes at the end of metrics.jsonl that are read: the last evaluated round stands there."""
MAX_SENTENCE = 300
"""Most characters of a problem."""
UNSET = "-"
"""Value of a key that a configuration does not set."""
OF_NO_RUN = ("state", "logs", "pictures")
"""Folders within which no run is looked for."""
ACCURACY_KEYS = ("mean", "worst")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRun:
    """A run's folder.

    Attributes:
        round: Its last committed round; 0 if it has not ended.
        score: What `mean` and `worst` are of: accuracy, or balanced accuracy.
        mean: Mean score over domains of the last evaluated round, a fraction.
        settings: What its configuration sets, by dotted key, defaults included.
    """

    folder: Path
    method: str
    seed: int
    round: int
    total_rounds: int
    has_ended: bool
    score: Score
    mean: float | None
    worst: float | None
    created_at: datetime
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """Runs below some folders.

    Attributes:
        broken: A sentence for each folder that cannot be read, by its path.
        is_whole: Whether everything was looked at.
    """

    runs: Sequence[LocalRun]
    broken: Mapping[str, str]
    is_whole: bool


def find_runs(
    folders: Sequence[Path], *, max_folders: int = MAX_FOLDERS, max_runs: int = MAX_RUNS, max_depth: int = MAX_DEPTH
) -> Found:
    """Read the runs in and below some folders. Symbolic links are not followed."""
    runs, broken, num_folders = list[LocalRun](), dict[str, str](), 0
    for root in folders:
        for folder, names in _walk(root, broken, max_depth):
            num_folders += 1
            if num_folders > max_folders or len(runs) + len(broken) >= max_runs:
                return Found(runs, broken, is_whole=False)
            if not {MANIFEST, FEDERATION} & names:
                continue
            try:
                runs.append(_read(folder, has_ended=MANIFEST in names))
            except OSError as error:
                broken[str(folder)] = f"cannot be read ({error.strerror or error})"
            except KeyError as error:
                broken[str(folder)] = f"does not hold a whole run (its files do not say {error})"[:MAX_SENTENCE]
            except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
                broken[str(folder)] = f"does not hold a whole run ({error})"[:MAX_SENTENCE]
    return Found(runs, broken, is_whole=True)


def differing_keys(runs: Sequence[LocalRun]) -> list[str]:
    """Return the keys whose values are not the same in all runs, those of a method in all runs of it, by section."""
    values: dict[str, dict[str, set[str]]] = {}
    methods: dict[str, int] = {}
    for run in runs:
        methods[run.method] = methods.get(run.method, 0) + 1
        for key, value in run.settings.items():
            of_method = run.method if key.startswith("method.") else ""
            values.setdefault(key, {}).setdefault(of_method, set()).add(_text(value))
    having: dict[tuple[str, str], int] = {}
    for run in runs:
        for key in run.settings:
            group = run.method if key.startswith("method.") else ""
            having[key, group] = having.get((key, group), 0) + 1
    found = [
        key
        for key, groups in values.items()
        if any(
            len(texts) > 1 or having[key, group] < (methods[group] if group else len(runs))
            for group, texts in groups.items()
        )
    ]
    return sorted(found, key=_place)


def differences(run: LocalRun, keys: Sequence[str]) -> dict[str, str]:
    """Return the values of a run's keys as texts; keys of other methods are left out."""
    return {
        key: _text(run.settings[key]) if key in run.settings else UNSET
        for key in keys
        if key in run.settings or not key.startswith("method.")
    }


def _walk(root: Path, broken: dict[str, str], max_depth: int) -> Iterator[tuple[Path, set[str]]]:
    """Yield folders with the names of their files; nothing below a run's folder."""

    def failed(error: OSError) -> None:
        broken[str(error.filename)] = f"cannot be read ({error.strerror or error})"

    for parent, below, files in os.walk(root, onerror=failed):
        folder, names = Path(parent), set(files)
        yield folder, names
        depth = len(folder.relative_to(root).parts)
        is_run = bool({MANIFEST, FEDERATION} & names)
        below[:] = (
            []
            if is_run or depth >= max_depth
            else sorted(name for name in below if name not in OF_NO_RUN and not name.startswith("."))
        )


def _read(folder: Path, *, has_ended: bool) -> LocalRun:
    file = folder / (MANIFEST if has_ended else FEDERATION)
    if file.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{file.name} has more than {MAX_FILE_BYTES >> 20} MiB")
    document = json.loads(read_regular(file))
    config = document["config"]
    run = config["run"]
    last, evaluated = _last_rounds(folder / METRICS) if has_ended else (0, {})
    values = values_of(evaluated) or {}
    began = document["created_at"] if has_ended else file.stat().st_mtime
    mean, worst = (_fraction(values.get(key)) for key in ACCURACY_KEYS)
    return LocalRun(
        folder=folder,
        method=str(run["method"]),
        seed=int(run["seed"]),
        round=last,
        total_rounds=int(run["rounds"]),
        has_ended=has_ended,
        score=score_of(evaluated),
        mean=mean,
        worst=worst,
        created_at=datetime.fromtimestamp(float(began), UTC),
        settings=dict(_flat(config)),
    )


def _last_rounds(path: Path) -> tuple[int, Mapping[str, Any]]:
    """Return the number of the last committed round, and the line of the last one that was evaluated."""
    with open_regular(path) as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        lines = file.read().splitlines()
    number = 0
    for line in reversed(lines):
        found = json.loads(line)
        number = number or int(found["round"])
        if found["accuracy"] is not None:
            return number, found
    return number, {}


def _fraction(value: Any) -> float | None:
    return None if value is None else float(value)


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None and prefix + key != "run.name":
            yield prefix + key, value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _place(key: str) -> tuple[int, str]:
    section, sections = key.partition(".")[0], [*SECTIONS]
    return sections.index(section) if section in sections else len(sections), key
