"""`fedplcc run ...`: start and steer runs of a deployed federation through its gateway."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import HELP, ExitCode, explains_errors, say
from fedplcc.command.gateway_calls import (
    DEFAULT_GATEWAY,
    ClientId,
    GatewayCa,
    GatewayUrl,
    Insecure,
    Json,
    RequestId,
    RunId,
    Way,
    Yes,
    ask_gateway,
    change_run,
    key_of,
    nothing_changed,
    print_run,
    sentence_of_run,
)
from fedplcc.command.tracking import Log, LogModel
from fedplcc.interruption import Interrupted
from fedplcc.terminal.names import named_few

if TYPE_CHECKING:
    from fedplcc.remote.rest_client import Gateway
    from fedplcc.runs.artifacts import RunRecord
    from shared.documents import Client, Round, Run

app = typer.Typer(help="Start and control runs through a gateway.", epilog=HELP, no_args_is_help=True)

# The enums of shared/run_lists.py, which would load numpy for each help text.
Order = Literal["newest", "oldest", "updated", "name"]
Show = Literal["current", "archived", "deleted", "all"]
MaybeRunId = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="The run's id, as 'fedplcc run list' shows it; the newest run if not given.",
        show_default=False,
    ),
]


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
    key, file = key_of(request_id), federation.initial_model_file

    async def begin(there: Gateway) -> tuple[Run, str]:
        if file is not None:
            size_bytes = file.stat().st_size
            with shown_transfers(console_for(json=as_json), "sending") as on_bytes:
                await there.store_model(file, on_bytes=lambda count: on_bytes(file.name, count, size_bytes))
        run = await there.start_run(document, request_id=key)
        return run, "" if as_json else await _strangers(there, run)

    run, note = ask_gateway(Way(gateway, insecure, gateway_ca), begin)
    print_run(run, f"run {run.run_id} is {run.status}; follow it with: fedplcc run watch {run.run_id}", as_json=as_json)
    if note:
        say(note)
    return ExitCode.OK


async def _strangers(there: Gateway, run: Run) -> str:
    """A sentence if a run waits for clients of which none has ever joined, as the demo's; empty otherwise."""
    from shared.errors import FedplccError

    if run.status != "pending" or not run.roster:
        return ""
    try:
        joined = [client.client_id for client in await there.list_clients()]
    except FedplccError:
        return ""  # the run is there; a key that may start runs need not see clients
    if not joined or not set(joined).isdisjoint(run.roster):
        return ""
    return (
        f"it waits for {named_few(run.roster)}, of which none has ever joined; here are {named_few(joined)}. "
        f"A file for those: fedplcc config init FILE --gateway {there.url}"
    )


