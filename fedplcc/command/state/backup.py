"""`fedplcc state backup`: a copy of an aggregator's state directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors
from fedplcc.command.state.database_url import DatabaseUrl

EXAMPLES = examples("fedplcc state backup fedplcc-state/aggregator /mnt/backups/monday")


@explains_errors
def backup(
    state_dir: Annotated[Path, typer.Argument(metavar="STATE_DIR", help="The aggregator's state directory.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new or an empty folder for the backup.")],
    database_url: DatabaseUrl = None,
) -> None:
    """Back up an aggregator's state, also while the aggregator runs: every blob is verified on its way.

    Uploads that are still going on are left out; trainers send them again. Of a database in PostgreSQL the backup has a copy
    in SQLite, and an aggregator that is restored from it goes on with that. The federation's keys are part of the
    backup: who has it can issue certificates.
    """
    from fedplcc.doctor.findings import in_bytes
    from fedplcc.state.backup import make_backup

    made = make_backup(state_dir, out, url=database_url)
    keys = "; and the keys of the federation, so keep it as you keep those" if made.authority_sha256 else ""
    print(
        f"{out}: the database and {made.num_blobs:,} blobs of {in_bytes(made.blob_bytes)}, each with its SHA-256{keys}"
    )
