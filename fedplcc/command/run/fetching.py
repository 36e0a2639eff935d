"""`fedplcc run fetch`: a run's results on this machine's disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors
from fedplcc.command.gateway_calls import ask_gateway
from fedplcc.command.run.choosing import MaybeRunId, found_run
from fedplcc.command.shared_options import Way

if TYPE_CHECKING:
    from fedplcc.gateway_client.clients import AsyncGateway
    from fedplcc.runs.artifacts import RunRecord

EXAMPLES = examples(
    "fedplcc run fetch",
    "fedplcc run fetch scans-97f12353 --out results --whole",
    "fedplcc run fetch --site north",
)


@explains_errors
def fetch(
    *,
    run: MaybeRunId = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the files; made if it is not there. fedplcc-runs/RUN if not given.", file_okay=False
        ),
    ] = None,
    site: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|DIR",
            help="Also write the own model of a client whose trainer runs on this host, of the state that it keeps in "
            "fedplcc-state/trainer-NAME, or in DIR; nobody else can.",
        ),
    ] = None,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole",
            help="Also write the model with the backbone that it was trained above, from this host's store of weights.",
        ),
    ] = False,
    way: Way,
    as_json: bool,
) -> None:
    """Fetch what a run has committed so far: configuration, metrics, model, prototypes and a picture."""
    from fedplcc.remote.fetch import fetch_run
    from fedplcc.runs.artifacts import describe, summary
    from fedplcc.runs.run_folder import RUNS
    from fedplcc.shared.config.run import canonical_json
    from fedplcc.terminal.progress import console_for, shown_transfers

    console, states = console_for(json=as_json), None
    if site is not None:
        from fedplcc.models.site_model import state_folder, write_site_model

        states = state_folder(site)
    with shown_transfers(console) as on_bytes:

        async def ask(there: AsyncGateway) -> tuple[RunRecord, Path]:
            run_id = (await found_run(there, run)).run_id
            folder = out or RUNS / run_id
            return await fetch_run(there, run_id, folder, on_bytes), folder

        record, folder = ask_gateway(way, ask)
    for line in describe(record, folder):
        console.print(line)
    if states is not None:
        console.print(f"model of {states.name}, for that site alone: {write_site_model(folder, states)}")
    if whole:
        from fedplcc.models.whole_model import write_whole_model

        console.print(f"whole model: {write_whole_model(folder)}")
    if as_json:
        print(canonical_json(summary(record, folder)))
