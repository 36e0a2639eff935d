"""What the console knows of a run, of its clients and of its stream: its pure modules, called in the browser."""

from __future__ import annotations

from typing import Any

import pytest

from fedplcc.shared.steering import PauseRun, ResumeRun
from fedplcc.shared.types import RunStatus
from tests.support.screens.browsing import Console

Document = dict[str, Any]

FOLD = """(module, [actions, names]) => {
  let state = module.initialState("run-1");
  for (const action of actions) state = module.reduce(state, action);
  return Object.fromEntries(names.map((name) => [name, state[name] instanceof Map ? [...state[name]] : state[name]]));
}"""
PARTS = [
    "run",
    "rounds",
    "phase",
    "phaseSince",
    "doneClients",
    "dropped",
    "events",
    "lastSequence",
    "result",
    "commits",
]


@pytest.fixture(scope="module")
def past(modules: Console) -> tuple[Document, list[Document], list[Document]]:
    """A run that was paused, resumed and completed: its document, its rounds and its history, as REST has them."""
    served, http = modules.served, modules.served.http
    run_id = served.create(run={"rounds": 3})
    served.federation.join()
    served.federation.step()
    served.federation.coordinator.steer(run_id, PauseRun(now=True))
    served.federation.coordinator.steer(run_id, ResumeRun())
    served.federation.run_to_end(run_id)
    history = http.get(f"/v1/runs/{run_id}/events", params={"after": 0}).json()["events"]
    return http.get(f"/v1/runs/{run_id}").json(), http.get(f"/v1/runs/{run_id}/rounds").json()["rounds"], history


def state_after(modules: Console, *actions: Document) -> Document:
    found: Document = modules.within("lib/run_state.js", FOLD, [list(actions), PARTS])
    return found


def events(history: list[Document]) -> Document:
    return {"type": "events", "events": history}


def an_event(sequence: int, kind: str, **fields: Any) -> Document:
    """An event a second after the one before, later than `a_run`."""
    time = f"2026-01-01T{sequence // 3600:02}:{sequence // 60 % 60:02}:{sequence % 60:02}Z"
    given = {
        "sequence": sequence,
        "time": time,
        "type": kind,
        "run_id": "run-1",
        "round": 1,
        "client_id": None,
        "data": {},
    }
    return {**given, **fields}


def a_run(**fields: Any) -> Document:
    run = {
        "run_id": "run-1",
        "name": "test",
        "status": "running",
        "method": "fedplcc",
        "round": 1,
        "total_rounds": 10,
        "phase": "collecting",
        "roster": ["ann", "bob"],
        "cohort": ["ann", "bob"],
        "done_clients": [],
        "is_pause_requested": False,
        "reason": "",
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        "quarantined": [],
        "rejections": [],
    }
    return {"type": "run", "run": {**run, **fields}}


# A run's state


def test_a_history_has_the_rounds_of_the_documents(
    modules: Console, past: tuple[Document, list[Document], list[Document]]
) -> None:
    run, rounds, history = past
    found = state_after(modules, {"type": "run", "run": run}, events(history))
    assert found["run"] == run
    assert found["rounds"] == [event["data"]["metrics"] for event in history if "metrics" in event["data"]]
    for line, document in zip(found["rounds"], (each["metrics"] for each in rounds[1:]), strict=True):
        assert {name: document[name] for name in line} == line
    assert [event["sequence"] for event in found["events"]] == [event["sequence"] for event in history[:-51:-1]]
    assert {"run_paused", "run_resumed"} <= {event["type"] for event in history}


