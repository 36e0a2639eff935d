"""The aggregator's disk fills up in the middle of a run: the run says so and waits, and goes on when there is room again.

A member that fills it loses its uploads and stops nobody; on a disk that is full to the last byte people still steer.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fedplcc.shared.errors import FedplccError
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.steering import PauseRun, QuarantineClient, ResumeRun, StopRun
from fedplcc.shared.types import BlobRef, RunSpec, Task, TaskKind
from tests.chaos.network import undisturbed
from tests.support.federation.grpc_client import GrpcClient, RunControl
from tests.support.federation.numpy_client import FEATURE_DIM, NumpyClient, a_document
from tests.support.federation.numpy_trainer import NumpyTrainer
from tests.support.federation.processes import Federation, eventually

DISK_BYTES = 8 << 20
MODEL_BYTES = 400_000
LEFT_BYTES = 150_000
"""Room that is left: for the database's next pages, not for a model."""
WAIT_S = 60.0
HOARDED_BYTES = 1 << 19
STEERING_S = 2.0
"""Longest time of a person's request on a full disk."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of eight megabytes, as the aggregator's state directory."""
    folder = tmp_path / "aggregator"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root and its capabilities")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def ann() -> NumpyClient:
    return NumpyClient("ann", size=MODEL_BYTES // (4 * FEATURE_DIM))


def fill(folder: Path) -> Path:
    """Leave little room on a disk."""
    free = os.statvfs(folder)
    filler = folder / "filler"
    filler.write_bytes(bytes(free.f_bavail * free.f_frsize - LEFT_BYTES))
    return filler


def test_a_run_on_a_full_disk_waits_says_why_and_ends_in_the_same_bytes(small_disk: Path, tmp_path: Path) -> None:
    document = a_document(clients=("ann",))
    with Federation(tmp_path) as federation:
        federation.start_aggregator("--heartbeat-interval-s", "0.5")
        control = RunControl(federation.address, tls=federation.operator_tls)
        tls = federation.client_tls("ann")
        filler = fill(small_disk)
        with NumpyTrainer(federation.address, ann(), tls=tls) as trainer:
            run_id = control.create(document).run_id
            reason = eventually(lambda: why_waiting(control, run_id), "the run says why it waits", WAIT_S)
            assert re.fullmatch(
                r"waits for the disk or database: (the aggregator cannot write to its disk: No space left on device"
                r"|cannot write to the database: database or disk is full); "
                r"make room; when that is mended, the run continues",
                reason,
            ), reason
            before, begin, busy = trainer.count("retries", "upload"), time.monotonic(), time.process_time()
            eventually(lambda: trainer.count("retries", "upload") >= before + 2, "the trainer tries again", WAIT_S)
            seconds = time.monotonic() - begin
            assert time.process_time() - busy < 0.5 * seconds + 0.5, "it waits between its attempts"
            assert control.get(run_id).status == types_pb2.RUN_STATUS_RUNNING
            filler.unlink()
            eventually(lambda: control.get(run_id).status == types_pb2.RUN_STATUS_COMPLETED, "it goes on", WAIT_S)
            assert "disk or database" not in control.get(run_id).reason
            lines = control.metrics_lines(run_id)
        control.close()
    assert lines == undisturbed(tmp_path / "undisturbed", [ann()], document)


def fill_to_the_last_byte(folder: Path) -> Path:
    """Leave no block of a disk free."""
    filler = folder / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filler


def in_time(what: str, call: Callable[[], object]) -> None:
    """Make a person's request; it must be answered within two seconds."""
    begin = time.monotonic()
    call()
    took_s = time.monotonic() - begin
    assert took_s < STEERING_S, f"{what} took {took_s:.1f} s"


def test_people_steer_runs_on_a_disk_that_is_full_to_the_last_byte_and_a_start_there_succeeds(
    small_disk: Path, tmp_path: Path
) -> None:
    with Federation(tmp_path) as federation:
        aggregator = federation.start_aggregator("--heartbeat-interval-s", "0.5")
        assert (small_disk / "reserve").is_file(), "it is taken before anybody is served"
        control = RunControl(federation.address, tls=federation.operator_tls)
        with NumpyTrainer(federation.address, NumpyClient("ann"), tls=federation.client_tls("ann")):
            going = control.create(a_document(clients=("ann",), run={"rounds": 100_000})).run_id
            waiting = control.create(a_document(clients=("ann", "bob"))).run_id
            eventually(lambda: len(control.metrics_lines(going)) > 2, "it goes on", WAIT_S)
            fill_to_the_last_byte(small_disk)
            eventually(lambda: why_waiting(control, going), "the run says why it waits", WAIT_S)
            in_time("quarantine", lambda: control.steer(waiting, QuarantineClient("ann")))
            in_time("pause", lambda: control.steer(going, PauseRun(now=True)))
            in_time("resume", lambda: control.steer(going, ResumeRun()))
            in_time("stop", lambda: control.steer(waiting, StopRun()))
            aggregator.kill()
            federation.start_aggregator("--heartbeat-interval-s", "0.5")
            assert [each.client_id for each in control.get(waiting).quarantined] == ["ann"]
            in_time("stop", lambda: control.steer(going, StopRun()))
            eventually(lambda: control.get(going).status == types_pb2.RUN_STATUS_STOPPED, "it has stopped", WAIT_S)
        control.close()


class Hoarder(threading.Thread):
    """A member that sends first models all the time, as many as the disk holds, and never ends one."""

    def __init__(self, dialled: GrpcClient, run_id: str) -> None:
        super().__init__()
        self._dialled, self._run_id = dialled, run_id
        self._task = Task(kind=TaskKind.INIT, run=RunSpec(run_id=run_id, config_json="{}", config_hash=""))
        self.is_over, self.num_refused, self.sent_bytes = threading.Event(), 0, 0

    def run(self) -> None:
        number = 0
        while not self.is_over.is_set():
            number += 1
            blob = BlobRef("model", f"{number:064x}", HOARDED_BYTES)
            try:
                self._dialled.join()
                self._dialled.upload_parts(self._task, blob, self._chunks())
            except FedplccError:
                self.num_refused += 1
        self._dialled.close()

    def _chunks(self) -> Iterator[tuple[int, bytes]]:
        for offset in range(0, HOARDED_BYTES - 1, 1 << 15):
            chunk = bytes(min(1 << 15, HOARDED_BYTES - 1 - offset))
            self.sent_bytes += len(chunk)
            yield offset, chunk


def test_a_member_that_fills_the_disk_loses_its_uploads_and_an_honest_run_ends_in_its_bytes(
    small_disk: Path, tmp_path: Path
) -> None:
    client, document = NumpyClient("ann", size=400), a_document(clients=("ann",), run={"rounds": 6})
    with Federation(tmp_path) as federation:
        aggregator = federation.start_aggregator("--heartbeat-interval-s", "0.5", "--keep-models", "1")
        control = RunControl(federation.address, tls=federation.operator_tls)
        eve = GrpcClient(federation.address, NumpyClient("eve"), tls=federation.client_tls("eve"))
        eve.join()
        theirs = control.create(a_document(clients=("eve",))).run_id
        hoarder = Hoarder(eve, theirs)
        hoarder.start()
        try:
            eventually(lambda: hoarder.sent_bytes > 2 * DISK_BYTES, "it has sent more than the disk holds", WAIT_S)
            with NumpyTrainer(federation.address, client, tls=federation.client_tls("ann")):
                run_id = control.create(document).run_id
                eventually(
                    lambda: control.get(run_id).status == types_pb2.RUN_STATUS_COMPLETED, "the run completes", WAIT_S
                )
            lines = control.metrics_lines(run_id)
            in_time("quarantine", lambda: control.steer(theirs, QuarantineClient("eve")))
            eventually(lambda: not list(small_disk.glob("incoming/eve/*")), "its uploads are gone", WAIT_S)
            in_time("stop", lambda: control.steer(theirs, StopRun()))
        finally:
            hoarder.is_over.set()
            hoarder.join(WAIT_S)
        assert hoarder.num_refused
        control.close()
        aggregator.kill()
        federation.start_aggregator()
    assert lines == undisturbed(tmp_path / "undisturbed", [NumpyClient("ann", size=400)], document)


def why_waiting(control: RunControl, run_id: str) -> str | None:
    reason = control.get(run_id).reason
    return reason if "disk or database" in reason else None
