"""`fedplcc run ...`: start and steer runs of a deployed federation through its gateway."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import HELP, ExitCode, explains_errors, say
from fedplcc.interruption import Interrupted, run_interruptibly

if TYPE_CHECKING:
    from fedplcc.remote.rest_client import Gateway
    from fedplcc.runs.artifacts import RunRecord
    from shared.documents import Client, Round, Run

app = typer.Typer(help="Start and control runs through a gateway.", epilog=HELP, no_args_is_help=True)

Result = TypeVar("Result")

GatewayUrl = Annotated[
    str,
    typer.Option(
        "--gateway", envvar="FEDPLCC_GATEWAY", help="Where the gateway is: https://HOST:PORT, or http:// on loopback."
    ),
]
DEFAULT_GATEWAY = "http://127.0.0.1:8080"
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        envvar="FEDPLCC_INSECURE",
        help="Accept plain text to a gateway on another machine; trust the network.",
    ),
]
GatewayCa = Annotated[
    Path | None,
    typer.Option(
        "--gateway-ca",
        envvar="FEDPLCC_GATEWAY_CA",
        help="Certificates that an https gateway is checked against, in PEM, or a member's identity.pem; those that "
        "'fedplcc login' kept if not given, else the system's.",
        dir_okay=False,
        show_default=False,
    ),
]
RunId = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, as 'fedplcc run list' shows it.", show_default=False)
]
ClientId = Annotated[
    str,
    typer.Argument(metavar="CLIENT", help="The client's id, as 'fedplcc run status' shows it.", show_default=False),
]
MaybeRunId = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="The run's id, as 'fedplcc run list' shows it; the newest run if not given.",
        show_default=False,
    ),
]
RequestId = Annotated[
    str | None,
    typer.Option(
        "--request-id",
        help="Names this request: the same one again changes nothing, whatever came since. A random one if not given.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout; everything else goes to stderr.")]


@app.command(
    epilog=examples("fedplcc run start", "fedplcc run start --config scans.toml --request-id nightly-7 --json")
)
@explains_errors
def start(
    config: Annotated[
        Path | None,
        typer.Option(
            help="Configuration file; its [clients] tables are left out. run.toml if not given.", dir_okay=False
        ),
    ] = None,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    request_id: Annotated[
        str | None,
        typer.Option(help="Names this request: the same one again gives the same run. A random one if not given."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Start a run; it waits until its clients have joined.

    A file that it begins with (run.initial_model = "file:PATH") is sent first.
    """
    import json

    from fedplcc.runs.configuration import chosen_file, read_federation
    from fedplcc.terminal.progress import console_for, shown_transfers

    federation = read_federation(chosen_file(config))
    document = json.loads(federation.config.canonical_json)
    key, file = _key(request_id), federation.initial_model_file

    async def begin(there: Gateway) -> Run:
        if file is not None:
            size_bytes = file.stat().st_size
            with shown_transfers(console_for(json=as_json), "sending") as on_bytes:
                await there.store_model(file, on_bytes=lambda count: on_bytes(file.name, count, size_bytes))
        return await there.start_run(document, request_id=key)

    run = _ask(_Way(gateway, insecure, gateway_ca), begin)
    _show(run, f"run {run.run_id} is {run.status}; follow it with: fedplcc run watch {run.run_id}", as_json=as_json)
    return ExitCode.OK


@app.command("list", epilog=examples("fedplcc run list", "fedplcc run list --limit 1 --json"))
@explains_errors
def list_runs(
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    limit: Annotated[int, typer.Option(help="Most runs to list.", min=1)] = 50,
    as_json: Json = False,
) -> int:
    """List runs, newest first; with --json a line each."""
    from fedplcc.terminal.run_lines import run_lines

    runs = _ask(_Way(gateway, insecure, gateway_ca), lambda there: there.list_runs(limit=limit))
    if as_json:
        for run in runs:
            print(run.model_dump_json())
    elif runs:
        print("\n".join(run_lines(runs)))
    else:
        print("there are no runs; start one with: fedplcc run start --config FILE")
    return ExitCode.OK


