"""Add the finished cells of a comparison to experiments/cells.csv: last accuracies, and SHA-256 of the results.

python -m experiments.cells FOLDER

FOLDER is --out of `fedplcc compare`; its name is the comparison's. A cell that the table has is replaced. Of cells among
which a choice is made the table has validation images alone, the mean of the last ten rounds that were evaluated.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

TABLE = Path(__file__).with_name("cells.csv")
CELL = ("comparison", "dataset", "row", "seed")
COLUMNS = (
    *(*CELL, "model", "round", "mean", "worst", "domains", "machine"),
    *("model_sha256", "prototypes_sha256"),
)
MODELS = {"global": "accuracy", "local": "accuracy_local"}
"""Models that are judged on test images, with the key of their accuracies in a line of metrics.jsonl."""
CHOICES = "choice-"
"""What the names of comparisons begin with whose cells are chosen among."""
NUM_LAST = 10


def lines_of(comparison: str, cell: Path) -> Iterator[dict[str, str]]:
    """Yield the lines of a finished cell: one for each model that was judged.

    Args:
        comparison: Its name.
        cell: Run folder DATASET/ROW/seed-S.
    """
    rounds = [json.loads(line) for line in (cell / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    run = json.loads((cell / "run.json").read_text(encoding="utf-8"))
    known = {
        "comparison": comparison,
        "dataset": cell.parents[1].name,
        "row": cell.parent.name,
        "seed": cell.name.removeprefix("seed-"),
        "round": str(rounds[-1]["round"]),
        "machine": "; ".join(sorted({_machine(client["environment"]) for client in run["clients"].values()})),
        "model_sha256": rounds[-1]["model_sha256"],
        "prototypes_sha256": rounds[-1]["prototypes_sha256"],
    }
    if comparison.startswith(CHOICES):
        judged = [line["accuracy_validation"] for line in rounds if line.get("accuracy_validation")][-NUM_LAST:]
        if judged:
            yield (
                known
                | {"model": "validation"}
                | _accuracies({key: mean(of[key] for of in judged) for key in judged[0]})
            )
        return
    for model, key in MODELS.items():
        if rounds[-1].get(key) is not None:
            yield known | {"model": model} | _accuracies(rounds[-1][key])


def added(table: list[dict[str, str]], lines: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return a table with these lines in place of those of the same cells, in the order of its keys."""
    new = {tuple(line[key] for key in CELL) for line in lines}
    kept = [line for line in table if tuple(line[key] for key in CELL) not in new]
    return sorted(
        [*kept, *lines], key=lambda line: (*(line[key] for key in CELL[:3]), int(line["seed"]), line["model"])
    )


def read() -> list[dict[str, str]]:
    """Return the lines of the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    """Add the cells of the folder that the command names."""
    folder = Path(sys.argv[1])
    cells = sorted(path.parent for path in folder.glob("*/*/seed-*/run.json"))
    lines = [line for cell in cells for line in lines_of(folder.resolve().name, cell)]
    table = added(read() if TABLE.exists() else [], lines)
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def _accuracies(of: Mapping[str, float | None]) -> dict[str, str]:
    domains = [f"{name}={of[name]}" for name in sorted(of.keys() - {"mean", "worst"}) if of[name] is not None]
    return {"mean": str(of["mean"]), "worst": str(of["worst"]), "domains": " ".join(domains)}


def _machine(environment: Mapping[str, Any]) -> str:
    return f"{environment['device']} of {environment['cpu']}" if environment["device"] != "cpu" else environment["cpu"]


if __name__ == "__main__":
    main()
