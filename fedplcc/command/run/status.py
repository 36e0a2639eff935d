"""`fedplcc run status`: a run as it is now, and what its stages taught."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fedplcc.command.examples import examples
from fedplcc.command.exit_codes import explains_errors
from fedplcc.command.gateway_calls import ask_gateway, sentence_of_run
from fedplcc.command.run.choosing import MaybeRunId, found_run
from fedplcc.command.shared_options import Way

if TYPE_CHECKING:
    from fedplcc.gateway_client.clients import AsyncGateway
    from fedplcc.shared.documents import Client, Round, Run
    from fedplcc.terminal.stage_lines import StageMatrix

EXAMPLES = examples("fedplcc run status", "fedplcc run status scans-97f12353 --json")


class _Shown(NamedTuple):
    """What the command asks for."""

    run: Run
    rounds: list[Round]
    clients: list[Client]
    timing: dict[str, Any] | None
    """Line of timings.jsonl of the last of these rounds that has committed."""
    stages: StageMatrix | None

    @property
    def metrics(self) -> dict[str, Any] | None:
        """The line of metrics.jsonl of that round."""
        known = [each.metrics for each in self.rounds if each.metrics is not None]
        return known[-1].model_dump(by_alias=True) if known else None


@explains_errors
def status(*, run: MaybeRunId = None, way: Way, as_json: bool) -> None:
    """Show a run: its round, awaited, dropped and quarantined clients, refused updates, and the last accuracy.

    Of a run with stages, also what they taught and what they made its model forget: accuracy stage by stage.
    """
    from fedplcc.shared.config.round_bytes import measured_bytes
    from fedplcc.shared.config.run import canonical_json

    shown = ask_gateway(way, lambda there: _ask(there, run, as_json=as_json))
    if as_json:
        stages = None if shown.stages is None else shown.stages.as_json()
        moved = None if shown.timing is None else measured_bytes(shown.timing)
        measured = None if moved is None else {"all_up": moved[0], "all_down": moved[1]}
        found = {"metrics": shown.metrics, "stages": stages, "measured_bytes": measured}
        print(canonical_json({**shown.run.model_dump(mode="json"), **found}))
    else:
        _print(shown)


async def _ask(there: AsyncGateway, run: str | None, *, as_json: bool) -> _Shown:
    from fedplcc.shared.config.tables.stream import has_stages
    from fedplcc.terminal.stage_lines import StageMatrix

    found = await found_run(there, run)
    clients = [] if as_json or found.status.is_final else await there.all_clients()
    rounds = await there.last_rounds(found)
    committed = [each.round for each in rounds if each.metrics is not None]
    timing = await _timing_of(there, found.run_id, committed[-1]) if committed else None
    stages = StageMatrix.of(await there.get_metrics_lines(found.run_id) if has_stages(found.config) else [])
    return _Shown(found, rounds, clients, timing, stages)


async def _timing_of(there: AsyncGateway, run_id: str, number: int) -> dict[str, Any] | None:
    """A committed round's line of timings.jsonl; None if it has none."""
    lines = await there.get_timings_lines(run_id, after=number - 1)
    return next((line for line in lines if line.get("round") == number), None)


def _print(shown: _Shown) -> None:
    from fedplcc.runs.artifacts import joining_texts
    from fedplcc.terminal.progress import console_for
    from fedplcc.terminal.round_bytes_lines import foreseen_line, measured_line
    from fedplcc.terminal.round_table import RoundTable
    from fedplcc.terminal.run_lines import (
        awaited_lines,
        dropped_lines,
        label_lines,
        refusal_lines,
        server_state_lines,
        warning_lines,
    )

    run, console = shown.run, console_for(json=False)
    console.print(sentence_of_run(run))
    for line in (
        *label_lines(run),
        *server_state_lines(run),
        *(() if run.round_bytes is None else (foreseen_line(run.round_bytes),)),
        *filter(None, (None if shown.timing is None else measured_line(shown.timing),)),
        *awaited_lines(run, shown.rounds, shown.clients),
        *dropped_lines(shown.rounds),
        *warning_lines(run),
        *refusal_lines(run),
        *(() if shown.stages is None else shown.stages.lines()),
    ):
        console.print(line)
    if (metrics := shown.metrics) is not None:
        seconds = None if shown.timing is None else shown.timing.get("seconds", {}).get("total")
        table = RoundTable.of(metrics, has_time=seconds is not None, config=run.config)
        for text in (*table.notes, table.heading()):
            console.print(text)
        for text in (table.line(metrics, seconds), *joining_texts(metrics)):
            console.print(text)
