"""Lines per round, and the events that make them."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from fedplcc.command.gateway_calls import sentence_of_run
from fedplcc.shared.documents import Event, QuarantinedClient, Round
from fedplcc.shared.reasons import Dropped, DropReason
from fedplcc.shared.types import ClientActivity, RoundPhase, RunStatus
from fedplcc.terminal.progress import RunProgress, console_for, shown_transfers
from fedplcc.terminal.round_table import BALANCED_NOTE, PLAIN_NOTE, RoundTable
from fedplcc.terminal.run_lines import awaited_lines, status_line
from tests.support.records import builders
from tests.support.records.run_history import CLIENTS, UNREADABLE, a_client, the_clients
from tests.unit.fedplcc.records import a_line, a_local_line, a_run_document, an_unevaluated_line

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def an_event(event_type: str, number: int | None = None, second: float = 0.0, **data: Any) -> Event:
    return Event(
        sequence=1,
        time=BEGIN + timedelta(seconds=second),
        type=event_type,
        run_id="r-1",
        round=number,
        client_id="ann",
        data=data,
    )


def shown(*events: Event, terminal: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, highlight=False, markup=False, soft_wrap=True)
    with RunProgress(console, total_rounds=2) as progress:
        for event in events:
            progress.event(event)
    return out.getvalue()


def a_round(number: int, begin: float, **accuracy: float | None) -> list[Event]:
    return [
        an_event("round_opened", number, begin, cohort=["ann", "bob"], phase="collecting"),
        an_event("update_committed", number, begin + 0.5),
        an_event("round_aggregating", number, begin + 1),
        an_event("round_evaluating", number, begin + 1),
        an_event("round_committed", number, begin + 1.5, metrics=a_line(number, **accuracy)),
    ]


def test_a_round_that_was_not_evaluated_is_a_line_without_accuracies_under_the_same_heading() -> None:
    def committed(number: int, line: dict[str, Any]) -> Event:
        return an_event("round_committed", number, metrics=line)

    both = {"north": 0.25, "south": 0.5}
    lines = shown(
        committed(1, an_unevaluated_line(1)),
        committed(2, a_line(2, **both)),
        committed(3, an_unevaluated_line(3)),
        committed(4, a_line(4, **both)),
    ).splitlines()
    numbers = [line.split()[0] for line in lines]
    assert numbers == ["round", "1", "round", "2", "3", "4"], "the domains are known from round 2 on"
    assert lines[0].split()[:4] == ["round", "mean", "worst", "loss"]
    assert lines[1].split()[:4] == ["1", "-", "-", "1.000"]
    assert lines[4].split()[:6] == ["3", "-", "-", "-", "-", "0.333"]


def test_every_committed_round_is_a_line_under_one_heading() -> None:
    lines = shown(*a_round(1, 0, north=0.25, south=0.5), *a_round(2, 10, north=0.5, south=0.75)).splitlines()
    assert lines[0].split() == ["round", "north", "south", "mean", "worst", "loss", "prototypes", "time"]
    assert lines[1].split() == ["1", "25.0%", "50.0%", "37.5%", "25.0%", "1.000", "8", "->", "4", "1.5", "s"]
    assert lines[2].split()[:3] == ["2", "50.0%", "75.0%"]
    assert len(lines) == 3
    assert len({len(line) for line in lines}) == 1


def test_what_a_person_wants_to_know_is_a_line_of_its_own() -> None:
    refused = an_event("update_refused", 1, detail="it holds NaN")
    late = an_event("report_refused", 1, detail="the run is stopping")
    problem = an_event("client_problem", 1, detail="2 files cannot be read", hint="look at a.png")
    out = an_event("client_quarantined", 1, reason="3 updates were refused")
    dropped = an_event("client_dropped", 1, reason="lost", detail="not connected")
    waiting = an_event("quorum_missing", 1, reason="round 1 has no quorum, 1 of the 2 clients that it needs")
    pending = an_event("quorum_missing", 1, reason="waits for ann's approval", clients=["ann"])
    away = (dropped, an_event("client_returned", 1), waiting, pending)
    events = (refused, late, problem, out, an_event("client_released", 1), *away)
    text = shown(an_event("run_paused"), an_event("run_resumed"), an_event("run_recovered"), *events)
    assert text.splitlines() == [
        "the run is paused",
        "the run goes on",
        "the run goes on after an interruption",
        "client ann: an update was refused: it holds NaN",
        "client ann: a report was refused: the run is stopping",
        "client ann: 2 files cannot be read; look at a.png",
        "client ann is quarantined: 3 updates were refused",
        "client ann takes part again",
        "round 1 goes on without client ann, lost: not connected",
        "round 1 waits for client ann again",
        "waiting: round 1 has no quorum, 1 of the 2 clients that it needs",
        "the run waits for ann's approval",
    ]


def test_a_text_that_somebody_chose_gives_a_terminal_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    stopped = a_run_document(RunStatus.STOPPED).model_copy(update={"reason": "\x1b]0;x\x9b31m\u202e"})
    print(sentence_of_run(stopped))
    console_for(json=False).print(f"{stopped.reason}\nnext")
    assert capsys.readouterr().out.count("\\x1b]0;x\\x9b31m\\u202e") == 2
    out = io.StringIO()
    console = type(console_for(json=False))(file=out, force_terminal=True, width=100, soft_wrap=True)
    with RunProgress(console, total_rounds=1) as progress:
        progress.now("the disk [/full] has \x1b[2J no room")  # no markup, which an end without a beginning would break
    assert "[/full] has \\x1b[2J" in out.getvalue()


def test_transfers_are_a_line_each_off_a_terminal() -> None:
    out = io.StringIO()
    with shown_transfers(Console(file=out)) as on_bytes:
        for count in (5, 5):
            on_bytes("model.safetensors", count, 10)
        on_bytes("prototypes.safetensors", 10, 10)
    lines = ["fetching model.safetensors, 10 bytes", "fetching prototypes.safetensors, 10 bytes"]
    assert [line for line in out.getvalue().splitlines() if line] == lines


def test_local_models_have_their_mean_and_worst_beside_the_global_one() -> None:
    metrics = [a_local_line(1, north=0.5, south=1.0), a_local_line(2, north=None, south=None)]
    lines = shown(
        *(an_event("round_committed", line["round"], line["round"], metrics=line) for line in metrics)
    ).splitlines()
    heading, first, second = (re.split("  +", line.strip()) for line in lines)
    assert heading[:7] == ["round", "north", "south", "mean", "worst", "local mean", "local worst"]
    assert first[:7] == ["1", "25.0%", "25.0%", "25.0%", "25.0%", "75.0%", "50.0%"]
    assert second[5:7] == ["-", "-"]
    assert len({len(line) for line in lines}) == 1


def a_stage_line(number: int, stage: int, pass_number: int = 1) -> dict[str, Any]:
    return {**a_line(number, north=0.5), "pass": pass_number, "stage": stage}


def test_each_round_of_a_run_with_stages_names_its_stage_also_where_it_was_not_evaluated() -> None:
    metrics = [a_stage_line(1, 1), {**a_stage_line(2, 2), "accuracy": None}, a_stage_line(3, 2)]
    lines = shown(*(an_event("round_committed", line["round"], metrics=line) for line in metrics)).splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["round", "stage", "north"],
        ["1", "1", "50.0%"],
        ["2", "2", "-"],
        ["3", "2", "50.0%"],
    ]
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize("width", [100, 80, 60, 40])
def test_a_terminals_lines_fit_into_it(width: int) -> None:
    table = RoundTable(["mnist", "mnistm", "optdigits", "synth"], width)
    lines = [table.heading(), table.line(a_line(1, mnist=0.5, mnistm=0.25, optdigits=1.0, synth=None), 3.5)]
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= width
    assert {"round", "mean", "worst"} <= set(lines[0].split())
    assert ("prototypes" in lines[0]) == (width == 100)
    assert ("synth" in lines[0]) == (width >= 60)


@pytest.mark.parametrize(("dumb", "terminal"), [(True, True), (False, False)])
def test_where_no_bar_can_move_steps_are_lines(dumb: bool, terminal: bool) -> None:
    out = io.StringIO()
    environment = {"TERM": "dumb" if dumb else "xterm"}
    console = Console(file=out, force_terminal=terminal, width=80, _environ=environment)
    with RunProgress(console, total_rounds=2) as progress:
        progress.step("ann: reading its data")
        progress.now("ann: training, 5%")
    assert out.getvalue() == "ann: reading its data\n"


@pytest.mark.parametrize("width", [40, 80])
def test_a_bar_fits_into_its_terminal_and_leaves_nothing(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, soft_wrap=True, _environ={"NO_COLOR": "1"})
    with RunProgress(console, total_rounds=30) as progress:
        progress.step("a-client-with-a-long-name: reading its data from a slow disk")
    drawn = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]", out.getvalue())]
    assert any("a-client" in line and "0/30" in line for line in drawn)
    assert all(len(line) <= width for line in drawn)
    assert "\x1b[3" not in out.getvalue(), "NO_COLOR is respected"


def test_of_a_round_that_waits_each_client_is_named_that_is_not_done_and_first_those_that_do_not_come_further() -> None:
    run = a_run_document(RunStatus.RUNNING)
    run = run.model_copy(
        update={"cohort": list(CLIENTS), "done_clients": ["ward-1"], "phase": RoundPhase.COLLECTING, "round": 13}
    )
    lines = awaited_lines(run, [], the_clients())
    assert [line.partition(":")[0].removeprefix("waits for client ") for line in lines] == [
        "ward-3",
        "ward-4",
        "lab",
        "ward-2",
    ]
    assert lines[0].endswith(f"training, 10% done; {UNREADABLE.detail}; {UNREADABLE.hint}")
    assert re.search(r": away since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d \S+$", lines[1])
    assert lines[2].endswith(": training, 42% done")


def test_nobody_waits_for_clients_that_were_dropped_or_quarantined_nor_for_any_while_the_aggregator_works() -> None:
    run = a_run_document(RunStatus.RUNNING).model_copy(
        update={
            "cohort": list(CLIENTS),
            "phase": RoundPhase.EVALUATING,
            "round": 13,
            "quarantined": [QuarantinedClient(client_id="ward-3", reason="NaN")],
        }
    )
    current = Round.of(builders.a_round(13, dropped={"ward-4": Dropped(DropReason.LOST, "not connected")}))
    lines = awaited_lines(run, [current], [a_client(name) for name in CLIENTS])
    assert lines == [f"waits for client {name}: idle" for name in ("lab", "ward-1", "ward-2")]
    for change in ({"phase": RoundPhase.AGGREGATING}, {"status": RunStatus.PAUSED}, {"status": RunStatus.COMPLETED}):
        assert awaited_lines(run.model_copy(update=change), [current], []) == []


def test_a_run_that_is_pending_waits_for_those_of_its_roster_that_are_not_here() -> None:
    run = a_run_document(RunStatus.PENDING).model_copy(update={"roster": ["lab", "new\x1b[2J", "ward-3"]})
    here = [a_client("lab", ClientActivity.TRAINING), a_client("ward-3", problem=UNREADABLE)]
    assert awaited_lines(run, [], here) == ["waits for client new\\x1b[2J: has not joined yet"]


def test_who_has_heard_nothing_for_a_while_is_told_on_one_line_what_a_round_waits_for() -> None:
    run = a_run_document(RunStatus.RUNNING).model_copy(
        update={"cohort": list(CLIENTS), "done_clients": ["ward-1"], "phase": RoundPhase.COLLECTING, "round": 13}
    )
    line = status_line(run, [], the_clients(), since=750.0)
    assert line.startswith("round 13: training, 12 min, 1 of 5 clients done; waits for ward-3 (training, 10% done; ")
    assert "; waits for ward-4 (away since " in line
    assert line.endswith("; waits for lab (training, 42% done); and for 1 more")
    without = status_line(run.model_copy(update={"reason": "round 13 has no quorum\n"}), [], [])
    assert without.startswith("round 13: training, 1 of 5 clients done; round 13 has no quorum")
    assert "\n" not in without
    assert status_line(run.model_copy(update={"phase": RoundPhase.AGGREGATING}), [], [], 90.0) == (
        "round 13: aggregating, 2 min"
    )


def test_a_run_at_chance_is_warned_of_once_until_it_learns() -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, highlight=False, markup=False, soft_wrap=True)
    config = {"data": {"classes": ["a", "b"]}, "training": {"learning_rate": 0.01, "clip_norm": None}}
    with RunProgress(console, total_rounds=30, config=config, method="fedplcc") as progress:
        for number in range(1, 31):
            value = 0.9 if number == 12 else 0.5
            progress.event(an_event("round_committed", number, metrics=a_line(number, north=value)))
    lines = out.getvalue().splitlines()
    warned = [index for index, line in enumerate(lines) if line.startswith("warning: mean accuracy is at chance")]
    rounds = [lines[index - 1].split()[0] for index in warned]
    assert rounds == ["10", "22"]
    assert "training.clip_norm = 40" in lines[warned[0]]


@pytest.mark.parametrize(("outlasts", "code"), [(True, 0), (False, 1)])
def test_work_goes_on_where_nobody_reads_any_more_if_its_results_count(outlasts: bool, code: int) -> None:
    lines = (
        "import os",
        "from fedplcc.terminal.progress import console_for",
        f"console = console_for(json=False, outlasts_reader={outlasts})",
        "console.print('first')",
        "os.read(0, 1)",  # until the reader is gone
        "console.print('second'); console.print('third'); print('fourth', flush=True)",
    )
    command = [sys.executable, "-c", "\n".join(lines)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        process.stdout.close()
        process.stdout = None
        _, error = process.communicate(b".")
        assert (process.returncode, error) == (code, b"")


def test_round_zero_has_no_metrics_and_no_line() -> None:
    opened = an_event("round_opened", 0, cohort=["ann"], phase="initialising")
    assert shown(opened, an_event("round_committed", 0)) == ""


def test_accuracies_that_are_of_local_models_are_said_to_be_so_once() -> None:
    metrics = [a_local_line(number, is_alone=True, north=0.5) for number in (1, 2)]
    lines = shown(
        *(an_event("round_committed", line["round"], line["round"], metrics=line) for line in metrics)
    ).splitlines()
    assert lines[0].startswith("accuracies are of the clients' own models: this run shares none")
    assert lines[1].split()[:4] == ["round", "north", "mean", "worst"]
    assert [line.split()[:2] for line in lines[2:]] == [["1", "50.0%"], ["2", "50.0%"]]


def test_a_table_says_where_balanced_accuracies_give_way_to_plain_ones() -> None:
    line = {"round": 1, "accuracy": {"a": 0.5, "mean": 0.5, "worst": 0.5}, "loss": {}, "prototypes": {}}
    plain, uneven = RoundTable.of(line), RoundTable.of({**line, "balanced_accuracy": line["accuracy"]})
    assert plain.notes_after(None) == plain.notes_after(plain) == ()
    assert uneven.notes_after(plain) == uneven.notes == (BALANCED_NOTE,)
    assert plain.notes_after(uneven) == (PLAIN_NOTE,)