def test_it_makes_no_difference_in_which_pieces_a_history_comes(
    modules: Console, past: tuple[Document, list[Document], list[Document]]
) -> None:
    run, rounds, history = past
    documents: list[Document] = [{"type": "run", "run": run}, {"type": "rounds", "rounds": rounds}]
    whole = state_after(modules, *documents, events(history))
    one_by_one = state_after(modules, *documents, *(events([event]) for event in history))
    twice = state_after(modules, *documents, events(history[:20]), events(history[5:]), events(history), *documents)
    late = state_after(modules, events(history[:9]), documents[0], events(history[9:]), documents[1], documents[1])
    assert one_by_one == whole
    assert twice == whole
    assert [each["round"] for each in late["rounds"]] == [1, 2, 3]
    for part in ("events", "lastSequence", "result", "commits", "phase"):
        assert late[part] == whole[part], part
    assert whole["rounds"] == [each["metrics"] for each in rounds if each["metrics"]], "each once and in order"
    assert whole["result"]["round"] == 3


def test_events_leave_the_document_as_it_is(modules: Console) -> None:
    now = a_run(round=5, phase="evaluating", done_clients=["ann"], updated_at="2026-01-01T01:00:00Z")
    told = [
        an_event(1, "round_opened", round=2, data={"phase": "collecting", "cohort": ["bob"]}),
        an_event(2, "run_paused"),
    ]
    found = state_after(modules, now, events(told))
    assert found["run"] == now["run"]
    assert (found["phase"], found["doneClients"]) == ("evaluating", ["ann"])


def test_a_document_that_is_older_than_the_known_one_does_not_take_the_run_back(modules: Console) -> None:
    found = state_after(modules, a_run(status="paused", updated_at="2026-01-01T00:00:09Z"), a_run())
    assert found["run"]["status"] == "paused"


def test_a_phase_lasts_since_the_event_that_began_it_whichever_comes_first(modules: Console) -> None:
    opened = an_event(1, "round_opened", round=2, data={"phase": "collecting", "cohort": ["ann", "bob"]})
    evaluating = an_event(6, "round_evaluating", round=2)
    document = a_run(round=2, phase="collecting", updated_at=opened["time"])
    for actions in ([events([opened]), document], [document, events([opened])]):
        assert state_after(modules, a_run(), *actions)["phaseSince"] == opened["time"]
    following = a_run(round=2, phase="evaluating", updated_at=evaluating["time"])
    assert state_after(modules, document, events([opened]), following)["phaseSince"] is None
    assert state_after(modules, document, events([opened, evaluating]), following)["phaseSince"] == evaluating["time"]


def test_a_round_is_left_by_whom_its_document_says(modules: Console) -> None:
    dropped = [{"client_id": "cid", "reason": "lost", "detail": "not connected"}]
    of_round = {"type": "rounds", "rounds": [{"round": 1, "phase": "collecting", "metrics": None, "dropped": dropped}]}
    assert state_after(modules, a_run(), of_round)["dropped"] == dropped
    assert state_after(modules, a_run(), of_round, a_run(round=2))["dropped"] == []


def test_an_event_of_a_kind_to_come_is_kept_and_changes_nothing(modules: Console) -> None:
    news = an_event(1, "round_reconsidered", data={"why": "new"})
    found = state_after(modules, a_run(), events([news]))
    assert (found["run"], found["events"]) == (a_run()["run"], [news])


def test_ten_thousand_events_cost_little_and_few_are_kept(modules: Console) -> None:
    done = """(module, run) => {
      const begin = performance.now();
      const events = Array.from({ length: 10_000 }, (_, index) => ({
        sequence: index + 1, time: "2026-01-01T01:00:00Z", type: "update_committed", run_id: "run-1",
        round: 1, client_id: `client-${index % 20}`, data: { num_examples: 5 },
      }));
      const state = module.reduce(module.reduce(module.initialState("run-1"), run), { type: "events", events });
      return [state.events.length, state.events[0].sequence, performance.now() - begin];
    }"""
    kept, newest, milliseconds = modules.within("lib/run_state.js", done, a_run())
    assert (kept, newest) == (50, 10_000)
    assert milliseconds < 1000


def test_parts_that_did_not_change_stay_the_same_objects(modules: Console) -> None:
    same = """(module, [run, event]) => {
      const before = module.reduce(module.initialState("run-1"), run);
      const after = module.reduce(before, { type: "events", events: [event] });
      const again = module.reduce(after, { type: "events", events: [event] });
      return [before.rounds === after.rounds, before.doneClients === after.doneClients, after === again];
    }"""
    assert modules.within("lib/run_state.js", same, [a_run(), an_event(1, "pause_requested")]) == [True, True, True]


