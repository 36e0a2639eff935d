"""Lines per round, and the events that make them."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console

from fedplcc.progress import RoundTable, RunProgress, run_lines, shown_transfers
from gateway.schemas import Event
from shared.types import RunStatus
from tests.unit.fedplcc.records import a_line, a_run_document

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


def test_every_committed_round_is_a_line_under_one_heading() -> None:
    lines = shown(*a_round(1, 0, north=0.25, south=0.5), *a_round(2, 10, north=0.5, south=0.75)).splitlines()
    assert lines[0].split() == ["round", "north", "south", "mean", "worst", "loss", "prototypes", "time"]
    assert lines[1].split() == ["1", "25.0%", "50.0%", "37.5%", "25.0%", "1.000", "8", "->", "4", "1.5", "s"]
    assert lines[2].split()[:3] == ["2", "50.0%", "75.0%"]
    assert len(lines) == 3
    assert len({len(line) for line in lines}) == 1


def test_round_zero_has_no_metrics_and_no_line() -> None:
    opened = an_event("round_opened", 0, cohort=["ann"], phase="initialising")
    assert shown(opened, an_event("round_committed", 0)) == ""


def test_a_domain_that_comes_later_makes_a_new_heading() -> None:
    lines = shown(*a_round(1, 0, north=0.25), *a_round(2, 10, north=0.5, south=None)).splitlines()
    assert [line.split()[0] for line in lines] == ["round", "1", "round", "2"]
    assert "-" in lines[-1].split()


def test_what_a_person_wants_to_know_is_a_line_of_its_own() -> None:
    refused = an_event("update_refused", 1, detail="it holds NaN")
    problem = an_event("client_problem", 1, detail="2 files cannot be read", hint="look at a.png")
    text = shown(an_event("run_paused"), an_event("run_resumed"), an_event("run_recovered"), refused, problem)
    assert text.splitlines() == [
        "the run is paused",
        "the run goes on",
        "the aggregator came back; the run goes on",
        "client ann: an update was refused: it holds NaN",
        "client ann: 2 files cannot be read; look at a.png",
    ]


def test_a_terminal_shows_what_happens_now_and_keeps_the_lines() -> None:
    text = shown(*a_round(1, 0, north=0.25), terminal=True)
    assert "25.0%" in text
    assert "\x1b[" in text


def test_a_table_without_seconds_has_dashes() -> None:
    table = RoundTable(["north"])
    assert table.line(a_line(1, north=None)).split() == ["1", "-", "-", "-", "1.000", "8", "->", "4", "-"]


def test_transfers_are_silent_off_a_terminal() -> None:
    out = io.StringIO()
    with shown_transfers(Console(file=out)) as on_bytes:
        on_bytes("model.safetensors", 5, 10)
        on_bytes("model.safetensors", 5, 10)
    assert out.getvalue().strip() == ""


def test_runs_are_aligned_lines_under_a_heading() -> None:
    runs = [a_run_document(status) for status in (RunStatus.PENDING, RunStatus.COMPLETED)]
    heading, *lines = run_lines(runs)
    assert [line.split()[2] for line in lines] == ["pending", "completed"]
    assert {line.index(" 0/2 ") for line in lines} == {heading.index(" round ")}
    assert run_lines([]) == ["run  method  status  round  created  reason"]
