"""Arguments that name runs and clients, and the run that is meant where none is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.shared.errors import RunNotFound

if TYPE_CHECKING:
    from fedplcc.gateway_client.clients import AsyncGateway
    from fedplcc.shared.documents import Run

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, as 'fedplcc run list' shows it.")]
MaybeRunId = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="The run's id, as 'fedplcc run list' shows it; the newest run if not given."),
]
RunIds = Annotated[list[str], typer.Argument(metavar="RUN", help="Runs, as 'fedplcc run list' shows them.")]


async def found_run(gateway: AsyncGateway, run_id: str | None) -> Run:
    """The run with this id, or the newest one.

    Raises:
        RunNotFound: There is none.
    """
    if run_id is not None:
        return await gateway.get_run(run_id)
    found = (await gateway.list_runs(page_size=1)).runs
    if not found:
        raise RunNotFound("there are no runs; start one with: fedplcc run start --config FILE")
    return await gateway.get_run(found[0].run_id)
