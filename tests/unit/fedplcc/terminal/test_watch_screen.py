"""The screen of a run that is being watched, in the sizes that terminals have."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from fedplcc.terminal.run_history import RunHistory
from fedplcc.terminal.watch.console import ascii_file
from fedplcc.terminal.watch.screen import WatchScreen
from shared.types import ClientActivity, RunStatus
from tests.support.records.run_history import BEGIN, DOMAINS, ROUND_S, a_client, a_run_history, an_event, the_clients
from tests.unit.fedplcc.records import a_run_document

GOLDEN = Path(__file__).parents[3] / "golden" / "watch-80x24.txt"
NOW = BEGIN + timedelta(seconds=12 * ROUND_S + 14)
WHERE = "http://127.0.0.1:8080"


@pytest.fixture(autouse=True)
def _in_utc() -> Iterator[None]:
    """Times of events are shown in the local time zone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def drawn(run: RunHistory, width: int, height: int, *, ascii_only: bool = False, colour: bool = True) -> str:
    """What rich writes of the screen onto a terminal of this size."""
    descriptor = os.memfd_create("terminal")
    out = ascii_file(descriptor) if ascii_only else open(descriptor, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    console = Console(
        file=out,
        force_terminal=True,
        width=width,
        height=height,
        color_system="standard" if colour else None,
        no_color=not colour,
        highlight=False,
        _environ={},
    )
    console.print(WatchScreen(run=run, now=NOW, where=WHERE))
    out.close()
    written = os.pread(descriptor, 1 << 20, 0).decode()
    os.close(descriptor)
    return written


def lines_of(run: RunHistory, width: int = 80, height: int = 24, *, ascii_only: bool = False) -> list[str]:
    text = drawn(run, width, height, ascii_only=ascii_only, colour=False)
    return [line.rstrip() for line in text.splitlines()]


def test_a_screen_of_80_columns_is_as_it_was_agreed() -> None:
    """To agree on another one: write what this draws into the file, look at it, and commit it."""
    assert "\n".join(lines_of(a_run_history())) + "\n" == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 20), (200, 60), (30, 10), (20, 3), (5, 1)])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_no_line_is_wider_and_no_screen_higher_than_the_terminal(width: int, height: int, ascii_only: bool) -> None:
    for run in (a_run_history(), a_run_history(0), a_run_history(300, [f"domain-{k:02}" for k in range(40)])):
        run.reason = "a reason that is long enough to need more than one line on any terminal that people use " * 2
        lines = lines_of(run, width, height, ascii_only=ascii_only)
        assert len(lines) == height
        assert max(map(cell_len, lines)) <= width
        if ascii_only:
            assert "".join(lines).isascii()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 20)])
def test_what_matters_is_seen_in_every_size(width: int, height: int) -> None:
    text = "\n".join(lines_of(a_run_history(), width, height))
    shown = (
        "digits-9",
        "running",
        "12 of 30",
        "about 6 min left",
        "1 of 5 clients",
        "mean",
        "worst",
        "loss",
        "prototypes",
    )
    assert [part for part in shown if part not in text] == []
    assert "Ctrl-C ends watching" in text
    (marked,) = (line for line in text.splitlines() if "◀" in line)
    assert marked.split()[0] == "usps"
    assert "ward-3" in text, "who is in trouble comes first"


@pytest.mark.parametrize(
    ("config", "place"), [({}, ", stage 2"), ({"stream": {"stages": 3, "passes": 5}}, ", pass 1, stage 2")]
)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_run_with_stages_shows_where_it_is(config: dict[str, Any], place: str, width: int) -> None:
    run = a_run_history()
    run.config = config
    assert run.place == ""
    run.rounds[-1] = {**run.rounds[-1], "pass": 1, "stage": 2}
    (line,) = (line for line in lines_of(run, width) if " 12 of 30" in line)
    assert line.endswith(f"12 of 30, about 6 min left{place}")


def test_a_large_terminal_shows_everything() -> None:
    text = "\n".join(lines_of(a_run_history(), 120, 40))
    hint = "2 of 1,204 files cannot be read; the log of this trainer names the first one; mend or remove them"
    shown = ("alignment 0.025", *DOMAINS, "lab", "ward-1", "done", "1240/s", "away since 22:03:20", hint, WHERE)
    assert [part for part in shown if part not in text] == []
    assert "22:02:15 round 7 goes on without client ward-4, lost: not connected" in text


def test_where_domains_do_not_fit_the_worst_ones_are_shown_and_the_others_counted() -> None:
    text = lines_of(a_run_history(3, [f"domain-{k:02}" for k in range(30)]), 80, 16)
    shown = [line.split()[0] for line in text if line.strip().startswith("domain-")]
    assert shown == sorted(shown)
    assert shown[-1] == "domain-29"
    assert f" +{30 - len(shown)} better" in text


