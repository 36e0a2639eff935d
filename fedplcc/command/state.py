"""`fedplcc backup`, `restore` and `replay`: an aggregator's state directory from outside, also while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors, say

STATE_DIR = Path("fedplcc-state/aggregator")
BACKUP_EXAMPLES = examples(
    "fedplcc backup fedplcc-state/aggregator /mnt/backups/monday",
    "fedplcc backup --hard-links fedplcc-state/aggregator fedplcc-state/monday",
)
RESTORE_EXAMPLES = examples("fedplcc restore /mnt/backups/monday fedplcc-state/aggregator")
REPLAY_EXAMPLES = examples("fedplcc replay digits-0f3a2b1c --round 30")

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        help="Of its PostgreSQL database, if it has one.",
        metavar="URL",
        envvar="FEDPLCC_DATABASE_URL",
        show_default=False,
    ),
]


@explains_errors
def backup(
    state_dir: Annotated[
        Path, typer.Argument(metavar="STATE_DIR", help="The aggregator's state directory.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="A new or an empty folder for the backup.", show_default=False)
    ],
    hard_links: Annotated[
        bool,
        typer.Option(
            "--hard-links",
            help="Give blobs a second name in place of a second copy, where OUT is on the same disk: takes no room, and "
            "protects from deleting but not from a broken disk.",
        ),
    ] = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Back up an aggregator's state, also while the aggregator runs: every blob is verified on its way.

    Uploads that are still going on are left out; trainers send them again. Of a database in PostgreSQL the backup has a copy
    in SQLite, and an aggregator that is restored from it goes on with that.
    """
    from fedplcc.doctor.findings import in_bytes
    from fedplcc.state.backup import make_backup

    made = make_backup(state_dir, out, url=database_url, hard_links=hard_links)
    print(f"{out}: the database and {made.num_blobs:,} blobs of {in_bytes(made.blob_bytes)}, each with its SHA-256")
    return ExitCode.OK


@explains_errors
def restore(
    source: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="A folder that 'fedplcc backup' made.", show_default=False)
    ],
    state_dir: Annotated[
        Path,
        typer.Argument(
            metavar="STATE_DIR", help="The new state directory: not there yet, or empty.", show_default=False
        ),
    ],
) -> int:
    """Make an aggregator's state directory of a backup; start the aggregator on it as ever, and its runs go on.

    Rounds that were committed after the backup are trained again, to the same bytes.
    """
    from fedplcc.doctor.findings import in_bytes
    from fedplcc.state.backup import restore as restored

    made = restored(source, state_dir)
    print(f"{state_dir}: {made.num_blobs:,} blobs of {in_bytes(made.blob_bytes)}, each with its SHA-256")
    print(f"start the aggregator with --state-dir {state_dir}")
    return ExitCode.OK


@explains_errors
def replay(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.", show_default=False)],
    number: Annotated[int, typer.Option("--round", metavar="T", help="The round, from 1 on.", show_default=False)],
    state_dir: Annotated[
        Path, typer.Option("--state-dir", help="The aggregator's state directory.", file_okay=False)
    ] = STATE_DIR,
    database_url: DatabaseUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> int:
    """Compute a round's global model and prototypes again from the stored updates, and compare their SHA-256.

    The exit code is 0 if both are equal, 1 if they are not, and 5 if the updates were collected.
    """
    import json

    from fedplcc.state.replay import Collected
    from fedplcc.state.replay import replay as replayed

    try:
        found = replayed(state_dir, run_id, number, url=database_url)
    except Collected as error:
        say(error.detail)
        return ExitCode.COLLECTED
    pairs = dict(zip(("model", "prototypes"), zip(found.recorded, found.computed, strict=True), strict=True))
    if as_json:
        rows = {
            name: {"recorded": recorded.sha256, "computed": computed.sha256}
            for name, (recorded, computed) in pairs.items()
        }
        document = {
            "run_id": run_id,
            "round": number,
            "is_equal": found.is_equal,
            "clients": list(found.clients),
            **rows,
        }
        print(json.dumps(document, indent=2))
    else:
        for name, (recorded, computed) in pairs.items():
            same = recorded.sha256 == computed.sha256
            print(f"{name}: {computed.sha256}, {'as recorded' if same else f'but {recorded.sha256} was recorded'}")
        verdict = "equal" if found.is_equal else "NOT equal"
        print(f"round {number} of {run_id} from {len(found.clients)} updates: {verdict}")
    if not found.is_equal and not as_json:
        say(
            "another version computed the round, or its record was changed; 'fedplcc doctor STATE_DIR' looks at the rest"
        )
    return ExitCode.OK if found.is_equal else ExitCode.FAILED
