"""deploy/logs.md names every event that the services log, with its fields, and none that they do not."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from fedplcc.aggregator.ledger import event_log
from fedplcc.aggregator.rounds.events import STATUS_EVENTS
from fedplcc.shared.errors import RunNotFound
from fedplcc.shared.site_logs import EVENTS
from fedplcc.shared.types import RoundPhase
from fedplcc.shared.wire.call_logs import Call
from tests.support import ROOT

GUIDE = ROOT / "deploy" / "logs.md"
SERVICES = ("aggregator", "trainer", "gateway", "shared")
WRITING = ("debug", "info", "warning", "error", "exception", "log")
OF_HISTORY = "The history of runs"
PUT_TOGETHER = {
    "f'{what}_refused'": ("update_refused", "report_refused"),
    "f'round_{after.phase.value}'": tuple(f"round_{phase.value}" for phase in RoundPhase),
}
"""Events whose names the code puts together."""


@cache
def trees() -> list[tuple[str, ast.Module]]:
    files = (path for name in SERVICES for path in sorted((ROOT / name).rglob("*.py")) if "gen" not in path.parts)
    return [(str(path.relative_to(ROOT)), ast.parse(path.read_text())) for path in files]


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path, tree in trees():
        yield from ((path, node) for node in ast.walk(tree) if isinstance(node, ast.Call))


def written() -> dict[str, set[str]]:
    """Events that the code logs by name, with the fields that it writes by name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, call in calls():
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in WRITING:
            continue
        if ast.unparse(call.func.value) not in ("log", "self._log"):
            continue
        name = call.args[1 if call.func.attr == "log" else 0]
        if path == "aggregator/ledger/event_log.py":
            assert ast.unparse(name) == "event.type"
            continue
        assert isinstance(name, ast.Constant), f"{path}:{call.lineno}: an event is a constant name"
        fields = {keyword.arg for keyword in call.keywords if keyword.arg is not None and keyword.arg != "exc_info"}
        found[str(name.value)] |= fields
    return found


def history() -> set[str]:
    """Events of the history of runs."""
    found = {*STATUS_EVENTS.values(), "run_resumed"}
    for path, call in calls():
        if not path.startswith("aggregator/"):
            continue
        if isinstance(call.func, ast.Name) and call.func.id == "happened":
            named = call.args[:1]
        elif ast.unparse(call.func) in ("Event", "types.Event"):
            named = [keyword.value for keyword in call.keywords if keyword.arg == "type"]
        else:
            continue
        for name in named:
            if isinstance(name, ast.Constant):
                found.add(str(name.value))
            elif isinstance(name, ast.JoinedStr):
                found |= set(PUT_TOGETHER[ast.unparse(name)])
    return found - {"round_initialising"}  # a round opens in this phase and never comes back to it


def rows(*, of_history: bool) -> list[list[str]]:
    """The rows of the guide's tables that name events, by cells."""
    out: list[list[str]] = []
    section = ""
    for line in GUIDE.read_text().splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif line.startswith("| ") and (section == OF_HISTORY) is of_history:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if named(cells[1 if of_history else 0]):
                out.append(cells)
    return out


def named(cell: str) -> set[str]:
    return set(re.findall(r"`([a-z_0-9]+)`", cell))


def test_every_event_in_the_code_is_in_the_guide_and_every_event_in_the_guide_is_in_the_code() -> None:
    in_guide = [name for row in rows(of_history=False) for name in sorted(named(row[0]))]
    assert sorted(in_guide) == sorted(written()), "each once"


def test_every_field_in_the_code_is_in_the_guide() -> None:
    in_guide = {name: named(row[3]) for row in rows(of_history=False) for name in named(row[0])}
    missing = {name: fields - in_guide[name] for name, fields in written().items() if fields - in_guide[name]}
    assert missing == {}


def test_the_fields_of_the_line_about_a_call_are_those_of_the_guide() -> None:
    (row,) = (row for row in rows(of_history=False) if named(row[0]) == {"rpc"})
    error = RunNotFound("there is no such run")
    line = Call("/fedplcc.v1.RunService/GetRun").line("NOT_FOUND", error, 0.1, "key:0123456789ab")
    bound = {"run_id", "round", "client_id", "sha256", "verb", "request_id", "idempotency_key"}
    assert named(row[3]) == {*line, *bound}


def test_the_history_is_in_the_guide_at_the_levels_that_it_has() -> None:
    in_guide = {row[0]: named(row[1]) for row in rows(of_history=True)}
    assert set.union(*in_guide.values()) == history()
    assert in_guide["debug"] == set(event_log.QUIET)
    assert in_guide["warning"] == set(event_log.WARNINGS)
    assert in_guide["error"] == set(event_log.ERRORS)
    assert sum(map(len, in_guide.values())) == len(history()), "each once"
    text = GUIDE.read_text()
    assert [field for field in event_log.SAID if f"`{field}`" not in text] == []


def test_the_guide_lists_the_events_that_may_leave_a_site_and_the_code_logs_them_with_these_facts() -> None:
    (_, _, section) = GUIDE.read_text().partition(
        "these events go to the aggregator, with time, level, run, round and the facts"
    )
    in_guide = re.findall(r"`([a-z_]+)`(?: \(([^)]*)\))?", section.partition("\n")[0])
    assert {event: tuple(sorted(named(facts))) for event, facts in in_guide} == {
        event: tuple(sorted(facts)) for event, facts in EVENTS.items()
    }
    in_code = dict(written())
    assert EVENTS.keys() <= in_code.keys()
    assert {event: set(facts) - in_code[event] for event, facts in EVENTS.items() if set(facts) - in_code[event]} == {}


def test_what_is_shipped_are_fields_of_our_lines_and_no_sentence_is_among_them() -> None:
    shipped = set(re.findall(r'name="\$!([a-z_]+)"', (GUIDE.parent / "rsyslog.conf").read_text()))
    of_every_line = {"timestamp", "level", "event", "logger", "run_id", "round", "client_id", "request_id", "trace_id"}
    assert of_every_line <= shipped
    assert shipped <= of_every_line.union(*(named(row[3]) for row in rows(of_history=False)))
    assert shipped.isdisjoint({"detail", "hint", "exception", "first", "peer", "caller", "person", "address", "path"})
