"""The history of runs in the log: who reads only the log knows what happened, and how bad it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedplcc.aggregator.ledger.event_log import log_event
from fedplcc.shared.process.log import bind
from fedplcc.shared.types import ClientActivity, ClientProblem, Event, Heartbeat
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient
from tests.support.records.captured_logs import logged


def test_every_event_of_a_history_is_a_line_with_run_round_and_client(tmp_path: Path) -> None:
    with logged() as lines, LocalFederation(tmp_path, [NumpyClient("ann"), NumpyClient("bob")]) as federation:
        run = federation.create("fedplcc")
        federation.join()
        federation.run_to_end(run.run_id)
        history = federation.events(run.run_id)
        told = [
            line for line in lines() if line["logger"] == "fedplcc.aggregator.ledger.event_log" and "run_id" in line
        ]
        assert [(line["event"], line.get("round", -1), line.get("client_id", "")) for line in told] == [
            (event.type, event.round, event.client_id) for event in history
        ]
        committed = [line for line in told if line["event"] == "round_committed"]
        assert [line["round"] for line in committed] == [0, 1, 2]
        (last,) = (event.data["metrics"] for event in history if event.type == "round_committed" and event.round == 2)
        facts = {"mean_accuracy": last["accuracy"]["mean"], "worst_accuracy": last["accuracy"]["worst"]}
        counts = {"num_examples": 24, "num_clients": 2, "num_dropped": 0, "level": "info"}
        assert committed[-1] | facts | counts == committed[-1]
        quiet = {line["event"] for line in told if line["level"] == "debug"}
        assert quiet == {
            "round_opened",
            "round_aggregating",
            "round_collecting",
            "round_evaluating",
            "update_committed",
            "evaluation_reported",
        } & {line["event"] for line in told}


def test_trouble_is_a_warning_with_its_hint(tmp_path: Path) -> None:
    with logged() as lines, LocalFederation(tmp_path, [NumpyClient("ann"), NumpyClient("bob")]) as federation:
        federation.create()
        federation.join()
        ann = federation.clients["ann"]
        problem = ClientProblem(reason="OUT_OF_MEMORY", detail="no memory", hint="smaller batches", is_fatal=True)
        heartbeat = Heartbeat(client_id="ann", activity=ClientActivity.IDLE)
        federation.coordinator.heartbeat(replace(heartbeat, problem=problem), ann.token)
        federation.clock.now += 1000
        federation.coordinator.tick()
        (told,) = lines("client_problem")
        said = {"reason": "OUT_OF_MEMORY", "detail": "no memory", "hint": "smaller batches", "client_id": "ann"}
        assert told | said | {"level": "warning"} == told
        assert [(line["client_id"], line["level"]) for line in lines("client_lost")] == [
            ("ann", "warning"),
            ("bob", "warning"),
        ]


def test_an_event_of_no_client_is_not_taken_for_one_of_whose_call_brought_it_about() -> None:
    with logged() as lines, bind(client_id="ann", request_id="r-7"):
        log_event(Event(type="run_failed", run_id="r", round=3, data={"reason": "no quorum"}, time=1.0))
    (line,) = lines()
    expected = {"level": "error", "client_id": None, "request_id": "r-7", "round": 3, "reason": "no quorum"}
    assert line | expected == line