@app.command(
    "list",
    epilog=examples(
        "fedplcc run list", "fedplcc run list --status failed --since 2026-11-01", "fedplcc run list --tag paper --json"
    ),
)
@explains_errors
def list_runs(
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
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
    order: Annotated[Order, typer.Option(help="By creation, last change or name.")] = "newest",
    show: Annotated[Show, typer.Option(help="Current runs are neither archived nor deleted.")] = "current",
    as_json: Json = False,
) -> int:
    """List runs, newest first, and how many there are of each status; with --json a line for each run."""
    from fedplcc.terminal.run_lines import run_lines, totals_line

    filters: dict[str, str | list[str]] = {
        "status": list(status or ()),
        "method": method,
        "name": name,
        "tag": tag or [],
        "since": "" if since is None else since.astimezone().isoformat(),
        "order": order,
        "show": show,
    }
    page = ask_gateway(Way(gateway, insecure, gateway_ca), lambda there: there.list_runs(limit=limit, **filters))
    if as_json:
        for run in page.runs:
            print(run.model_dump_json())
    elif page.runs:
        print("\n".join(run_lines(page.runs)))
        print(totals_line(len(page.runs), page.total, page.totals))
    elif any(page.totals.model_dump().values()) or any(filters[each] for each in ("method", "name", "tag", "since")):
        print("no run is like this")
    elif show in ("archived", "deleted"):
        print(f"there are no {show} runs")
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
    from fedplcc.terminal.round_table import RoundTable
    from fedplcc.terminal.run_lines import (
        awaited_lines,
        dropped_lines,
        label_lines,
        refusal_lines,
        server_state_lines,
        warning_lines,
    )
    from shared.config.run import canonical_json

    async def ask(there: Gateway) -> tuple[Run, list[Round], list[Client], float | None]:
        found = await _found(there, run)
        clients = [] if as_json or found.status.is_final else await there.list_clients()
        rounds = await there.last_rounds(found)
        committed = [each.round for each in rounds if each.metrics is not None]
        took = None if as_json or not committed else await there.seconds_of(found.run_id, committed[-1])
        return found, rounds, clients, took

    found, rounds, clients, seconds = ask_gateway(Way(gateway, insecure, gateway_ca), ask)
    known = [each.metrics for each in rounds if each.metrics is not None]
    metrics = known[-1].model_dump(by_alias=True) if known else None
    if as_json:
        print(canonical_json({**found.model_dump(mode="json"), "metrics": metrics}))
        return ExitCode.OK
    console = console_for(json=False)
    console.print(sentence_of_run(found))
    for line in (
        *label_lines(found),
        *server_state_lines(found),
        *awaited_lines(found, rounds, clients),
        *dropped_lines(rounds),
        *warning_lines(found),
        *refusal_lines(found),
    ):
        console.print(line)
    if metrics is not None:
        table = RoundTable.of(metrics, has_time=seconds is not None, config=found.config)
        for text in (*table.notes, table.heading()):
            console.print(text)
        console.print(table.line(metrics, seconds))
    return ExitCode.OK


