"""`fedplcc run start`: a run of a deployed federation."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors, say
from fedplcc.command.gateway_calls import ask_gateway, key_of, print_run
from fedplcc.command.shared_options import Way
from fedplcc.shared.errors import FedplccError
from fedplcc.terminal.class_sentences import class_sentences
from fedplcc.terminal.names import named_few

if TYPE_CHECKING:
    from fedplcc.gateway_client.clients import AsyncGateway
    from fedplcc.shared.documents import Run

EXAMPLES = examples(
    "fedplcc run start",
    "fedplcc run start --config scans.toml --set run.rounds=60",
    "fedplcc run start --config scans.toml --request-id nightly-7 --json",
)


@explains_errors
def start(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Configuration file; its [clients] tables are left out. run.toml if not given.", dir_okay=False
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A key in place of the file's, for instance run.rounds=60; repeatable."
        ),
    ] = None,
    request_id: Annotated[
        str | None,
        typer.Option(help="Names this request: the same one again gives the same run. A random one if not given."),
    ] = None,
    way: Way,
    as_json: bool,
) -> None:
    """Start a run; it waits until its clients have joined.

    A file that it begins with (run.initial_model = "file:PATH") is sent first.
    """
    from fedplcc.runs.configuration import Overrides, chosen_file, read_federation
    from fedplcc.runs.initial_model import doubts
    from fedplcc.shared.config.doubts import about_single_samples
    from fedplcc.shared.process import traces
    from fedplcc.terminal.progress import console_for, shown_transfers

    federation = read_federation(chosen_file(config), Overrides(assignments=assignments or ()))
    document = json.loads(federation.config.canonical_json)
    key, file = key_of(request_id), federation.initial_model_file

    async def begin(there: AsyncGateway) -> tuple[Run, tuple[str, ...]]:
        if file is not None:
            size_bytes = file.stat().st_size
            with shown_transfers(console_for(json=as_json), "sending") as on_bytes:
                await there.upload_model(file, on_bytes=lambda count: on_bytes(file.name, count, size_bytes))
        begin = time.perf_counter()
        run = await there.create_run(document, request_id=key)
        traces.record(traces.ended("fedplcc run start", time.perf_counter() - begin), run.run_id, 0)
        if as_json:
            return run, ()
        return run, (await _about_clients(there, run), *await _about_first_model(there, run, file))

    traces.set_up("command")
    run, notes = ask_gateway(way, begin)
    print_run(run, f"run {run.run_id} is {run.status}; follow it with: fedplcc run watch {run.run_id}", as_json=as_json)
    found = (*notes, *doubts(federation), about_single_samples(federation.config))
    for sentence in filter(None, dict.fromkeys(found)):
        say(sentence)


async def _about_first_model(there: AsyncGateway, run: Run, file: Path | None) -> Sequence[str]:
    """Sentences on the model that a run begins with, where that is no file here."""
    from fedplcc.shared.config.run import parse_run_config
    from fedplcc.shared.config.trained_input import UNNAMED_CLASSES, names_classes, other_size

    begins = run.config["run"]
    if file is not None or begins.get("initial_model") is None:
        return ()
    if not names_classes(begins):
        return (UNNAMED_CLASSES,)
    try:
        earlier = await there.get_run((begins.get("initial_runs") or [""])[0])
        return (other_size(earlier.run_id, earlier.config, parse_run_config(run.config)),)
    except FedplccError:
        return ()  # of another aggregator, or deleted


async def _about_clients(there: AsyncGateway, run: Run) -> str:
    """Sentences on clients that cannot do a run; empty if there is nothing to say."""
    try:
        known = await there.all_clients()
    except FedplccError:
        return ""  # the run is there; a key that may start runs need not see clients
    counts = {client.client_id: client.class_counts for client in known if client.is_connected and client.class_counts}
    taking_part = {client: own for client, own in counts.items() if not run.roster or client in run.roster}
    said = class_sentences(taking_part, run.config["data"]["classes"])
    return "; ".join(filter(None, (_strangers(there.url, run, [client.client_id for client in known]), *said)))


def _strangers(url: str, run: Run, joined: Sequence[str]) -> str:
    """A sentence if a run waits for clients of which none has ever joined, as the demo's; empty otherwise."""
    if run.status != "pending" or not run.roster or not joined or not set(joined).isdisjoint(run.roster):
        return ""
    return (
        f"it waits for {named_few(run.roster)}, of which none has ever joined; here are {named_few(joined)}. "
        f"A file for those: fedplcc config init FILE --gateway {url}"
    )