@app.command(epilog=examples("fedplcc run status", "fedplcc run status scans-97f12353 --json"))
@explains_errors
def status(
    run: MaybeRunId = None,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    as_json: Json = False,
) -> int:
    """Show a run: its round, awaited, dropped and quarantined clients, refused updates, and the last accuracy."""
    from fedplcc.terminal.progress import console_for
    from fedplcc.terminal.round_table import OWN_MODELS, RoundTable
    from fedplcc.terminal.run_lines import awaited_lines, dropped_lines, refusal_lines
    from shared.config.run import canonical_json

    async def ask(there: Gateway) -> tuple[Run, list[Round], list[Client], float | None]:
        found = await _found(there, run)
        clients = [] if as_json or found.status.is_final else await there.list_clients()
        rounds = await there.last_rounds(found)
        committed = [each.round for each in rounds if each.metrics is not None]
        took = None if as_json or not committed else await there.seconds_of(found.run_id, committed[-1])
        return found, rounds, clients, took

    found, rounds, clients, seconds = _ask(_Way(gateway, insecure, gateway_ca), ask)
    known = [each.metrics for each in rounds if each.metrics is not None]
    metrics = known[-1].model_dump(by_alias=True) if known else None
    if as_json:
        print(canonical_json({**found.model_dump(mode="json"), "metrics": metrics}))
        return ExitCode.OK
    console = console_for(json=False)
    console.print(_sentence(found))
    for line in (*awaited_lines(found, rounds, clients), *dropped_lines(rounds), *refusal_lines(found)):
        console.print(line)
    if metrics is not None:
        table = RoundTable.of(metrics, has_time=seconds is not None)
        if metrics["accuracy_of"] is not None:
            console.print(OWN_MODELS)
        console.print(table.heading())
        console.print(table.line(metrics, seconds))
    return ExitCode.OK


@app.command(epilog=examples("fedplcc run watch", "fedplcc run watch scans-97f12353 --gateway http://127.0.0.1:8081"))
@explains_errors
def watch(
    run: MaybeRunId = None,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    as_lines: Annotated[bool, typer.Option("--lines", help="A line per round on a terminal too.")] = False,
    as_json: Json = False,
) -> int:
    """Follow a run to its end, through restarts of gateway and aggregator. Ctrl-C ends watching, not the run.

    On a terminal a full screen shows rounds, accuracies, clients and notes; elsewhere there is a line per round, and
    now and then a line with the clients that a round waits for. With --json there is a line per event of the run's history,
    and the run itself at the end.
    """
    return _ask(
        _Way(gateway, insecure, gateway_ca), lambda there: _watch(there, run, as_lines=as_lines, as_json=as_json)
    )


@app.command(epilog=examples("fedplcc run pause scans-97f12353", "fedplcc run pause scans-97f12353 --now"))
@explains_errors
def pause(
    run: RunId,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    now: Annotated[bool, typer.Option("--now", help="Interrupt the open round; else it is finished first.")] = False,
    request_id: RequestId = None,
    as_json: Json = False,
) -> int:
    """Pause a run. Pausing a paused run changes nothing."""
    key = _key(request_id)
    return _change(
        _Way(gateway, insecure, gateway_ca), lambda there: there.pause(run, now=now, request_id=key), as_json=as_json
    )


@app.command(epilog=examples("fedplcc run resume scans-97f12353"))
@explains_errors
def resume(
    run: RunId,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    request_id: RequestId = None,
    as_json: Json = False,
) -> int:
    """Let a paused run go on, or take back a pause that waits."""
    key = _key(request_id)
    return _change(
        _Way(gateway, insecure, gateway_ca), lambda there: there.resume(run, request_id=key), as_json=as_json
    )