@app.command(epilog=examples("fedplcc run watch", "fedplcc run watch scans-97f12353 --gateway http://127.0.0.1:8081"))
@explains_errors
def watch(
    run: MaybeRunId = None,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    as_json: Json = False,
) -> int:
    """Follow a run to its end, through restarts of gateway and aggregator. Ctrl-C ends watching, not the run.

    There is a line per round, and on a terminal a bar below them; elsewhere now and then a line with the clients that a
    round waits for. With --json there is a line per event of the run's history, and the run itself at the end.
    """
    return ask_gateway(Way(gateway, insecure, gateway_ca), lambda there: _watch(there, run, as_json=as_json))


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
    key = key_of(request_id)
    return change_run(
        Way(gateway, insecure, gateway_ca), lambda there: there.pause(run, now=now, request_id=key), as_json=as_json
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
    key = key_of(request_id)
    return change_run(
        Way(gateway, insecure, gateway_ca), lambda there: there.resume(run, request_id=key), as_json=as_json
    )


@app.command(epilog=examples("fedplcc run extend scans-97f12353 --rounds 60"))
@explains_errors
def extend(
    run: RunId,
    rounds: Annotated[int, typer.Option(help="Rounds of the whole run, with those that it has.", metavar="NUMBER")],
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    request_id: RequestId = None,
    as_json: Json = False,
) -> int:
    """Let a completed run go on to more rounds, to the same bytes as a run that was longer from the start."""
    key = key_of(request_id)
    return change_run(
        Way(gateway, insecure, gateway_ca),
        lambda there: there.extend(run, rounds=rounds, request_id=key),
        as_json=as_json,
    )


@app.command(
    epilog=examples(
        'fedplcc run stop scans-97f12353 --reason "wrong scanner" --yes', "fedplcc run stop --key 0123456789ab"
    )
)
@explains_errors
def stop(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="The run's id, as 'fedplcc run list' shows it.", show_default=False),
    ] = None,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Stop all runs that this key began, instead of one; 'fedplcc key list' shows its id.",
            show_default=False,
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why, for the run's history.")] = "",
    yes: Yes = False,
    request_id: RequestId = None,
    as_json: Json = False,
) -> int:
    """Stop a run for good, or all of a key; the last committed round is kept. Stopping it again changes nothing."""
    from fedplcc.remote.runs_of_keys import stop_runs_of_keys
    from fedplcc.terminal.question import agreed
    from shared.errors import InvalidConfig

    if (run is None) == (key is None):
        raise InvalidConfig("name the run, or a key with --key: one of them")
    named = key_of(request_id)
    what = f"Stop run {run} for good? It keeps its last committed round, and cannot go on."
    if key is not None:
        what = f"Stop all open runs of key {key} for good? They keep their last committed rounds, and cannot go on."
    if not agreed(what, yes=yes, what="stop it"):
        return nothing_changed()
    way = Way(gateway, insecure, gateway_ca)
    if key is None:
        assert run is not None
        run_id = run
        return change_run(way, lambda there: there.stop(run_id, reason=reason, request_id=named), as_json=as_json)
    key_ids = (key,)
    for stopped in ask_gateway(way, lambda there: stop_runs_of_keys(there, key_ids, reason=reason)):
        print_run(stopped, sentence_of_run(stopped), as_json=as_json)
    return ExitCode.OK


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
    key = key_of(request_id)
    return change_run(
        Way(gateway, insecure, gateway_ca),
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
    key = key_of(request_id)
    return change_run(
        Way(gateway, insecure, gateway_ca), lambda there: there.release(run, client, request_id=key), as_json=as_json
    )


Clients = Annotated[
    list[str], typer.Argument(metavar="CLIENT...", help="The clients, as the console shows them.", show_default=False)
]


@app.command(epilog=examples("fedplcc run admit scans-97f12353 ward-3 ward-4"))
@explains_errors
def admit(
    run: RunId,
    clients: Clients,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    request_id: RequestId = None,
    as_json: Json = False,
) -> int:
    """Admit clients to a run from the next round on. Admitting one that takes part changes nothing."""
    key = key_of(request_id)

    async def change(there: Gateway) -> Run:
        for client in clients[:-1]:
            await there.admit(run, client, request_id=_key_for(key, client, clients))
        return await there.admit(run, clients[-1], request_id=_key_for(key, clients[-1], clients))

    return change_run(Way(gateway, insecure, gateway_ca), change, as_json=as_json)


@app.command(epilog=examples("fedplcc run retire scans-97f12353 ward-3 --forget"))
@explains_errors
def retire(
    run: RunId,
    client: ClientId,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Later pools are without its prototypes, and its trainer deletes what it keeps of the run."
        ),
    ] = False,
    request_id: RequestId = None,
    as_json: Json = False,
) -> int:
    """Retire a client from a run: its part in the open round ends, and no later round has it."""
    key = key_of(request_id)
    return change_run(
        Way(gateway, insecure, gateway_ca),
        lambda there: there.retire(run, client, forgets=forget, request_id=key),
        as_json=as_json,
    )


@app.command(epilog=examples("fedplcc run advance scans-97f12353"))
@explains_errors
def advance(
    run: RunId,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    request_id: RequestId = None,
    as_json: Json = False,
) -> int:
    """End the present stage of a run whose stages people end; the next round begins the next one."""
    key = key_of(request_id)
    way = Way(gateway, insecure, gateway_ca)
    return change_run(way, lambda there: there.advance(run, request_id=key), as_json=as_json)


@app.command(epilog=examples("fedplcc run stages scans-97f12353"))
@explains_errors
def stages(
    run: MaybeRunId = None,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
    as_json: Json = False,
) -> int:
    """Show what the stages of a run taught, and what they made its model forget: accuracy stage by stage."""
    import json

    from fedplcc.terminal.progress import console_for
    from fedplcc.terminal.stage_lines import StageMatrix
    from shared.config.run import canonical_json

    async def ask(there: Gateway) -> tuple[Run, list[str]]:
        found = await _found(there, run)
        return found, await there.lines(found.run_id, "metrics")

    found, lines = ask_gateway(Way(gateway, insecure, gateway_ca), ask)
    matrix = StageMatrix.of([json.loads(line) for line in lines if line])
    if as_json:
        print(canonical_json(None if matrix is None else matrix.as_json()))
        return ExitCode.OK
    console = console_for(json=False)
    console.print(sentence_of_run(found))
    if matrix is None:
        console.print("it has no stages, or none of its rounds was evaluated")
    for line in () if matrix is None else matrix.lines():
        console.print(line)
    return ExitCode.OK


