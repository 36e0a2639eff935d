"""What a real aggregator left."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedplcc.shared.tensors import blob_ref, to_bytes
from fedplcc.shared.types import MODEL, Run, RunStatus
from tests.support import present
from tests.support.federation.numpy_client import NumpyClient
from tests.support.hosts.memory_folder import memory_folder
from tests.unit.fedplcc.state.calls import Kept


@pytest.fixture(scope="module")
def left() -> Iterator[tuple[Path, Run, Run]]:
    """A state directory with a run that has completed and one in the middle of round 2, all that may go collected."""
    with memory_folder() as name, Kept.small(Path(name)) as federation:
        federation.join()
        initial = to_bytes(NumpyClient("ann", size=3).first_model(7))
        receiver = present(federation.coordinator.initial_models.begin_upload(blob_ref(MODEL, initial), "mine"))
        receiver.write(initial)
        receiver.finish()
        receiver.close()
        # Begins with a model of its own, else both runs would share their updates.
        begun_with = f"sha256:{blob_ref(MODEL, initial).sha256}"
        done = federation.run_to_end(
            federation.create("fedplcc", run={"rounds": 5, "initial_model": begun_with}).run_id
        )
        assert done.status is RunStatus.COMPLETED
        middle = federation.create("fedplcc", run={"rounds": 9, "seed": 1})
        for _ in range(4):
            federation.step()
        federation.perform(federation.clients["bob"], federation.task(federation.clients["bob"]))
        federation.coordinator.garbage_collection.collect()
        yield Path(name), done, federation.coordinator.get_run(middle.run_id)


@pytest.fixture
def state(left: tuple[Path, Run, Run], tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    folder = tmp_path / "state"
    shutil.copytree(left[0], folder)
    return folder