@app.command(epilog=examples('fedplcc run stop scans-97f12353 --reason "wrong scanner"'))
@explains_errors
def stop(
    run: RunId,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    reason: Annotated[str, typer.Option(help="Why, for the run's history.")] = "",
    request_id: RequestId = None,
    as_json: Json = False,
) -> int:
    """Stop a run for good; its last committed round is kept. Stopping it again changes nothing."""
    key = _key(request_id)
    return _change(
        _Way(gateway, insecure, gateway_ca),
        lambda there: there.stop(run, reason=reason, request_id=key),
        as_json=as_json,
    )


@app.command(epilog=examples('fedplcc run quarantine scans-97f12353 ward-3 --reason "broken scanner"'))
@explains_errors
def quarantine(
    run: RunId,
    client: ClientId,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    reason: Annotated[str, typer.Option(help="Why, for the run's history and for the client.")] = "",
    request_id: RequestId = None,
    as_json: Json = False,
) -> int:
    """Leave a client out of a run until it is released. Quarantining it again changes nothing."""
    key = _key(request_id)
    return _change(
        _Way(gateway, insecure, gateway_ca),
        lambda there: there.quarantine(run, client, reason=reason, request_id=key),
        as_json=as_json,
    )


@app.command(epilog=examples("fedplcc run release scans-97f12353 ward-3"))
@explains_errors
def release(
    run: RunId,
    client: ClientId,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    request_id: RequestId = None,
    as_json: Json = False,
) -> int:
    """Let a quarantined client take part in a run again, with nothing held against it."""
    key = _key(request_id)
    return _change(
        _Way(gateway, insecure, gateway_ca), lambda there: there.release(run, client, request_id=key), as_json=as_json
    )


@app.command(epilog=examples("fedplcc run fetch", "fedplcc run fetch scans-97f12353 --out results"))
@explains_errors
def fetch(
    run: MaybeRunId = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the files; made if it is not there. fedplcc-runs/RUN if not given.", file_okay=False
        ),
    ] = None,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    as_json: Json = False,
) -> int:
    """Fetch what a run has committed so far: configuration, metrics, model, prototypes and a picture."""
    from fedplcc.remote.fetch import fetch_run
    from fedplcc.runs.artifacts import describe, summary
    from fedplcc.runs.run_folder import RUNS
    from fedplcc.terminal.progress import console_for, shown_transfers
    from shared.config.run import canonical_json

    console = console_for(json=as_json)
    with shown_transfers(console) as on_bytes:

        async def ask(there: Gateway) -> tuple[RunRecord, Path]:
            run_id = (await _found(there, run)).run_id
            folder = out or RUNS / run_id
            return await fetch_run(there, run_id, folder, on_bytes), folder

        record, folder = _ask(_Way(gateway, insecure, gateway_ca), ask)
    for line in describe(record, folder):
        console.print(line)
    if as_json:
        print(canonical_json(summary(record, folder)))
    return ExitCode.OK


# Shared parts


class _Way(NamedTuple):
    """How a gateway is reached."""

    url: str
    insecure: bool
    ca: Path | None


def _key(request_id: str | None) -> str:
    """A request's id: as given, or a random one.

    Raises:
        InvalidConfig: The gateway would refuse it; an empty id too, which is a variable that is not set.
    """
    from shared.documents import REQUEST_ID
    from shared.errors import InvalidConfig

    if request_id is None:
        return uuid.uuid4().hex
    if re.fullmatch(REQUEST_ID, request_id) is None:
        raise InvalidConfig("--request-id: write 1 to 128 letters, digits and signs of ASCII, without spaces")
    return request_id


def _ask(way: _Way, question: Callable[[Gateway], Coroutine[Any, Any, Result]]) -> Result:
    """Run a coroutine with a connected gateway; returns its result."""
    from fedplcc.remote.rest_client import Gateway

    async def ask() -> Result:
        async with Gateway(way.url, insecure=way.insecure, ca=way.ca) as there:
            return await question(there)

    return run_interruptibly(ask())


