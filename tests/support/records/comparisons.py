"""Comparisons for tests: a file, and cells whose results are written down rather than trained."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.comparison.file import read_comparison
from fedplcc.comparison.plan import Cell, plan
from fedplcc.comparison.reading import CellResult, Findings, MissingCell, read_cell, read_findings
from fedplcc.runs.artifacts import EVALUATIONS, MANIFEST, METRICS, TIMINGS
from fedplcc.runs.configuration import federation_json
from fedplcc.runs.run_folder import FEDERATION

RUN = """
[run]
name = "digits"
method = "fedplcc"
rounds = 3

[data]
classes = ["0", "1"]

[clients.mnist]
data = "npz:mnist.npz"

[clients.svhn]
data = "npz:svhn.npz"
"""
VALIDATED = RUN.replace('classes = ["0", "1"]', 'classes = ["0", "1"]\nvalidation_every = 5')
COMPARISON = """
[compare]
name = "few"
title = "A few methods"
notes = "Two domains."
seeds = [0, 1, 2]
baseline = "average"

[datasets.digits]
config = "run.toml"
label = "Digits"
extra.published = "fedplcc/digit5"
extra.differs = ["The images are made up.", "There are two domains."]

[rows.average]
method = "fedavg"
label = "FedAvg"
extra.published = "FedAvg"
group = ["methods", "readings"]

[rows.prototypes]
method = "fedplcc"
label = "FedPLCC"
extra.published = "FedPLCC"

[rows.all]
method = "fedplcc"
label = "FedPLCC, phi = 1"
group = "readings"
set = { "method.phi" = 1.0 }

[groups.readings]
title = "Open readings"
"""
TOTAL = 1000
"""Images of every test set."""
ROUNDS = [{"mnist": 0.2, "svhn": 0.1}, {"mnist": 0.8, "svhn": 0.4}, {"mnist": 0.7, "svhn": 0.3}]
"""Accuracies by round and domain; the second round is the best."""


def write_comparison(folder: Path, comparison: str = COMPARISON, run: str = RUN) -> Path:
    """The comparison's file, beside the configuration of its data set."""
    (folder / "run.toml").write_text(run)
    path = folder / "compare.toml"
    path.write_text(comparison)
    return path


def cells_of(path: Path, out: Path, **choice: Any) -> list[Cell]:
    return plan(read_comparison(path), path, out, **choice)


def write_cell(
    cell: Cell,
    accuracies: Sequence[Mapping[str, float | None]],
    *,
    local: Sequence[Mapping[str, float]] = (),
    validation: Sequence[Mapping[str, float]] = (),
    has_global: bool = True,
    seconds: float = 2.0,
) -> None:
    """Write the files of a trained cell with these accuracies by round and domain.

    With `validation` clients have validation images too. With `local` clients have models of their own; without
    `has_global` only these, and `accuracies` are theirs.
    """
    cell.folder.mkdir(parents=True, exist_ok=True)
    metrics, reports, timings = [], [], []
    for index, accuracy in enumerate(accuracies):
        own: dict[str, Any] = {"accuracy_local": _summed(local[index])} if local else {}
        if not has_global:
            own = {"accuracy_of": "local", "accuracy_local": _summed(accuracy)}
        if validation:
            own["accuracy_validation"] = _summed(validation[index])
        metrics.append(
            {
                "round": index + 1,
                "accuracy": _summed(accuracy),
                **own,
                "loss": {"ce": 1.0 / (index + 1)},
                "prototypes": {"local": 8, "global": 4},
                "num_examples": 60,
                "model_sha256": f"{index + 1:064x}",
                "prototypes_sha256": f"{index + 11:064x}",
            }
        )
        timings.append(
            {
                "round": index + 1,
                "seconds": {"total": seconds, "collecting": seconds / 2},
                "clients": {
                    domain: {"sent_bytes": 1e6, "received_bytes": 2e6, "evaluation_received_bytes": 1e6}
                    for domain in accuracy
                },
            }
        )
        for domain, value in accuracy.items():
            if value is not None:
                counts = [_counts("global" if has_global else "local", value)]
                counts += [_counts("local", local[index][domain])] if local else []
                reports.append({"round": index + 1, "client_id": domain, "domain": domain, "counts": counts})
    manifest = {
        "run_id": "digits-1",
        "total_rounds": cell.federation.config.run.rounds,
        "config_hash": cell.federation.config.hash,
        "config": json.loads(cell.federation.config.canonical_json),
        "aggregator": {"fedplcc": "0.1.0", "python": "3.11.7"},
        "clients": {"mnist": {"environment": {"packages": {"torch": "2.15.0"}, "cpu": "x86_64", "device": "cpu"}}},
    }
    (cell.folder / FEDERATION).write_text(federation_json(cell.federation))
    for name, lines in ((METRICS, metrics), (TIMINGS, timings), (EVALUATIONS, reports)):
        (cell.folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (cell.folder / MANIFEST).write_text(json.dumps(manifest))


def findings_of(path: Path, cells: Sequence[Cell], failures: Mapping[str, str] | None = None) -> Findings:
    return read_findings(read_comparison(path), path, cells, failures or {})


def a_result(path: Path, out: Path, *accuracies: Mapping[str, float | None], **more: Any) -> CellResult:
    """The first cell, with these accuracies by round."""
    cell = cells_of(path, out)[0]
    write_cell(cell, accuracies, **more)
    result = read_cell(cell)
    assert not isinstance(result, MissingCell), result.reason
    return result


def fill(
    path: Path, out: Path, *, rows: tuple[str, ...] = ("average", "prototypes", "all"), seconds: float = 2
) -> None:
    """Write all cells of these rows; another row and another seed are a little better."""
    for cell in cells_of(path, out):
        if cell.row in rows:
            above = 0.01 * cell.seed + 0.05 * ("average", "prototypes", "all").index(cell.row)
            accuracies = [{domain: value + above for domain, value in line.items()} for line in ROUNDS]
            local = [{domain: value / 2 for domain, value in line.items()} for line in ROUNDS]
            write_cell(cell, accuracies, local=local if cell.row == "prototypes" else (), seconds=seconds)


def lines_of(text: str) -> list[dict[str, str]]:
    """A table's lines by column."""
    return list(csv.DictReader(io.StringIO(text)))


def compare(*arguments: object) -> tuple[int, str, str]:
    """The command within this process: its exit code, and what it says on stdout and stderr."""
    done = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def _summed(accuracy: Mapping[str, float | None]) -> dict[str, float | None]:
    """With "mean" and "worst", as metrics.jsonl has it."""
    known = [value for value in accuracy.values() if value is not None]
    return {**accuracy, "mean": sum(known) / len(known) if known else None, "worst": min(known, default=None)}


def _counts(model: str, accuracy: float) -> dict[str, Any]:
    """Counts of two classes with half of the images each."""
    correct = round(accuracy * TOTAL)
    half = correct // 2
    return {"set_name": "test", "model": model, "correct": [half, correct - half], "total": [TOTAL // 2, TOTAL // 2]}
