import io
import json
import logging

import pytest

from shared import log


@pytest.fixture(autouse=True)
def _logging_as_it_was():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def events(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_of_json_with_what_is_bound():
    stream = io.StringIO()
    log.set_up("info", stream=stream)
    with log.bind(run_id="r", round=3):
        log.get_logger("aggregator.service").info("round_closed", num_updates=8)
    log.get_logger("aggregator.service").info("idle")
    closed, idle = events(stream)
    assert closed["event"] == "round_closed"
    assert (closed["run_id"], closed["round"], closed["num_updates"]) == ("r", 3, 8)
    assert (closed["level"], closed["logger"]) == ("info", "aggregator.service")
    assert "run_id" not in idle


def test_the_standard_librarys_loggers_write_the_same_lines():
    stream = io.StringIO()
    log.set_up("info", stream=stream)
    with log.bind(run_id="r"):
        logging.getLogger("aggregator.store").info("recovered", extra={"round": 3})
        logging.getLogger("some.package").warning("careful %s", "now")
    recovered, careful = events(stream)
    assert (recovered["event"], recovered["round"], recovered["run_id"]) == ("recovered", 3, "r")
    assert careful["event"] == "careful now"


def test_levels_hold_for_ours_and_libraries_write_from_warning_on():
    stream = io.StringIO()
    log.set_up("info", stream=stream)
    log.get_logger("trainer.worker").debug("unseen")
    logging.getLogger("some.package").info("unseen")
    assert stream.getvalue() == ""
    log.set_up("debug", stream=stream)
    log.get_logger("trainer.worker").debug("seen")
    assert [event["event"] for event in events(stream)] == ["seen"]


@pytest.mark.parametrize("as_json", [True, False])
def test_a_traceback_shows_no_values(as_json):
    stream = io.StringIO()
    log.set_up("info", json=as_json, stream=stream)
    token = "a-secret-token"

    def fail(value):
        raise ValueError("no")

    try:
        fail(token)
    except ValueError:
        log.get_logger("trainer.worker").exception("failed")
    assert "ValueError: no" in stream.getvalue()
    assert "a-secret-token" not in stream.getvalue()


def test_a_terminal_gets_text():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    log.set_up("info", stream=stream)
    log.get_logger("trainer.worker").info("waiting", run_id="r")
    assert "waiting" in stream.getvalue()
    assert not stream.getvalue().startswith("{")