@pytest.mark.parametrize("status", list(RunStatus))
def test_what_may_be_asked_of_a_run_is_what_the_aggregator_takes(modules: Console, status: RunStatus) -> None:
    may = modules.call("lib/run_state.js", "allowed", {"status": status, "is_pause_requested": False})
    is_open = not status.is_final and status is not RunStatus.STOPPING
    assert may == {
        "pause": status is RunStatus.RUNNING,
        "resume": status is RunStatus.PAUSED,
        "stop": is_open,
        "steer": is_open,
    }
    assert modules.call("lib/run_state.js", "hasEnded", {"status": status}) is status.is_final


def test_a_pause_that_waits_may_be_taken_back(modules: Console) -> None:
    assert modules.call("lib/run_state.js", "allowed", {"status": "running", "is_pause_requested": True})["resume"]


def test_the_remaining_time_follows_from_the_last_rounds(modules: Console) -> None:
    left = """(module, [actions, now]) => {
      const state = actions.reduce(module.reduce, module.initialState("run-1"));
      return module.secondsLeft(state, Date.parse(now));
    }"""

    def seconds_left(now: str, *actions: Document) -> float | None:
        found: float | None = modules.within("lib/run_state.js", left, [[a_run(), *actions], f"2026-01-01T{now}Z"])
        return found

    commits = [an_event(10 * number, "round_committed", round=number, data={}) for number in range(1, 9)]
    assert seconds_left("00:00:00") is None
    assert seconds_left("00:00:10", events(commits[:1])) is None
    assert seconds_left("00:01:20", events(commits)) == pytest.approx(20)
    assert seconds_left("00:01:25", events(commits)) == pytest.approx(15)
    assert seconds_left("00:02:00", events(commits)) == pytest.approx(10), "a gap makes no round longer"
    assert seconds_left("00:01:20", events(commits), a_run(status="paused")) is None


def test_a_gap_neither_lengthens_the_estimate_nor_looks_like_work(modules: Console) -> None:
    judged = """(module, [actions, now]) => {
      const state = actions.reduce(module.reduce, module.initialState("run-1"));
      return [module.secondsLeft(state, Date.parse(now)), module.isStalled(state, Date.parse(now))];
    }"""

    def at(now: str, *actions: Document) -> tuple[int, bool]:
        left, stalled = modules.within("lib/run_state.js", judged, [[a_run(), *actions], f"2026-01-01T{now}Z"])
        return round(left), stalled

    commits = [an_event(10 * number, "round_committed", round=number, data={}) for number in range(1, 8)]
    assert at("00:01:35", events(commits)) == (20, False)
    assert at("00:01:46", events(commits)) == (20, True)
    late = an_event(110, "round_committed", round=8, data={})
    assert at("00:01:50", events([*commits, late])) == (20, False), "one long round is not the usual one"


# Clients of a run


def rows(modules: Console, *actions: Document) -> list[Document]:
    """What the page's table says of each client."""
    fold = """async (module, actions) => {
      const { initialState, reduce } = await import("/console/lib/run_state.js");
      return module.rowsOf(actions.reduce(reduce, initialState("run-1")));
    }"""
    found: list[Document] = modules.within("run/client_rows.js", fold, list(actions))
    return found


def a_client(client_id: str, **fields: Any) -> Document:
    client = {
        "client_id": client_id,
        "domain": "scanner",
        "is_connected": True,
        "activity": "idle",
        "run_id": None,
        "progress": 0.0,
        "num_examples": 12,
        "last_seen_at": None,
        "problem": None,
    }
    return {**client, **fields}


