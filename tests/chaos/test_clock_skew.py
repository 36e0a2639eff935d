"""Clocks that are an hour off, or jump by an hour in the middle of a run: nobody is lost, and the bytes are the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.identity.names import Role
from tests.chaos.network import undisturbed
from tests.chaos.slow_link import ALLOWED_EVENTS
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.federation.processes import Federation, Process, eventually

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
CLIENTS = ("ann", "bob")
ROWS = 100
ROUNDS = 4
WAIT_S = 90.0

pytestmark = pytest.mark.skipif(not LIBRARIES, reason="needs the Debian package faketime")


def clock_of(process: Process, folder: Path) -> Path:
    """Have a process, once started, take the wall clock's offset from this file; clocks that nobody sets stay."""
    file = folder / f"{process.name}.clock"
    file.write_text("+0")
    process.environment |= {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    return file


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Federation]:
    with Federation(tmp_path) as federation:
        yield federation


def test_skewed_and_jumping_clocks_lose_nobody_and_change_no_byte(running: Federation, tmp_path: Path) -> None:
    """One trainer an hour behind, one ahead; the aggregator's clock jumps back and forth by an hour at every round."""
    # Not more than half of the cohort need wait for the other: a deadline that followed a clock that jumps would drop one.
    quorum = {"deadline_s": 20.0, "min_clients": 1, "silence_s": 30.0}
    document = {**a_document(clients=CLIENTS, run={"rounds": ROUNDS}), "quorum": quorum}
    aggregator = running.processes["aggregator"] = Process(
        "aggregator", tmp_path, aggregator_arguments(running, tmp_path)
    )
    aggregators = clock_of(aggregator, tmp_path)
    running.start_aggregator()
    control = RunControl(running.address, tls=running.operator_tls)
    for name, offset in zip(CLIENTS, ("-1h", "+1h"), strict=True):
        identity = running.identity_file(Role.CLIENT, name, tmp_path / f"trainer-{name}")
        arguments = ("tests.support.federation.numpy_trainer", running.address, name, str(ROWS), str(identity))
        trainer = running.processes[name] = Process(name, tmp_path, arguments)
        clock_of(trainer, tmp_path).write_text(offset)
        trainer.start()
    run_id = control.create(document).run_id
    for number in range(ROUNDS):
        eventually(lambda number=number: control.get(run_id).round >= number, f"round {number} opens", WAIT_S)  # type: ignore[misc]
        aggregators.write_text("-1h" if number % 2 else "+1h")
    eventually(lambda: control.get(run_id).status == types_pb2.RUN_STATUS_COMPLETED, "the run completes", WAIT_S)
    history = [
        response.event for response in control.stub.WatchRun(run_pb2.WatchRunRequest(page_size=1000), timeout=WAIT_S)
    ]
    assert {event.type for event in history} <= ALLOWED_EVENTS
    times = [event.time.ToNanoseconds() for event in history]
    assert times == sorted(times)
    rounds = control.stub.ListRounds(run_pb2.ListRoundsRequest(run_id=run_id, after_round=0), timeout=WAIT_S).rounds
    for current in rounds:
        timings = json.loads(current.timings_json)
        assert all(0 <= seconds < WAIT_S for seconds in timings["seconds"].values()), timings
    lines = control.metrics_lines(run_id)
    control.close()
    same = [NumpyClient(name, size=ROWS) for name in CLIENTS]
    assert lines == undisturbed(tmp_path / "undisturbed", same, document)


def aggregator_arguments(running: Federation, folder: Path) -> tuple[str, ...]:
    """As the harness starts it, but before it is started."""
    ports = ("--port", str(running.port), "--metrics-port", str(running.metrics_port), "--enrol-port", "0")
    return ("aggregator", "--state-dir", str(folder / "aggregator"), *ports)
