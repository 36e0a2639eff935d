import asyncio
import io
import json
import logging
import re
from _io import StringIO
from collections.abc import Iterator
from typing import Any, Never

import numpy as np
import pytest

from fedplcc.shared.process import log
from tests.support import ROOT


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def events(stream: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_of_json_with_what_is_bound() -> None:
    stream = io.StringIO()
    log.set_up("info", stream=stream)
    with log.bind(run_id="r", round=3):
        log.get_logger("fedplcc.aggregator.coordinator.service").info("round_closed", num_updates=8)
    log.get_logger("fedplcc.aggregator.coordinator.service").info("idle")
    closed, idle = events(stream)
    assert closed["event"] == "round_closed"
    assert (closed["run_id"], closed["round"], closed["num_updates"]) == ("r", 3, 8)
    assert (closed["level"], closed["logger"]) == ("info", "fedplcc.aggregator.coordinator.service")
    assert "run_id" not in idle


def test_the_standard_librarys_loggers_write_the_same_lines() -> None:
    stream = io.StringIO()
    log.set_up("info", stream=stream)
    with log.bind(run_id="r"):
        logging.getLogger("fedplcc.aggregator.store").info("recovered", extra={"round": 3})
        logging.getLogger("some.package").warning("careful %s", "now")
    recovered, careful = events(stream)
    assert (recovered["event"], recovered["round"], recovered["run_id"]) == ("recovered", 3, "r")
    assert careful["event"] == "careful now"


def test_levels_hold_for_ours_and_libraries_write_from_warning_on() -> None:
    stream = io.StringIO()
    log.set_up("info", stream=stream)
    log.get_logger("fedplcc.trainer.worker").debug("unseen")
    logging.getLogger("some.package").info("unseen")
    assert stream.getvalue() == ""
    log.set_up("debug", stream=stream)
    log.get_logger("fedplcc.trainer.worker").debug("seen")
    assert [event["event"] for event in events(stream)] == ["seen"]


@pytest.mark.parametrize("as_json", [True, False])
def test_a_traceback_shows_no_values(as_json: bool) -> None:
    stream = io.StringIO()
    log.set_up("info", json=as_json, stream=stream)
    token = "a-secret-token"

    def fail(value: object) -> Never:
        raise ValueError("no")

    try:
        fail(token)
    except ValueError:
        log.get_logger("fedplcc.trainer.worker").exception("failed")
    assert "ValueError: no" in stream.getvalue()
    assert "a-secret-token" not in stream.getvalue()


def test_a_logger_whose_lines_are_shown_in_another_way_is_silent_until_it_is_set_up_anew() -> None:
    stream = io.StringIO()
    log.set_up("info", stream=stream, silent=["fedplcc.aggregator.ledger.event_log"])
    log.get_logger("fedplcc.aggregator.ledger.event_log").error("run_failed")
    log.get_logger("fedplcc.aggregator.ledger.ledger").error("run_unreadable")
    log.set_up("info", stream=stream)
    log.get_logger("fedplcc.aggregator.ledger.event_log").error("run_failed")
    assert [event["event"] for event in events(stream)] == ["run_unreadable", "run_failed"]


def test_secrets_payloads_and_endless_values_do_not_reach_a_log() -> None:
    stream = io.StringIO()
    log.set_up("info", stream=stream)
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----"
    log.get_logger("fedplcc.trainer.worker").info(
        "slipped",
        instance_token="t0ps3cret",
        database="postgresql://ann:pa55word@db:5432/fedplcc",
        detail=f"cannot read {key} at all",
        nested={"password": "pa55word", "weights": ["w31ghts"] * 1000, "deep": {"deeper": {"too": {"deep": 1}}}},
        payload=b"\x00" * 5000,
        array=np.zeros((3, 2)),
        text="x" * 10_000,
        sha256="ab" * 32,
        seconds=1.5,
    )
    logging.getLogger("some.package").warning("an %s", "argument", extra={"token": "t0ps3cret"})
    (slipped, foreign), text = events(stream), stream.getvalue()
    for secret in ("t0ps3cret", "pa55word", "MIIEvQ", "w31ghts"):
        assert secret not in text
    assert (slipped["instance_token"], foreign["token"]) == ("***", "***")
    assert slipped["database"] == "postgresql://***@db:5432/fedplcc"
    assert slipped["detail"] == "cannot read *** at all"
    assert slipped["nested"] == {
        "password": "***",
        "weights": "<1000 entries>",
        "deep": {"deeper": {"too": "<1 entries>"}},
    }
    assert (slipped["payload"], slipped["array"]) == ("<5000 bytes>", "<array of shape (3, 2)>")
    assert slipped["text"] == "x" * log.MAX_TEXT + "... (10000 characters)"
    assert (slipped["sha256"], slipped["seconds"]) == ("ab" * 32, 1.5)


@pytest.mark.parametrize("as_json", [True, False])
def test_secrets_in_the_text_of_an_exception_are_masked_and_an_endless_one_is_cut(as_json: bool) -> None:
    stream = io.StringIO()
    log.set_up("info", json=as_json, stream=stream)
    try:
        raise ValueError("postgresql://ann:pa55word@db/x " + "1.234 " * 10_000)
    except ValueError:
        log.get_logger("fedplcc.aggregator.store").exception("failed")
    assert "pa55word" not in stream.getvalue()
    assert "Traceback" in stream.getvalue()
    assert len(stream.getvalue()) < 1.2 * log.MAX_TRACEBACK


@pytest.mark.parametrize("as_json", [True, False])
def test_nobody_commands_the_terminal_of_who_reads_a_log(as_json: bool) -> None:
    stream = io.StringIO()
    log.set_up("info", json=as_json, stream=stream)
    log.get_logger("rpc").info("rpc", client_id="\x1b[2Jann\x9b31m", names=["\u202egnp.exe"])
    assert not set(stream.getvalue()) & {"\x1b", "\x9b", "\u202e"}
    assert "ann" in stream.getvalue()


def test_a_secret_across_the_place_of_a_cut_is_masked_whatever_follows() -> None:
    stream = io.StringIO()
    log.set_up("info", stream=stream)
    key = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBg" * 10_000
    for before in range(log.MAX_TEXT - 40, log.MAX_TEXT + 300, 7):
        log.get_logger("rpc").info("rpc", detail=f"{'x' * before} postgresql://ann:{'pa55word' * 10_000}@db/x")
        log.get_logger("rpc").info("rpc", detail=f"{'x' * before}{key}")
        log.get_logger("rpc").info(
            "rpc", detail=f"{key[:1900]}-----END KEY-----{'x' * before}http://ann:{'pa55word' * 99}"
        )
    assert not re.search("pa55|MIIE", stream.getvalue())


def test_a_line_has_a_bounded_length_whatever_is_in_it() -> None:
    entries = {f"\x1b{number}{'k' * 5000}": ["x" * 5000] * log.MAX_ENTRIES for number in range(log.MAX_ENTRIES)}
    first = {"event": "rpc", "level": "warning", "logger": "rpc"}
    for facts in (
        {"nested": [entries] * log.MAX_ENTRIES},
        {f"fact_{number}{'y' * 500}": "z" * 5000 for number in range(500)},
        {"texts": ["\x1b" * 5_000_000]},
        {"tracebacks": [{"exception": "x" * 100_000}] * log.MAX_ENTRIES},
        {"nothing": [[[""] * log.MAX_ENTRIES] * log.MAX_ENTRIES] * log.MAX_ENTRIES},
        {"number": 1 << 10_000_000},
    ):
        line = log.guarded(None, "warning", {**facts, **first})
        assert first.items() <= line.items()
        assert len(json.dumps(line)) < 1.5 * log.MAX_LINE
    assert line["number"] == "<number of 10000001 bits>"


def test_the_key_of_a_table_is_no_way_around_the_guard() -> None:
    stream = io.StringIO()
    log.set_up("info", stream=stream)
    log.get_logger("rpc").info(
        "rpc", table={"postgresql://ann:pa55word@db": 1, "\x1b[2J": 2, "a" * 200: "unknown", 3: 4}
    )
    (line,) = events(stream)
    assert line["table"] == {
        "postgresql://***@db": 1,
        "\\x1b[2J": 2,
        "a" * log.MAX_NAME + "... (200 characters)": "***",
        "3": 4,
    }


def test_what_is_bound_for_a_task_holds_for_its_whole_life_and_for_nothing_else() -> None:
    async def work() -> tuple[dict[str, Any], dict[str, Any]]:
        log.bind_task(run_id="r", round=2)
        return dict(log.bound()), await asyncio.to_thread(lambda: dict(log.bound()))

    async def main() -> tuple[dict[str, Any], dict[str, Any]]:
        return await asyncio.create_task(work())

    here, in_thread = asyncio.run(main())
    assert here == in_thread == {"run_id": "r", "round": 2}
    assert log.bound() == {}


def test_every_logger_of_the_source_has_a_root_that_is_ours() -> None:
    """Lines at level info of any other logger are not written."""
    packages = ("aggregator", "gateway", "trainer", "fedplcc", "shared")
    files = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    names = {name for path in files for name in re.findall(r'get_logger\("([^"]+)"\)', path.read_text())}
    assert len(names) > 20
    assert {name.partition(".")[0] for name in names} <= set(log.OUR_LOGGERS)