async def _found(gateway: Gateway, run_id: str | None) -> Run:
    """The run with this id, or the newest one.

    Raises:
        RunNotFound: There is none.
    """
    from shared.errors import RunNotFound

    if run_id is not None:
        return await gateway.get_run(run_id)
    runs = await gateway.list_runs(limit=1)
    if not runs:
        raise RunNotFound("there are no runs; start one with: fedplcc run start --config FILE")
    return runs[0]


def _change(way: _Way, change: Callable[[Gateway], Coroutine[Any, Any, Run]], *, as_json: bool) -> int:
    run = _ask(way, change)
    _show(run, _sentence(run), as_json=as_json)
    return ExitCode.OK


async def _watch(gateway: Gateway, run_id: str | None, *, as_lines: bool, as_json: bool) -> int:
    from asyncio import CancelledError

    from fedplcc.runs.artifacts import ending_of
    from fedplcc.terminal.progress import console_for, shows_bars

    run = await _found(gateway, run_id)
    console = console_for(json=as_json)
    is_screen = not (as_lines or as_json or run.status.is_final) and shows_bars(console)
    try:
        run = await (_watch_screen(gateway, run) if is_screen else _watch_lines(gateway, run, as_json=as_json))
    except CancelledError:
        raise Interrupted(_how_to_go_on(run.run_id, gateway.url)) from None
    if run.status == "completed":
        console.print(ending_of(run.run_id, run.status, run.reason))
        return ExitCode.OK
    say(ending_of(run.run_id, run.status, run.reason))
    return ExitCode.FAILED


async def _watch_lines(gateway: Gateway, run: Run, *, as_json: bool) -> Run:
    from fedplcc.terminal.progress import RunProgress, console_for
    from fedplcc.terminal.watch.lines import LineWatch
    from shared.documents import Run

    if not as_json:
        with RunProgress(console_for(json=False), total_rounds=run.total_rounds) as progress:
            progress.note(_sentence(run))
            return await LineWatch(gateway, run.run_id, progress).until_end()
    async with aclosing(gateway.follow(run.run_id)) as items:
        async for item in items:
            print(item.model_dump_json(), flush=True)
            if isinstance(item, Run):
                run = item
    return run


async def _watch_screen(gateway: Gateway, run: Run) -> Run:
    import os

    from fedplcc.terminal.progress import console_for
    from fedplcc.terminal.round_table import last_lines
    from fedplcc.terminal.watch.console import screen_console
    from fedplcc.terminal.watch.live import LiveWatch

    watch = LiveWatch(gateway, run, screen_console(os.environ))
    try:
        return await watch.until_end()
    finally:
        # The screen is gone; its last rounds stay above the next prompt.
        console = console_for(json=False)
        for line in last_lines(watch.watched.rounds, list(watch.watched.seconds), console.width):
            console.print(line)


def _how_to_go_on(run_id: str, url: str) -> str:
    where = "" if url == DEFAULT_GATEWAY else f" --gateway {url}"
    ways = ("watch it again", "watch"), ("pause it", "pause"), ("stop it", "stop")
    commands = ", ".join(f"{what} with 'fedplcc run {command} {run_id}{where}'" for what, command in ways)
    return f"this ends watching only, run {run_id} goes on; {commands}"


def _show(run: Run, sentence: str, *, as_json: bool) -> None:
    print(run.model_dump_json() if as_json else sentence)


def _sentence(run: Run) -> str:
    where = "not begun" if run.round < 0 else f"round {run.round} of {run.total_rounds} {run.phase}"
    waits = ", a pause waits for the round to commit" if run.is_pause_requested else ""
    reason = f" ({run.reason})" if run.reason else ""
    return f"run {run.run_id}: {run.method}, {run.status}{reason}, {where}{waits}"
