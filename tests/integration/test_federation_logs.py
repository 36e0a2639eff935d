"""The logs of a whole federation at level debug: readable by programs, worth reading, and without anything private."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.error
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from fedplcc.trainer.instance import TOKEN_FILE
from tests.support.federation import tiny_federation
from tests.support.federation.processes import Federation, eventually

RUN_S = 120.0
"""Bound on a whole tiny run on a busy machine."""
PAYLOADS = {"chunk", "config_json", "content", "data", "instance_token", "payload", "weights"}
"""Names that a line may not have, of what is never logged."""
NUMBERS = re.compile(r"(-?\d+\.\d+(e-?\d+)?[\s,\]]+){4}")
ENCODED = re.compile(r"[A-Za-z0-9+_=-]{33,}")
HASH = re.compile(r"[0-9a-f]{38,40}|[0-9a-f]{64}")


class Logs:
    """What the services of a federation wrote, by process."""

    def __init__(self, federation: Federation, tokens: list[str]) -> None:
        self.tokens = tokens
        self.texts = {name: process.log() for name, process in federation.processes.items()}

    def lines(self, name: str, event: str = "") -> list[dict[str, Any]]:
        """The lines of a process, or those about an event."""
        lines = [json.loads(line) for line in self.texts[name].splitlines()]
        return [line for line in lines if event in ("", line["event"])]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logs]:
    """One run of a real trainer, with requests that are refused and an aggregator that is killed and comes back."""
    folder = tmp_path_factory.mktemp("federation")
    tiny_federation.write_data(folder)
    with Federation(folder) as federation:
        debug = ("--log-level", "debug")
        aggregator = federation.start_aggregator(*debug, "--max-inline-bytes", "0")  # so that blobs are uploaded
        trainer = federation.start_trainer("left", f"npz:{folder / 'left.npz'}", *debug)
        gateway = federation.start_gateway(*debug)
        values = tiny_federation.run_document(tiny_federation.document(folder, run={"clients": ["left"], "rounds": 2}))
        run_id = str(asked(federation, "/v1/runs", values, request_id="the-first")["run_id"])
        for path in ("/v1/runs/no-such-run", "/v1/runs/no-such-run/pause"):
            with pytest.raises(urllib.error.HTTPError):
                asked(federation, path, {} if path.endswith("pause") else None)
        eventually(lambda: asked(federation, f"/v1/runs/{run_id}")["round"] >= 1, "round 1 has opened", RUN_S)
        os.kill(trainer.pid, signal.SIGSTOP)  # a call's line is written after its answer; none is lost by the kill
        eventually(
            lambda: aggregator.log().count("/CommitUpdate") >= asked(federation, f"/v1/runs/{run_id}")["round"],
            "every commit has its line",
        )
        aggregator.kill()
        os.kill(trainer.pid, signal.SIGCONT)
        with pytest.raises(urllib.error.HTTPError):
            asked(federation, f"/v1/runs/{run_id}")
        federation.start_aggregator()

        def is_done() -> bool:
            try:
                return bool(asked(federation, f"/v1/runs/{run_id}")["status"] == "completed")
            except urllib.error.HTTPError:
                return False  # the gateway's connection is not back yet

        eventually(is_done, "the run completes", RUN_S)
        with federation.open(f"/v1/runs/{run_id}/model") as answer:
            assert len(answer.read()) > 1000
        token = (folder / "trainer-left" / TOKEN_FILE).read_text().strip()
        for process in (trainer, gateway, aggregator):
            assert process.end(signal.SIGTERM) == 0
        yield Logs(federation, [token])


def asked(federation: Federation, path: str, body: object = None, request_id: str = "") -> Any:
    return federation.ask(path, body, **({"X-Request-ID": request_id} if request_id else {}))


def values_of(value: object) -> Iterator[object]:
    """Everything within a line's value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    yield value
    for each in inner:
        yield from values_of(each)


