"""`fedplcc run list`: the runs of a gateway, or those on this machine's disk."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors
from fedplcc.command.gateway_calls import ask_gateway
from fedplcc.command.shared_options import Way
from fedplcc.shared.errors import InvalidConfig

# The enums of shared/run_lists.py, which would load numpy for each help text.
Order = Literal["newest", "oldest", "updated", "name", "status", "method", "rounds", "mean", "worst", "took"]
LocalOrder = Literal["newest", "name", "mean", "worst"]
Show = Literal["current", "archived", "deleted", "all"]
EXAMPLES = examples(
    "fedplcc run list --status failed --since 2026-11-01",
    "fedplcc run list --tag paper --json",
    "fedplcc run list --local results --order worst --limit 10",
)


@explains_errors
def list_runs(
    *,
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR]...",
            help="With --local: folders to look in and below; fedplcc-runs and fedplcc-comparisons of the present folder "
            "if not given.",
        ),
    ] = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="The runs on this machine's disk: of simulate, demo, compare and run fetch."),
    ] = False,
    limit: Annotated[int, typer.Option(help="Most runs to list.", min=1)] = 50,
    status: Annotated[
        list[str] | None,
        typer.Option(
            help="Only runs that are this: pending, running, paused, completed, stopped or failed; repeatable."
        ),
    ] = None,
    method: Annotated[str, typer.Option(help="Only runs of this method.")] = "",
    name: Annotated[str, typer.Option(help="Only runs with this in their name or id; case does not matter.")] = "",
    tag: Annotated[list[str] | None, typer.Option(help="Only runs with this tag; repeatable.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            help="Only runs that were created then or later, in this machine's time.",
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"],
        ),
    ] = None,
    order: Annotated[
        Order,
        typer.Option(
            help="By creation, last change, name, status, method, rounds, score or duration; with --local newest, name, "
            "mean or worst."
        ),
    ] = "newest",
    reverse: Annotated[bool, typer.Option("--reverse", help="Turn the order round.")] = False,
    show: Annotated[Show, typer.Option(help="Current runs are neither archived nor deleted.")] = "current",
    way: Way,
    as_json: bool,
) -> None:
    """List runs, newest first, and how many there are of each status; with --json a line for each run.

    With --local it lists folders of runs, with the keys that differ between them. Accuracies are mean and worst domain of
    the last evaluated round; a folder that cannot be read is named and left out.
    """
    filters: dict[str, str | list[str]] = {
        "status": list(status or ()),
        "method": method,
        "name": name,
        "tag": tag or [],
        "since": "" if since is None else since.astimezone().isoformat(),
    }
    if local and (reverse or order not in get_args(LocalOrder)):
        given = "--reverse" if reverse else f"--order {order}"
        raise InvalidConfig(f"{given}: with --local the order is {', '.join(get_args(LocalOrder))}, best first")
    if local:
        from fedplcc.command.run.local_list import list_local_runs

        if any(filters.values()) or show != "current":
            raise InvalidConfig(
                "--local lists folders: leave out --status, --method, --name, --tag, --since and --show"
            )
        return list_local_runs(folders or [], order=order, limit=limit, as_json=as_json)
    turned = {"reverse": "true"} if reverse else {}
    if folders:
        raise InvalidConfig(f"a gateway's runs lie in no folder: leave out {folders[0]}, or give --local")
    _list_of_gateway(way, {**filters, "order": order, "show": show, **turned}, limit=limit, as_json=as_json)


def _list_of_gateway(way: Way, filters: dict[str, str | list[str]], *, limit: int, as_json: bool) -> None:
    from fedplcc.terminal.run_lines import run_lines, totals_line

    page = ask_gateway(way, lambda there: there.first_runs(limit, **filters))
    if as_json:
        for run in page.runs:
            print(run.model_dump_json())
    elif page.runs:
        print("\n".join(run_lines(page.runs)))
        print(totals_line(len(page.runs), page.total, page.totals))
    elif any(page.totals.model_dump().values()) or any(filters[each] for each in ("method", "name", "tag", "since")):
        print("no run is like this")
    elif filters["show"] in ("archived", "deleted"):
        print(f"there are no {filters['show']} runs")
    else:
        print("there are no runs; start one with: fedplcc run start --config FILE")
