"""`fedplcc run watch`: a run followed to its end, as lines or with trackers that keep its curves."""

from __future__ import annotations

from asyncio import CancelledError
from contextlib import aclosing
from typing import TYPE_CHECKING

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import ExitCode, explains_errors, say
from fedplcc.command.gateway_calls import ask_gateway, sentence_of_run
from fedplcc.command.run.choosing import MaybeRunId, found_run
from fedplcc.command.shared_options import DEFAULT_GATEWAY, Way
from fedplcc.command.training.tracking import Log
from fedplcc.interruption import Interrupted
from fedplcc.shared.errors import InvalidConfig

if TYPE_CHECKING:
    from fedplcc.gateway_client.clients import AsyncGateway
    from fedplcc.shared.documents import Run
    from fedplcc.tracking.tracker import Tracker

EXAMPLES = examples(
    "fedplcc run watch",
    "fedplcc run watch scans-97f12353 --gateway http://127.0.0.1:8081",
    "fedplcc run watch --log mlflow:http://127.0.0.1:5000",
)


@explains_errors
def watch(*, run: MaybeRunId = None, log: Log = None, way: Way, as_json: bool) -> int:
    """Follow a run to its end, through restarts of gateway and aggregator. Ctrl-C ends watching, not the run.

    There is a line per round, and on a terminal a bar below them; elsewhere now and then a line with the clients that a
    round waits for. With --json there is a line per event of the run's history, and the run itself at the end. With --log
    its curves are kept in place of lines, from its first round on; started again it goes on, and each round is kept once.
    """
    from fedplcc.runs.artifacts import ending_of
    from fedplcc.terminal.progress import console_for

    if as_json and log:
        raise InvalidConfig("give --log or --json: a tracker keeps the rounds that --json would print")
    if log:
        from fedplcc.tracking.destinations import make_trackers

        trackers = make_trackers(log)
        ended = ask_gateway(way, lambda there: _keep(there, run, trackers))
    else:
        ended = ask_gateway(way, lambda there: _watch(there, run, as_json=as_json))
    if ended.status == "completed":
        console_for(json=as_json).print(ending_of(ended.run_id, ended.status, ended.reason))
        return ExitCode.OK
    say(ending_of(ended.run_id, ended.status, ended.reason))
    return ExitCode.FAILED


async def _watch(gateway: AsyncGateway, run_id: str | None, *, as_json: bool) -> Run:
    run = await found_run(gateway, run_id)
    try:
        return await (_print_events(gateway, run) if as_json else _print_lines(gateway, run))
    except CancelledError:
        raise Interrupted(_how_to_go_on(run.run_id, gateway.url)) from None


async def _print_lines(gateway: AsyncGateway, run: Run) -> Run:
    from fedplcc.terminal.line_watch import LineWatch
    from fedplcc.terminal.progress import RunProgress, console_for

    console = console_for(json=False)
    with RunProgress(console, total_rounds=run.total_rounds, config=run.config, method=run.method) as progress:
        progress.note(sentence_of_run(run))
        return await LineWatch(gateway, run.run_id, progress).until_end()


async def _print_events(gateway: AsyncGateway, run: Run) -> Run:
    from fedplcc.shared.documents import Run

    async with aclosing(gateway.follow(run.run_id)) as items:
        async for item in items:
            print(item.model_dump_json(), flush=True)
            if isinstance(item, Run):
                run = item
    return run


def _how_to_go_on(run_id: str, url: str) -> str:
    where = "" if url == DEFAULT_GATEWAY else f" --gateway {url}"
    ways = ("watch it again", "watch"), ("pause it", "pause"), ("stop it", "stop")
    commands = ", ".join(f"{what} with 'fedplcc run {command} {run_id}{where}'" for what, command in ways)
    return f"this ends watching only, run {run_id} goes on; {commands}"


async def _keep(gateway: AsyncGateway, run_id: str | None, trackers: list[Tracker]) -> Run:
    """Keep a run's curves until it ends; returns its last document."""
    from fedplcc.tracking.deployed_run import follow_run

    found = await found_run(gateway, run_id)
    try:
        return await follow_run(gateway, found, trackers, on_note=say)
    except CancelledError:
        raise Interrupted(
            f"this ends logging only, run {found.run_id} goes on; the same command logs what is missing"
        ) from None
