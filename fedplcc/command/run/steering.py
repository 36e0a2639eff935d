"""`fedplcc run pause`, `resume` and `stop`: what a whole run does next."""

from __future__ import annotations

from typing import Annotated

import typer

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors
from fedplcc.command.gateway_calls import (
    RequestId,
    Yes,
    ask_gateway,
    change_run,
    key_of,
    print_run,
    require_yes,
    sentence_of_run,
)
from fedplcc.command.run.choosing import RunId
from fedplcc.command.shared_options import Way
from fedplcc.shared.errors import InvalidConfig

PAUSE_EXAMPLES = examples("fedplcc run pause scans-97f12353", "fedplcc run pause scans-97f12353 --now")
RESUME_EXAMPLES = examples(
    "fedplcc run resume scans-97f12353",
    "fedplcc run resume scans-97f12353 --rounds 60",
    "fedplcc run resume scans-97f12353 --next-stage",
)
STOP_EXAMPLES = examples(
    'fedplcc run stop scans-97f12353 --reason "wrong scanner" --yes', "fedplcc run stop --key 0123456789ab"
)


@explains_errors
def pause(
    *,
    run: RunId,
    now: Annotated[bool, typer.Option("--now", help="Interrupt the open round; else it is finished first.")] = False,
    request_id: RequestId = None,
    way: Way,
    as_json: bool,
) -> None:
    """Pause a run. Pausing a paused run changes nothing."""
    key = key_of(request_id)
    change_run(way, lambda there: there.pause_run(run, now=now, request_id=key), as_json=as_json)


@explains_errors
def resume(
    *,
    run: RunId,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Let a completed run go on to so many rounds, with those that it has: to the same bytes as a run that was "
            "longer from the start.",
            metavar="NUMBER",
        ),
    ] = None,
    next_stage: Annotated[
        bool,
        typer.Option(
            "--next-stage",
            help="End the present stage of a run whose stages people end; the next round begins the next one.",
        ),
    ] = False,
    request_id: RequestId = None,
    way: Way,
    as_json: bool,
) -> None:
    """Let a run go on: a paused one, or one whose pause waits; with an option a completed one, or to the next stage."""
    if rounds is not None and next_stage:
        raise InvalidConfig("give --rounds or --next-stage: one of them")
    key = key_of(request_id)
    if rounds is not None:
        more = rounds
        return change_run(way, lambda there: there.extend_run(run, rounds=more, request_id=key), as_json=as_json)
    if next_stage:
        return change_run(way, lambda there: there.advance_stage(run, request_id=key), as_json=as_json)
    change_run(way, lambda there: there.resume_run(run, request_id=key), as_json=as_json)


@explains_errors
def stop(
    *,
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="The run's id, as 'fedplcc run list' shows it."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Stop all runs that this key, or person as the audit shows one, began; 'fedplcc key list' shows ids.",
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why, for the run's history.")] = "",
    yes: Yes = False,
    request_id: RequestId = None,
    way: Way,
    as_json: bool,
) -> None:
    """Stop a run for good, or all of a key; the last committed round is kept. Stopping it again changes nothing."""
    from fedplcc.remote.runs_of_keys import stop_runs_of

    if (run is None) == (key is None):
        raise InvalidConfig("name the run, or a key with --key: one of them")
    named = key_of(request_id)
    what = f"Stop run {run} for good? It keeps its last committed round, and cannot go on."
    if key is not None:
        what = f"Stop all open runs of key {key} for good? They keep their last committed rounds, and cannot go on."
    require_yes(what, yes=yes, what="stop it")
    if key is None:
        assert run is not None
        run_id = run
        change_run(way, lambda there: there.stop_run(run_id, reason=reason, request_id=named), as_json=as_json)
        return
    callers = (key if key.startswith("person:") else f"key:{key}",)
    for stopped in ask_gateway(way, lambda there: stop_runs_of(there, callers, reason=reason)):
        print_run(stopped, sentence_of_run(stopped), as_json=as_json)