def test_where_clients_do_not_fit_those_in_trouble_are_shown_and_the_others_counted() -> None:
    run = a_run_history()
    many = [a_client(f"site-{k:03}", ClientActivity.TRAINING, 0.5) for k in range(100)]
    run.roster |= {client.client_id for client in many}
    run.take_clients([*the_clients(), *many])
    text = "\n".join(lines_of(run, 80, 24))
    assert "clients     103 training, 1 away, 1 done" in text
    assert "ward-3" in text
    assert "ward-4" in text
    (rest,) = (line for line in text.splitlines() if line.startswith(" and "))
    assert "training" in rest


def test_before_the_first_round_it_says_for_whom_it_waits() -> None:
    run = RunHistory.of(a_run_document(RunStatus.PENDING))
    run.roster = frozenset({"ann", "bob"})
    run.reason = "waiting for bob"
    run.take_clients([a_client("ann")])
    text = "\n".join(lines_of(run))
    for part in ("pending", "waiting for bob", "1 of 2 clients are here", "bob         not here yet"):
        assert part in text


def test_before_the_list_of_clients_has_come_nobody_is_said_to_be_away() -> None:
    run = RunHistory.of(a_run_document(RunStatus.PENDING))
    run.roster = frozenset({"ann", "bob"})
    text = "\n".join(lines_of(run))
    assert "clients     2 not known yet" in text
    assert "not here" not in text
    assert "clients are here" not in text


def test_a_paused_run_says_how_it_goes_on() -> None:
    run = a_run_history()
    run.take(an_event("pause_requested", 13))
    assert "pauses after this round" in lines_of(run)[0]
    run.take(an_event("run_paused", 13))
    lines = lines_of(run)
    assert lines[0] == " digits-9  paused  fedplcc"
    assert lines[2] == " paused      go on with: fedplcc run resume digits-9"


def test_a_lost_connection_is_said_in_words_in_the_last_line() -> None:
    run = a_run_history()
    run.connection_trouble = "reconnecting since 22:41:07, until 22:46: the connection to the gateway broke"
    assert lines_of(run)[-1] == f" {run.connection_trouble}"
    run.connection_trouble, run.clients_trouble = "", "no aggregator answers at 127.0.0.1:50051"
    lines = lines_of(run)
    assert lines[-1] == " no aggregator answers at 127.0.0.1:50051"
    assert any("clients" in line and "not up to date" in line for line in lines)


def test_nothing_of_others_reaches_the_terminal_as_a_command() -> None:
    run = a_run_history(1, ["evil\x1b[2J", "mnist"])
    run.reason = "\x1b]0;title\x07"
    run.roster |= {"cli\x1b[31ment"}
    run.take(an_event("quorum_missing", 2, reason="\x9b31m[bold]"))
    run.take_clients([*the_clients(), a_client("cli\x1b[31ment", domain="\x1b[41m")])
    text = drawn(run, 100, 40, colour=False)
    assert not any(unsafe in text for unsafe in ("\x1b[2J", "\x1b]0", "\x9b", "\x1b[31m", "\x1b[41m"))
    assert "evil\\x1b[2J" in text
    assert "[bold]" in text, "nor as markup"


def test_colours_are_the_terminals_own_and_no_colour_is_respected() -> None:
    assert "\x1b[" in drawn(a_run_history(), 80, 24)
    assert "\x1b[3" not in drawn(a_run_history(), 80, 24, colour=False)


def test_a_client_that_has_a_long_name_or_wide_letters_keeps_the_columns() -> None:
    run = a_run_history()
    names = ("数据数据数据数据数据", "a-client-with-a-very-long-name")
    run.roster |= set(names)
    run.take_clients([*the_clients(), *(a_client(name, ClientActivity.TRAINING, 0.5) for name in names)])
    rows = [line for line in lines_of(run, 100, 40) if "training  " in line and "━" in line and "of" not in line]
    assert len({cell_len(line[: line.index("training")]) for line in rows}) == 1
    assert len(rows) == 5


def test_a_run_at_chance_has_a_warning_in_the_head_with_the_key_that_mends_it() -> None:
    run = a_run_history()
    run.method, run.config = "fedplcc", {"data": {"classes": ["a", "b"]}, "training": {"learning_rate": 0.01}}
    assert "at chance" not in "\n".join(lines_of(run))
    for line in run.rounds:
        line["accuracy"]["mean"] = 0.5
    head = " ".join(line.strip() for line in lines_of(run)[:5])
    assert "mean accuracy is at chance" in head
    assert "training.clip_norm = 40" in head