def test_each_client_has_one_state_and_those_with_problems_come_first(modules: Console) -> None:
    names = ["ann", "bob", "cid", "dan", "eve", "fay", "gus"]
    problem = {"reason": "NO_DATA", "detail": "the folder is empty", "hint": "mount it", "is_fatal": True}
    clients = [
        a_client("ann"),
        a_client("bob", activity="training", run_id="run-1", progress=0.25),
        a_client("cid"),
        a_client("dan", is_connected=False, problem=problem),
        a_client("eve", is_connected=False),
        a_client("gus"),
    ]
    run = a_run(
        roster=names,
        cohort=names,
        done_clients=["ann"],
        quarantined=[{"client_id": "gus", "reason": "3 updates were refused"}],
        rejections=[{"client_id": "cid", "count": 2, "round": 1, "detail": "it holds NaN"}],
    )
    found = {row["clientId"]: row for row in rows(modules, run, {"type": "clients", "clients": clients})}
    assert list(found) == ["gus", "cid", "dan", "eve", "fay", "ann", "bob"]
    assert {name: row["state"] for name, row in found.items()} == {
        "ann": "done",
        "bob": "training",
        "cid": "waiting",
        "dan": "not connected",
        "eve": "not connected",
        "fay": "has not joined yet",
        "gus": "quarantined",
    }
    assert found["bob"]["progress"] == 0.25
    assert (found["dan"]["error"], found["dan"]["hint"]) == ("the folder is empty", "mount it")
    assert found["cid"]["error"] == "2 updates were refused, the last one in round 1: it holds NaN"
    assert (found["gus"]["error"], found["gus"]["isQuarantined"]) == ("3 updates were refused", True)


def test_a_client_that_works_elsewhere_or_cannot_work_says_so_as_on_every_page(modules: Console) -> None:
    broken = {"reason": "NO_DATA", "detail": "the folder is empty", "hint": "mount it", "is_fatal": True}
    clients = [
        a_client("ann", activity="training", run_id="run-2", progress=0.5),
        a_client("bob", activity="evaluating", run_id="run-1", problem=broken),
        a_client("cid", is_connected=False),
    ]
    names = ["ann", "bob", "cid"]
    open_run, ended = a_run(roster=names, cohort=names), a_run(roster=names, cohort=names, status="completed")

    def states(run: Document) -> dict[str, tuple[str, str, float | None]]:
        found = rows(modules, run, {"type": "clients", "clients": clients})
        return {row["clientId"]: (row["state"], row["tone"], row["progress"]) for row in found}

    assert states(open_run) == {
        "ann": ("busy with another run", "info", None),
        "bob": ("cannot work", "bad", None),
        "cid": ("not connected", "warning", None),
    }
    assert states(ended) == {
        "ann": ("connected", "neutral", None),
        "bob": ("connected", "neutral", None),
        "cid": ("not connected", "neutral", None),
    }
    said = [modules.call("clients/state.js", "stateOf", client) for client in (*clients, None)]
    assert [each["state"] for each in said] == ["training", "cannot work", "not connected", "has not joined yet"]


# The stream

STREAM = (
    'retry: 1500\n\n: alive\n\nid: 7\nevent: round_committed\ndata: {"text":"a: b"}\n\n'
    "event: end\ndata: {}\r\n\r\ndata:first\ndata: second\n\n"
)
FRAMES = [
    {"id": "7", "event": "round_committed", "data": '{"text":"a: b"}'},
    {"id": "", "event": "end", "data": "{}"},
    {"id": "", "event": "message", "data": "first\nsecond"},
]


def test_a_stream_may_be_cut_anywhere(modules: Console) -> None:
    read = """(module, [text, size]) => {
      const reader = new module.FrameReader();
      const found = [];
      for (let begin = 0; begin < text.length; begin += size) found.push(...reader.read(text.slice(begin, begin + size)));
      return [found, reader.retryMs];
    }"""
    for size in (1, 2, 3, 7, 50, len(STREAM)):
        assert modules.within("lib/event_stream.js", read, [STREAM, size]) == [FRAMES, 1500], size


def test_an_unfinished_frame_is_none(modules: Console) -> None:
    read = "(module, text) => new module.FrameReader().read(text).length"
    assert modules.within("lib/event_stream.js", read, STREAM.removesuffix("\n")) == len(FRAMES) - 1
