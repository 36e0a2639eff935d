"""Forms of `run.initial_model`, the source of a run's first model, and the runs that trained it.

    file:PATH            a safetensors file; the command uploads it
    run:RUN_ID           the last committed round of another run
    run:RUN_ID@ROUND     a certain round of it
    sha256:HEX           a model that the aggregator stores

All other forms are replaced by sha256:HEX when the run is created: its configuration and hash name the model by content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from fedplcc.shared.bounds import RUN_ID_PATTERN
from fedplcc.shared.config.sections import form

FILE_SUFFIX = ".safetensors"
"""A text with this suffix and none of the prefixes is a file."""
FORMS = "write file:PATH, run:RUN_ID, run:RUN_ID@ROUND or sha256:HEX"

MAX_INITIAL_RUNS = 64
"""Most runs that `run.initial_runs` names."""
ABOUT_RUN_IDS = "a run's id is up to 128 letters, digits, '.', '_' or '-', and begins with a letter or a digit"
RunId = Annotated[str, Field(pattern=form(RUN_ID_PATTERN, ABOUT_RUN_IDS))]

_SHA256 = re.compile(r"[0-9a-f]{64}")
_RUN = re.compile(r"(?P<run_id>[A-Za-z0-9][A-Za-z0-9._-]{0,127})(@(?P<round>[0-9]{1,6}))?")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """File on the machine where the command runs."""

    path: str

    def __str__(self) -> str:
        return f"file:{self.path}"


@dataclass(frozen=True, slots=True)
class ModelOfRun:
    """Committed round of another run; the last one if `round` is None."""

    run_id: str
    round: int | None

    def __str__(self) -> str:
        return f"run:{self.run_id}" + ("" if self.round is None else f"@{self.round}")


@dataclass(frozen=True, slots=True)
class ModelBlob:
    """Model that the aggregator stores."""

    sha256: str

    def __str__(self) -> str:
        return f"sha256:{self.sha256}"


InitialModel: TypeAlias = ModelFile | ModelOfRun | ModelBlob


def parse_initial_model(text: str) -> InitialModel:
    """Return the source that `run.initial_model` names; its `str` is the canonical form.

    Raises:
        ValueError: The text has none of the forms.
    """
    scheme, colon, rest = text.partition(":")
    if scheme == "file" and colon and rest:
        return ModelFile(rest)
    if scheme == "run" and (run := _RUN.fullmatch(rest)):
        return ModelOfRun(run["run_id"], None if run["round"] is None else int(run["round"]))
    if scheme == "sha256" and _SHA256.fullmatch(rest):
        return ModelBlob(rest)
    if text.endswith(FILE_SUFFIX):
        return ModelFile(text)
    raise ValueError(FORMS)


def lineage(*runs: Iterable[str]) -> tuple[str, ...]:
    """Return the runs that trained a model, each once, the last first; of more than `MAX_INITIAL_RUNS` the latest."""
    return tuple(dict.fromkeys(name for each in runs for name in each))[:MAX_INITIAL_RUNS]


def manifest_beside(model: Path) -> Mapping[str, Any] | None:
    """Return the description of an adapted model beside its file, else the run.json of a run's; None where there is none."""
    for path in (model.with_name(f"{model.name}.json"), model.with_name("run.json")):
        try:
            manifest: Mapping[str, Any] = json.loads(path.read_bytes() if path.is_file() else b"")
            _ = manifest["config"]["data"]["classes"], manifest["config"]["run"]["seed"]
            if manifest["run_id"] is not None:
                return manifest
        except (OSError, ValueError, LookupError, TypeError):
            continue
    return None


def runs_beside(model: Path) -> tuple[str, ...] | None:
    """Return the runs that trained a model file, the last first, by the run.json beside it; None where there is none."""
    manifest = manifest_beside(model)
    if manifest is None:
        return None
    return lineage([str(manifest["run_id"])], manifest["config"]["run"].get("initial_runs") or ())
