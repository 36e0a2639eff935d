"""Names of a site's files stay there: in its log, and in nothing that its trainer sends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.types import Heartbeat, RunSpec, Task, TaskKind
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.readings.metrics import TrainerMetrics
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from fedplcc.trainer.worker import Worker
from tests.support.federation.processes import eventually
from tests.unit.trainer.builders import a_config, a_spec, write_pictures
from tests.unit.trainer.memory_aggregator import MemoryAggregator
from tests.unit.trainer.scripted_worker import WAIT_S, ScriptedClient

SECRET = "jane-doe-1961"
"""Part of the name of a file, or of a text that names one."""

CODE = f"""
import numpy as np

def model(num_classes, image_size):
    open("/scans/{SECRET}.png")

class Record:
    y_train = y_test = np.array([0, 1])
    x_test = np.zeros((2, 16, 16, 3), np.uint8)
    num_asked = 0

    @property
    def x_train(self):
        Record.num_asked += 1
        if Record.num_asked > 1:
            raise OSError("cannot read {SECRET}.dcm")
        return self.x_test
"""


class RecordingClient(ScriptedClient):
    """An aggregator's end that keeps everything that it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.aggregator = MemoryAggregator()
        self.beats: list[Heartbeat] = []

    def heartbeat(self, heartbeat: Heartbeat) -> bool:
        self.beats.append(heartbeat)
        return super().heartbeat(heartbeat)

    def for_task(self, should_stop: Callable[[], bool]) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.aggregator, name)

    def sent(self) -> str:
        """All of it, as text."""
        aggregator = self.aggregator
        blobs = [data for data, _is_prototypes in aggregator.stored.values()]
        return repr([self.joined, self.announced, self.beats, aggregator.updates, aggregator.evaluations, blobs])


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Class folders a and b with five images each."""
    return write_pictures(tmp_path / "images", 10)


def a_run(model: str, classes: tuple[str, ...]) -> RunSpec:
    return a_spec(a_config(run={"clients": ["ann"]}, model={"name": model}, data={"classes": classes}))


def problem_of(
    data: str, folder: Path, *, model: str = "cnn4", classes: tuple[str, ...] = ("a", "b"), spoil: Callable[[], object]
) -> tuple[Any, RecordingClient]:
    """The first problem that a trainer reports of a run's first task, and its connection.

    Args:
        data: Data specification.
        folder: Where its state may lie.
        model: The run's model.
        classes: The run's classes.
        spoil: Called once the client has been announced.
    """
    consent = Consent(code=frozenset({model}))
    runner = TaskRunner(
        ClientSite.at("ann", "hospital", data, device="cpu", consent=consent), ClientStates(folder / "states")
    )
    client = RecordingClient()
    worker = Worker(runner, client, TrainerMetrics(new_registry("trainer")))  # type: ignore[arg-type]
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        eventually(lambda: bool(client.joined), "it joins", WAIT_S)
        spoil()
        client.pushed.put(Task(kind=TaskKind.INIT, run=a_run(model, classes), total_rounds=1))
        problem = client.await_heartbeat(lambda beat: beat.problem is not None).problem
        eventually(lambda: not client.beats[-1].run_id, "the task has ended", WAIT_S)
    finally:
        worker.end()
        thread.join(WAIT_S)
    return problem, client


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """Everything that was logged, as text."""
    caplog.set_level(logging.INFO)
    return lambda: repr([vars(record)["msg"] for record in caplog.records])


def test_an_unreadable_file_is_counted_for_others_and_named_at_home(
    images: Path, tmp_path: Path, logged: Callable[[], str]
) -> None:
    (images / "a" / f"{SECRET}.png").write_bytes(b"no image")
    problem, client = problem_of(f"folder:{images}", tmp_path, spoil=lambda: None)
    assert (problem.reason, problem.is_fatal) == ("UNREADABLE_FILES", False)
    assert problem.detail.startswith("1 of the data set's files")
    assert "log of this trainer" in problem.hint
    assert client.aggregator.updates, "the task was done"
    assert SECRET not in client.sent()
    assert str(tmp_path) not in client.sent()
    assert f"a/{SECRET}.png" in logged()


DATA: dict[str, Callable[[Path], tuple[str, Callable[[], object]]]] = {
    "a file that is gone": lambda folder: _npz(folder, lambda path: path.unlink()),
    "a file that is damaged": lambda folder: _npz(folder, lambda path: path.write_bytes(b"PK\x03\x04 no archive")),
    "a file without an array": lambda folder: _npz(folder, lambda path: np.savez(path, x_train=np.zeros(1))),
    "a folder that is gone": lambda folder: _renamed(folder),
    "code that raises": lambda folder: ("hospital_code:Record", lambda: None),
}


def _npz(folder: Path, spoil: Callable[[Path], object]) -> tuple[str, Callable[[], object]]:
    path, images, labels = folder / f"{SECRET}.npz", np.zeros((4, 16, 16, 3), np.uint8), np.array([0, 1, 0, 1])
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels, classes=["a", "b"])
    return f"npz:{path}", lambda: spoil(path)


def _renamed(folder: Path) -> tuple[str, Callable[[], object]]:
    secret = (folder / "images").rename(folder / SECRET)
    return f"folder:{secret}", lambda: secret.rename(folder / "elsewhere")


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("case", DATA)
def test_data_that_cannot_be_used_are_explained_at_home_alone(
    case: str, tmp_path: Path, logged: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hospital_code.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "hospital_code", raising=False)
    data, spoil = DATA[case](tmp_path)
    problem, client = problem_of(data, tmp_path, spoil=spoil)
    assert (problem.reason, problem.is_fatal) == ("INVALID_DATA", True)
    assert "the log of its trainer says why" in problem.detail
    assert SECRET not in client.sent()
    assert str(tmp_path) not in client.sent()
    assert SECRET in logged()


def test_data_of_other_classes_are_explained_at_home_alone(
    images: Path, tmp_path: Path, logged: Callable[[], str]
) -> None:
    secret = images.rename(tmp_path / SECRET)
    problem, client = problem_of(f"folder:{secret}", tmp_path, classes=("a", "c"), spoil=lambda: None)
    assert problem.reason == "INVALID_DATA"
    assert SECRET not in client.sent()
    assert f"{SECRET}' has the class folder 'b'" in logged()


def test_what_a_models_code_met_is_named_by_its_kind(
    images: Path, tmp_path: Path, logged: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hospital_code.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "hospital_code", raising=False)
    problem, client = problem_of(f"folder:{images}", tmp_path, model="hospital_code:model", spoil=lambda: None)
    assert problem.reason == "INVALID_MODEL"
    assert "(FileNotFoundError)" in problem.detail
    assert SECRET not in client.sent()
    assert f"/scans/{SECRET}.png" in logged()
