"""Where a run's first model comes from, as `run.initial_model` says it. Pure.

    file:PATH            a safetensors file; whoever starts the run uploads it, and the run keeps its SHA-256
    run:RUN_ID           the last round that this run has committed by now
    run:RUN_ID@ROUND     that round of it
    sha256:HEX           a model that the aggregator holds already; what the others become

So a run's configuration and its hash name the model by its content, wherever it came from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

FILE_SUFFIX = ".safetensors"
"""A text that ends so and names no other form is a file."""
FORMS = "write file:PATH, run:RUN_ID, run:RUN_ID@ROUND or sha256:HEX"

_SHA256 = re.compile(r"[0-9a-f]{64}")
_RUN = re.compile(r"(?P<run_id>[A-Za-z0-9][A-Za-z0-9._-]{0,127})(@(?P<round>[0-9]{1,6}))?")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file on the machine of whoever starts the run."""

    path: str

    def __str__(self) -> str:
        return f"file:{self.path}"


@dataclass(frozen=True, slots=True)
class ModelOfRun:
    """A committed round of another run; the last one if `round` is None."""

    run_id: str
    round: int | None

    def __str__(self) -> str:
        return f"run:{self.run_id}" + ("" if self.round is None else f"@{self.round}")


@dataclass(frozen=True, slots=True)
class ModelBlob:
    """A model that the aggregator holds."""

    sha256: str

    def __str__(self) -> str:
        return f"sha256:{self.sha256}"


InitialModel: TypeAlias = ModelFile | ModelOfRun | ModelBlob


def parse_initial_model(text: str) -> InitialModel:
    """What `run.initial_model` names; `str` of the result is its usual form.

    Raises:
        ValueError: It is none of the forms.
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
