"""The aggregator's disk fills up in the middle of a run: the run says so and waits, and goes on when there is room again."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.gen.fedplcc.v1 import types_pb2
from tests.chaos.network import undisturbed
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.numpy_client import FEATURE_DIM, NumpyClient, a_document
from tests.support.federation.numpy_trainer import NumpyTrainer
from tests.support.federation.processes import Federation, eventually

DISK_BYTES = 8 << 20
MODEL_BYTES = 400_000
LEFT_BYTES = 150_000
"""Room that is left: for the database's next pages, not for a model."""
WAIT_S = 60.0


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
        control = RunControl(federation.address)
        filler = fill(small_disk)
        with NumpyTrainer(federation.address, ann()) as trainer:
            run_id = control.create(document).run_id
            reason = eventually(lambda: why_waiting(control, run_id), "the run says why it waits", WAIT_S)
            assert reason == (
                "waits for the disk or database: the aggregator cannot write to its disk: No space left on device; "
                "make room; when that is mended, the run continues"
            )
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


def why_waiting(control: RunControl, run_id: str) -> str | None:
    reason = control.get(run_id).reason
    return reason if "disk or database" in reason else None
