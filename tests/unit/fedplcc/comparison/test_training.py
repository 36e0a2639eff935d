"""Reports of a worker on its cell, and how they are shown; training itself is in tests/integration/test_compare.py."""

from __future__ import annotations

import io
import multiprocessing
import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fedplcc.comparison import training
from fedplcc.comparison.plan import Cell
from fedplcc.comparison.training import CellProgress, CellsShown, problems_of_cells, sentences_of, train
from fedplcc.shared.documents import Event
from fedplcc.simulation.messages import CommittedRound, LinkLost
from fedplcc.simulation.worker_process import PipeLink, WorkerProcess
from tests.support.records.comparisons import COMPARISON, RUN, cells_of, write_comparison

OWN_WORKER = """
import os, sys
from multiprocessing.connection import Connection

from fedplcc.simulation.messages import Answer, outcome

pipe = Connection(int(sys.argv[1]))
cell, device, log = pipe.recv()
"""
"""Program of a worker that takes one order; its threads are in OMP_NUM_THREADS."""


@pytest.fixture
def cell(path: Path, tmp_path: Path) -> Cell:
    return cells_of(path, tmp_path / "out")[0]


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has cells trained by a program of these lines, which follow `OWN_WORKER`."""

    def write(lines: str) -> None:
        (tmp_path / "own_worker.py").write_text(OWN_WORKER + lines)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(training, "WORKER_MODULE", "own_worker")

    return write


def train_all(cells: list[Cell]) -> dict[str, str]:
    with CellsShown(Console(file=io.StringIO()), total=len(cells)) as shown:
        return train(cells, shown, jobs=1, device="cpu", should_stop=lambda: False)


def test_a_bug_is_one_cells_failure_and_keeps_its_traceback(
    cell: Cell, worker: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    worker("pipe.send(outcome(lambda: 1 / 0)); pipe.recv()")
    (sentence,) = train_all([cell]).values()
    assert sentence == "ZeroDivisionError: division by zero (its traceback is on stderr)", "the same on every run"
    said = capfd.readouterr().err
    assert said.startswith("digits/average/seed-0:\n")
    assert "own_worker.py" in said


def test_a_cell_with_another_number_of_threads_has_a_worker_of_its_own(
    cell: Cell, tmp_path: Path, worker: Callable[[str], None]
) -> None:
    (tmp_path / "more").mkdir()
    path = write_comparison(tmp_path / "more", run=RUN + "\n[training]\nthreads = 2\n")
    other = replace(cells_of(path, tmp_path / "out")[0], seed=1)
    worker(
        """
while True:
    with open(__file__ + ".log", "a") as log:
        log.write(f"{os.getpid()} {os.environ['OMP_NUM_THREADS']}\\n")
    pipe.send(Answer())
    cell, device, log = pipe.recv()
