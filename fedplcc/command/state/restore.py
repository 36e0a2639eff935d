"""`fedplcc state restore`: an aggregator's state directory made from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors

EXAMPLES = examples("fedplcc state restore /mnt/backups/monday fedplcc-state/aggregator")


@explains_errors
def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="A folder that 'fedplcc state backup' made.")],
    state_dir: Annotated[
        Path,
        typer.Argument(metavar="STATE_DIR", help="The new state directory: not there yet, or empty."),
    ],
) -> None:
    """Make an aggregator's state directory from a backup; an aggregator started on it continues its runs.

    Rounds committed after the backup are trained again, to the same bytes.
    """
    from fedplcc.doctor.findings import in_bytes
    from fedplcc.state.backup import restore as restored

    made = restored(source, state_dir)
    print(f"{state_dir}: {made.num_blobs:,} blobs of {in_bytes(made.blob_bytes)}, each with its SHA-256")
    print(f"start the aggregator with --state-dir {state_dir}")
