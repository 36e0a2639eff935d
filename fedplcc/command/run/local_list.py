"""`fedplcc run list --local`: the runs on this machine's disk, with what they ended in and what differs between them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedplcc.command.exit_codes import say
from fedplcc.shared.errors import InvalidConfig
from fedplcc.terminal.printable import printable

if TYPE_CHECKING:
    from fedplcc.runs.local_runs import LocalRun

MOST_BROKEN = 10
"""Most folders without a whole run that are named; --json has all."""


def list_local_runs(folders: Sequence[Path], *, order: str, limit: int, as_json: bool) -> None:
    """List the runs below folders, or below the usual ones.

    Raises:
        InvalidConfig: There is no such folder.
    """
    from fedplcc.runs.local_runs import differences, differing_keys, find_runs
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.local_run_lines import local_run_lines

    chosen = folders or [path for path in _usual() if path.is_dir()]
    for folder in chosen:
        if not folder.is_dir():
            raise InvalidConfig(f"there is no folder {folder}; name one that holds runs")
    found = find_runs(chosen)
    shown = sorted(found.runs, key=lambda run: _order(run, order))[:limit]
    keys = differing_keys(shown)
    if as_json:
        for run in shown:
            print(canonical_json(_document(run, differences(run, keys))))
        for folder_name, problem in found.broken.items():
            print(canonical_json({"folder": folder_name, "problem": problem}))
    elif shown:
        print("\n".join(printable(line) for line in local_run_lines(shown, keys)))
        print(f"{len(shown)} of {len(found.runs)} run{'' if len(found.runs) == 1 else 's'}")
    else:
        where = ", ".join(map(str, chosen or _usual()))
        print(printable(f"there are no runs in {where}; train one with: fedplcc simulate"))
    if not as_json:
        for folder_name, problem in [*found.broken.items()][:MOST_BROKEN]:
            say(f"{folder_name} {problem}")
        if (more := len(found.broken) - MOST_BROKEN) > 0:
            say(f"and {more} more folders like these; --json names all")
    if not found.is_whole:
        say("not everything was looked at: there are too many folders; name one further down")


def _usual() -> list[Path]:
    from fedplcc.command.training.compare import FOLDERS
    from fedplcc.runs.run_folder import RUNS

    return [RUNS, FOLDERS]


def _order(run: LocalRun, order: str) -> tuple[float, str]:
    name = str(run.folder)
    if order == "name":
        return 0.0, name
    if order == "newest":
        return -run.created_at.timestamp(), name
    value = run.mean if order == "mean" else run.worst
    return 1.0 if value is None else -value, name


def _document(run: LocalRun, differs: dict[str, str]) -> dict[str, object]:
    return {
        "folder": str(run.folder),
        "method": run.method,
        "seed": run.seed,
        "round": run.round,
        "total_rounds": run.total_rounds,
        "has_ended": run.has_ended,
        "score": run.score,
        "mean_accuracy": run.mean,
        "worst_accuracy": run.worst,
        "created_at": run.created_at.isoformat(),
        "differs": differs,
        "problem": None,
    }