def test_every_line_is_json_with_event_level_time_and_logger(logs: Logs) -> None:
    assert set(logs.texts) == {"aggregator", "gateway", "trainer-left"}
    for name in logs.texts:
        lines = logs.lines(name)
        assert len(lines) > 10
        for line in lines:
            assert {"event", "level", "timestamp", "logger"} <= line.keys()
            assert re.fullmatch(r"[a-z_]+", line["event"]), "an event is a name"
            assert line["level"] in ("debug", "info", "warning", "error")


def test_nothing_secret_and_nothing_that_was_trained_or_trained_on_is_logged(logs: Logs) -> None:
    for name, text in logs.texts.items():
        assert "-----BEGIN" not in text
        assert not any(token in text for token in logs.tokens)
        for line in logs.lines(name):
            settings = {"data"} if line["event"] == "trainer_starting" else set()
            assert not (PAYLOADS - settings) & line.keys(), line
            for value in values_of(line):
                assert not isinstance(value, list) or len(value) <= 16, line
                for word in re.split(r"[\s/,]", value) if isinstance(value, str) else ():
                    assert HASH.fullmatch(word) or not ENCODED.fullmatch(word), (name, word, line)
                assert not NUMBERS.search(str(value)), line
    assert all(len(token) >= 16 for token in logs.tokens)


def test_each_call_is_one_line_that_says_who_asked_for_what(logs: Logs) -> None:
    history = Counter(line["event"] for line in logs.lines("aggregator"))
    calls = [line for line in logs.lines("aggregator", "rpc") if line["code"] == "OK"]
    counted = Counter(line["method"].rpartition("/")[2] for line in calls)
    committed = {(line["run_id"], line["round"]) for line in calls if line["method"].endswith("CommitUpdate")}
    assert len(committed) == 3, "the first model and two rounds"
    assert history["update_committed"] == 3
    assert counted["CreateRun"] == 1
    uploads = [line for line in calls if line["method"].endswith("UploadModel")]
    assert {line["client_id"] for line in uploads} == {"left"}
    assert all(line["received_bytes"] > 1000 and line["received_messages"] >= 2 and line["sha256"] for line in uploads)
    levels = {line["level"] for line in calls if line["method"].endswith(("Heartbeat", "SyncRound", "GetRun"))}
    assert levels == {"debug"}
    assert {line["level"] for line in calls if line["method"].endswith("CommitUpdate")} == {"info"}


def test_the_id_of_a_request_leads_from_the_gateways_log_to_the_aggregators(logs: Logs) -> None:
    (asked_for,) = (line for line in logs.lines("gateway", "request") if line["request_id"] == "the-first")
    calls = [line for line in logs.lines("aggregator", "rpc") if line.get("request_id") == "the-first"]
    assert (asked_for["method"], asked_for["status"]) == ("POST", 202)
    assert [line["method"].rpartition("/")[2] for line in calls] == ["GetCaller", "CreateRun"], (
        "the key, then its request"
    )
    called = calls[-1]
    (created,) = logs.lines("aggregator", "run_created")
    assert created["request_id"] == "the-first"
    assert called["run_id"] == created["run_id"]


def test_refusals_and_an_aggregator_that_was_away_are_said_with_their_reasons(logs: Logs) -> None:
    requests = {(line["status"], line["level"], line.get("reason")) for line in logs.lines("gateway", "request")}
    assert {(404, "info", "RUN_NOT_FOUND"), (503, "error", "AGGREGATOR_UNAVAILABLE")} <= requests
    failed = [line for line in logs.lines("gateway", "call_failed") if line["reason"] == "AGGREGATOR_UNAVAILABLE"]
    assert failed[0]["level"] == "warning"
    assert [line["level"] for line in logs.lines("trainer-left", "disconnected")].count("warning") >= 1
    assert {line["client_id"] for line in logs.lines("trainer-left")[1:]} == {"left"}, "threads say whose they are"
    assert [line["status"] for line in logs.lines("aggregator", "run_recovered")] == ["running"]
    tasks = logs.lines("trainer-left", "task_ended")
    assert all(task["run_id"] and task["round"] >= 0 for task in tasks)