def _key_for(key: str, client: str, clients: Sequence[str]) -> str:
    """Return the request id for one of several clients, the same in every repetition of the command."""
    return key if len(clients) == 1 else hashlib.sha256(f"{key}/{client}".encode()).hexdigest()


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

        record, folder = ask_gateway(Way(gateway, insecure, gateway_ca), ask)
    for line in describe(record, folder):
        console.print(line)
    if as_json:
        print(canonical_json(summary(record, folder)))
    return ExitCode.OK


@app.command(
    "log",
    epilog=examples(
        "fedplcc run log scans-97f12353 --log tensorboard:curves",
        "fedplcc run log --log mlflow:http://127.0.0.1:5000 --log-model",
    ),
)
@explains_errors
def log_run(
    run: MaybeRunId = None,
    log: Log = None,
    log_model: LogModel = False,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    insecure: Insecure = False,
    gateway_ca: GatewayCa = None,
) -> int:
    """Follow a run to its end and keep its curves with trackers, from its first round and through restarts.

    Started again it goes on; each round is kept once. Ctrl-C ends logging, not the run.
    """
    from fedplcc.runs.artifacts import ending_of
    from fedplcc.terminal.progress import console_for
    from fedplcc.tracking.deployed_run import follow_run
    from fedplcc.tracking.destinations import make_trackers
    from shared.errors import InvalidConfig

    if not log:
        raise InvalidConfig(
            "name a tracker with --log: tensorboard, mlflow, wandb or jsonl, each with :WHERE if you like"
        )
    trackers = make_trackers(log, with_model=log_model)

    async def follow(there: Gateway) -> Run:
        from asyncio import CancelledError

        found = await _found(there, run)
        try:
            return await follow_run(there, found, trackers, with_model=log_model, on_note=say)
        except CancelledError:
            raise Interrupted(
                f"this ends logging only, run {found.run_id} goes on; the same command logs what is missing"
            ) from None

    ended = ask_gateway(Way(gateway, insecure, gateway_ca), follow)
    console = console_for(json=False)
    console.print(ending_of(ended.run_id, ended.status, ended.reason))
    return ExitCode.OK if ended.status == "completed" else ExitCode.FAILED


# Shared parts


async def _found(gateway: Gateway, run_id: str | None) -> Run:
    """The run with this id, or the newest one.

    Raises:
        RunNotFound: There is none.
    """
    from shared.errors import RunNotFound

    if run_id is not None:
        return await gateway.get_run(run_id)
    found = (await gateway.list_runs(limit=1)).runs
    if not found:
        raise RunNotFound("there are no runs; start one with: fedplcc run start --config FILE")
    return await gateway.get_run(found[0].run_id)


async def _watch(gateway: Gateway, run_id: str | None, *, as_json: bool) -> int:
    from asyncio import CancelledError

    from fedplcc.runs.artifacts import ending_of
    from fedplcc.terminal.progress import console_for

    run = await _found(gateway, run_id)
    console = console_for(json=as_json)
    try:
        run = await _watch_lines(gateway, run, as_json=as_json)
    except CancelledError:
        raise Interrupted(_how_to_go_on(run.run_id, gateway.url)) from None
    if run.status == "completed":
        console.print(ending_of(run.run_id, run.status, run.reason))
        return ExitCode.OK
    say(ending_of(run.run_id, run.status, run.reason))
    return ExitCode.FAILED


async def _watch_lines(gateway: Gateway, run: Run, *, as_json: bool) -> Run:
    from fedplcc.terminal.line_watch import LineWatch
    from fedplcc.terminal.progress import RunProgress, console_for
    from shared.documents import Run

    if not as_json:
        with RunProgress(
            console_for(json=False), total_rounds=run.total_rounds, config=run.config, method=run.method
        ) as progress:
            progress.note(sentence_of_run(run))
            return await LineWatch(gateway, run.run_id, progress).until_end()
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
