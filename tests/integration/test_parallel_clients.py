"""Clients beside each other, in processes of their own: the bytes of one after another, whatever ends whom when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedplcc.exit_codes import ExitCode, exit_code_of
from fedplcc.interruption import Interrupted
from gateway.schemas import Event
from shared.errors import FedplccError, InvalidData
from tests import tiny
from tests.harness import ROOT, eventually
from tests.simulations import hashed, simulated, write_config

pytestmark = pytest.mark.slow

RUN_S = 120.0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    tiny.write_data(folder)
    return folder


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module with a data factory of these lines, found from here as a user's own code is; gives its data
    specification.
    """

    def write(lines: str) -> str:
        body = textwrap.indent(textwrap.dedent(lines).strip(), "    ")
        (tmp_path / "own_code.py").write_text(
            f"import os, signal\nfrom pathlib import Path\n\ndef read(**_):\n{body}\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        return "own_code:read"

    return write


def three_clients(data: Path, method: str, **sections: Any) -> dict[str, Any]:
    """One more than two workers have hands for."""
    values = tiny.document(data, method, **sections)
    values["run"]["clients"] = ["a", "b", "c"]
    values["clients"] = {
        name: {"data": f"npz:{data / which}.npz", "domain": which}
        for name, which in (("a", "left"), ("b", "right"), ("c", "left"))
    }
    return values


@pytest.mark.parametrize(("method", "jobs"), [("fedplcc", 2), ("moon", 3)])
def test_clients_beside_each_other_give_the_bytes_of_one_after_another(
    data: Path, tmp_path: Path, method: str, jobs: int
) -> None:
    values = three_clients(data, method)
    simulated(values, tmp_path / "one")
    simulated(values, tmp_path / "many", jobs=jobs)
    assert hashed(tmp_path / "many") == hashed(tmp_path / "one")


def test_interrupted_beside_each_other_and_continued_one_after_another_equals_uninterrupted(
    data: Path, tmp_path: Path
) -> None:
    """What a client keeps for its next round was kept by another process then."""
    values = three_clients(data, "moon")
    simulated(values, tmp_path / "whole")
    committed: list[Event] = []
    with pytest.raises(Interrupted):
        simulated(
            values,
            tmp_path / "parts",
            should_stop=lambda: any((event.type, event.round) == ("update_committed", 2) for event in committed),
            jobs=2,
            on_event=committed.append,
        )
    simulated(values, tmp_path / "parts")
    assert hashed(tmp_path / "parts") == hashed(tmp_path / "whole")


def test_a_worker_that_is_killed_is_replaced_and_one_whose_replacement_is_killed_too_ends_it_with_a_sentence(
    data: Path, tmp_path: Path, plugin: Callable[[str], str], capfd: pytest.CaptureFixture[str]
) -> None:
    values = tiny.document(data, run={"rounds": 1})
    simulated(values, tmp_path / "whole")
    killed, fatal = tmp_path / "killed", tmp_path / "fatal"
    values["clients"]["right"]["data"] = plugin(
        f"""
        if Path({str(fatal)!r}).exists() or not Path({str(killed)!r}).exists():
            Path({str(killed)!r}).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        import numpy
        from trainer.data import DatasetArrays
        with numpy.load({str(data / "right.npz")!r}) as arrays:
            return DatasetArrays(**arrays)
        """
    )
    simulated(values, tmp_path / "out", jobs=2)
    assert hashed(tmp_path / "out") == hashed(tmp_path / "whole")
    assert (
        "client right: its worker process was killed (SIGKILL); another one takes its place" in capfd.readouterr().err
    )

    fatal.touch()
    with pytest.raises(
        FedplccError, match=r"client right: its worker process was killed \(SIGKILL\), and so .* --jobs"
    ) as why:
        simulated(values, tmp_path / "again", jobs=2)
    assert exit_code_of(why.value) is ExitCode.FAILED


def test_a_client_whose_data_cannot_be_used_is_named(data: Path, tmp_path: Path) -> None:
    values = tiny.document(data)
    values["clients"]["right"] = {"data": "npz:/nowhere/at-all.npz"}
    with pytest.raises(InvalidData, match=r"client right: .*at-all\.npz"):
        simulated(values, tmp_path / "out", jobs=2)
    assert not workers_of(os.getpid())


def workers_of(pid: int) -> set[int]:
    """The workers that a process has started and that have not ended."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            is_worker = b"fedplcc.simulation.worker" in (stat.parent / "cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        if is_worker and state != "Z" and int(parent) == pid:
            found.add(int(stat.parent.name))
    return found


def is_running(pid: int) -> bool:
    return any(b"fedplcc.simulation.worker" in line for line in _command_line(pid))


def _command_line(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def begun(values: dict[str, Any], folder: Path) -> tuple[subprocess.Popen[str], list[str], set[int]]:
    """A command whose first round has committed, its command line, and its workers."""
    config = write_config(folder / "tiny.toml", values)
    command = [sys.executable, "-m", "fedplcc", "simulate", "--config", str(config), "--out", str(folder / "out")]
    command += ["--device", "cpu", "--jobs", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert process.stdout is not None
    assert any(line.split()[0] == "1" for line in process.stdout)
    workers = workers_of(process.pid)
    assert len(workers) == 2
    return process, command, workers


def test_a_killed_command_leaves_no_worker_behind_and_goes_on(data: Path, tmp_path: Path) -> None:
    values = tiny.document(data, training={"local_steps": 40})
    simulated(values, tmp_path / "whole")
    process, command, workers = begun(values, tmp_path)
    with process:
        process.send_signal(signal.SIGKILL)
    eventually(lambda: not any(map(is_running, workers)), "the workers end")
    assert not (tmp_path / "out" / "run.json").exists(), "it was too quick to be killed"
    command[-1] = "1"
    second = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=RUN_S, check=False)
    assert second.returncode == 0, second.stderr
    assert hashed(tmp_path / "out") == hashed(tmp_path / "whole")


def test_ctrl_c_ends_the_command_and_its_workers_at_once(data: Path, tmp_path: Path) -> None:
    process, _command, workers = begun(tiny.document(data, run={"rounds": 1000}), tmp_path)
    with process:
        process.send_signal(signal.SIGINT)
        assert process.wait(RUN_S) == ExitCode.INTERRUPTED
        assert process.stderr is not None
        text = process.stderr.read()
    assert text.startswith("fedplcc: interrupted; ")
    assert len(text.splitlines()) == 1
    assert not any(map(is_running, workers))
