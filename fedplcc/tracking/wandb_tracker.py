"""Curves for Weights & Biases, through its own library and always offline: `wandb sync FOLDER` sends them.

An offline run cannot be continued. What an earlier process left is replaced by another one with every round, which is told
from the first again after a restart.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from fedplcc.shared.config.settings import disable_tracker_reports

disable_tracker_reports()  # read when wandb loads, which is below

import wandb  # noqa: E402

from fedplcc.runs.atomic_file import disk_errors, make_folder, write_text  # noqa: E402
from fedplcc.runs.run_folder import RUNS  # noqa: E402
from fedplcc.shared.tensors import sha256_hex  # noqa: E402
from fedplcc.tracking.callbacks import RoundResult, RunEnd, RunStart  # noqa: E402
from fedplcc.tracking.measurements import measurements  # noqa: E402
from fedplcc.tracking.tracker import Tracker  # noqa: E402

PROJECT = "fedplcc"
WHOLE = "fedplcc-whole"
"""File in the folder of an offline run that has its run's end."""


class WandbTracker(Tracker):
    """Writes an offline run into a folder `wandb`."""

    kind = "wandb"
    _run: wandb.Run | None = None

    def on_start(self, run: RunStart) -> None:
        """Remove an offline run that an earlier process left unfinished, and begin another; a whole one is kept."""
        home = Path(self.where) if self.where else run.folder or RUNS / run.run_id
        make_folder(home)
        key = sha256_hex(f"{run.run_id}\n{run.label}".encode())[:16]
        earlier = [path for path in sorted(home.glob(f"wandb/offline-run-*-{key}")) if not path.is_symlink()]
        self._run = None
        if any((path / WHOLE).exists() for path in earlier):
            return
        for path in earlier:
            with disk_errors(path):
                shutil.rmtree(path)
        self._run = wandb.init(
            mode="offline",
            dir=str(home),
            project=PROJECT,
            id=key,
            name=run.label,
            group=str(run.config["run"]["name"]),
            config={**run.config, "fedplcc_run_id": run.run_id, "config_hash": run.config_hash},
            tags=[str(run.config["run"]["method"]), *run.tags],
            reinit="create_new",
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, disable_code=True, save_code=False, x_disable_stats=True
            ),
        )

    def on_round(self, result: RoundResult) -> None:
        """Write the round's numbers."""
        if self._run is not None:
            self._run.log(measurements(result), step=result.number)

    def close(self) -> None:
        """Close an offline run whose end has not come; the next process replaces it."""
        if self._run is not None:
            self._run.finish(exit_code=1)
            self._run = None

    def on_end(self, end: RunEnd) -> None:
        """Close the offline run."""
        if self._run is None:
            return
        self._run.summary["status"] = end.status
        folder = Path(self._run.dir).parent
        self._run.finish(exit_code=0 if end.status == "completed" else 1)
        self._run = None
        write_text(folder / WHOLE, "")