"""
    )
    assert train_all([cell, replace(cell, seed=2), other]) == {}
    lines = [line.split() for line in (tmp_path / "own_worker.py.log").read_text().splitlines()]
    assert [threads for _, threads in lines] == ["1", "1", "2"]
    assert lines[0][0] == lines[1][0] != lines[2][0]


def test_a_message_that_breaks_off_means_that_the_link_is_lost() -> None:
    ours, theirs = multiprocessing.Pipe()
    with ours:
        os.write(theirs.fileno(), (100).to_bytes(4, "big") + b"a part")
        theirs.close()
        with pytest.raises(LinkLost):
            PipeLink(ours).receive()


def test_a_worker_process_that_ends_says_how() -> None:
    worker = WorkerProcess("json.tool", 1)
    with pytest.raises(LinkLost):
        worker.receive()
    assert worker.why_ended() == "process ended with exit code 2"


WEIGHTS = """[model]
name = "timm:tf_efficientnet_lite0"
weights = "lite0"
weights_sha256 = "{}"
""".format("a" * 64)
CNN = """classes = ["0", "1"]
image_size = 8
[model]
name = "cnn4"
"""


def write_images(path: Path) -> None:
    images, labels = np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1])
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels)


def test_each_data_set_that_cannot_be_opened_has_one_sentence_before_anything_is_trained(tmp_path: Path) -> None:
    run = RUN.replace("npz:", f"npz:{tmp_path}/")
    (tmp_path / "gone.toml").write_text(run.replace("svhn.npz", "gone.npz"))
    path = write_comparison(tmp_path, COMPARISON + '\n[datasets.other]\nconfig = "gone.toml"\n', run)
    for name in ("mnist.npz", "svhn.npz"):
        write_images(tmp_path / name)
    cells = cells_of(path, tmp_path / "out")
    problems = problems_of_cells(cells)
    assert problems.keys() == {cell.name for cell in cells if cell.dataset == "other"}
    (sentence,) = sentences_of(cells, problems)
    assert sentence.startswith("other cannot be trained: client svhn: ")
    assert "gone.npz" in sentence
    assert problems_of_cells([]) == {}


def test_a_row_with_data_of_its_own_that_cannot_be_opened_is_named_alone(tmp_path: Path) -> None:
    own = 'set = { "method.phi" = 1.0, "clients.svhn.data" = "npz:gone.npz" }'
    text = COMPARISON.replace('set = { "method.phi" = 1.0 }', own)
    path = write_comparison(tmp_path, text, RUN.replace("npz:", f"npz:{tmp_path}/"))
    for name in ("mnist.npz", "svhn.npz"):
        write_images(tmp_path / name)
    cells = cells_of(path, tmp_path / "out")
    (sentence,) = sentences_of(cells, problems_of_cells(cells))
    assert sentence.startswith("digits/all cannot be trained: client svhn: ")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("[clients.mnist]", WEIGHTS + "[clients.mnist]"), "this site has no backbone 'lite0' of SHA-256 a{64}; .*add"),
        (('classes = ["0", "1"]', CNN), "cnn4 and cnn5 need image_size >= 16, not 8"),
        (('classes = ["0", "1"]', 'classes = ["0", "2"]'), "client mnist: .* has the class '1', but the run's classes"),
    ],
)
def test_what_is_known_before_the_first_cell_is_said_once_before_it(
    change: tuple[str, str], sentence: str, tmp_path: Path
) -> None:
    path = write_comparison(tmp_path, COMPARISON, RUN.replace("npz:", f"npz:{tmp_path}/").replace(*change))
    for name in ("mnist.npz", "svhn.npz"):
        write_images(tmp_path / name)
    cells = cells_of(path, tmp_path / "out")
    problems = problems_of_cells(cells)
    assert problems.keys() == {cell.name for cell in cells}
    (said,) = sentences_of(cells, problems)
    assert re.match(f"digits cannot be trained: {sentence}", said), said


def an_event(kind: str, number: int | None = None, **data: Any) -> Event:
    time = datetime(2026, 1, 1, tzinfo=UTC)
    return Event(sequence=1, time=time, type=kind, run_id="r", round=number, client_id="mnist", data=data)


def test_of_a_run_rounds_and_what_a_person_should_know_are_passed_on() -> None:
    ours, theirs = multiprocessing.Pipe()
    progress = CellProgress(PipeLink(theirs))
    progress.step("mnist: reading its data")
    progress.event(an_event("round_opened", 1, cohort=["mnist"], phase="collecting"))
    progress.event(an_event("update_committed", 1))
    progress.event(an_event("update_refused", 1, detail="it is too far away"))
    progress.event(an_event("round_committed", 1, metrics={"accuracy": {"mean": 0.5}}))
    progress.event(an_event("round_committed", 2, metrics={"accuracy": None}))
    said = []
    with ours, theirs:
        while ours.poll():
            said.append(ours.recv().content)
    assert said == [
        "client mnist: an update was refused: it is too far away",
        CommittedRound(1, 0.5),
        CommittedRound(2, None),
    ]


def test_output_of_a_users_code_does_not_mix_with_results(
    cell: Cell, worker: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    worker("print('somebody', flush=True); pipe.send(Answer()); pipe.recv()")
    assert train_all([cell]) == {}
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "somebody\n")
