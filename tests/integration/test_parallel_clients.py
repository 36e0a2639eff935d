"""Parallel clients, in processes of their own: the same bytes as one after another, even if processes are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedplcc.command.exit_codes import ExitCode
from fedplcc.interruption import Interrupted
from fedplcc.shared.documents import Event
from fedplcc.simulation.messages import Forget
from fedplcc.simulation.placement import Placement
from fedplcc.simulation.worker_process import WorkerProcess
from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.processes import eventually
from tests.support.federation.simulations import hashed, simulated, write_config
from tests.support.hosts.descendants import LOOPBACK, descendants, listening

pytestmark = pytest.mark.slow

RUN_S = 120.0
IMPORTS = """
import os, signal
from pathlib import Path
import numpy
from fedplcc.trainer.data import DatasetArrays
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module with a data factory of these lines, found from here as a user's own code is; gives its data
    specification.
    """

    def write(lines: str) -> str:
        body = textwrap.indent(textwrap.dedent(lines).strip(), "    ")
        (tmp_path / "own_code.py").write_text(f"{IMPORTS}\n\ndef read(**_):\n{body}\n")
        monkeypatch.syspath_prepend(tmp_path)
        return "own_code:read"

    return write


def three_clients(data: Path, method: str, **sections: Any) -> dict[str, Any]:
    """One more than two workers have hands for."""
    values = tiny_federation.document(data, method, **sections)
    values["run"]["clients"] = ["a", "b", "c"]
    values["clients"] = {
        name: {"data": f"npz:{data / which}.npz", "domain": which}
        for name, which in (("a", "left"), ("b", "right"), ("c", "left"))
    }
    return values


def test_clients_beside_each_other_give_the_bytes_of_one_after_another_even_if_a_worker_is_killed(
    data: Path, tmp_path: Path, plugin: Callable[[str], str], capfd: pytest.CaptureFixture[str]
) -> None:
    values = three_clients(data, "fedplcc")
    simulated(values, tmp_path / "one")
    killed = tmp_path / "killed"
    values["clients"]["b"]["data"] = plugin(
        f"""
        if not Path({str(killed)!r}).exists():
            Path({str(killed)!r}).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        with numpy.load({str(data / "right.npz")!r}) as arrays:
            return DatasetArrays(**arrays)
        """
    )
    simulated(values, tmp_path / "many", jobs=2)
    assert hashed(tmp_path / "many") == hashed(tmp_path / "one")
    assert "client b: its worker process was killed (SIGKILL); another one takes its place" in capfd.readouterr().err
    assert not workers_of(os.getpid())


@pytest.mark.full
def test_clients_that_change_hands_and_are_continued_one_after_another_give_the_same_bytes(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's kept state passes from one process to another, and to a third."""
    large = tmp_path / "large"
    large.mkdir()
    tiny_federation.write_data(large, num_per_class=80)
    values = three_clients(data, "moon", training={"local_steps": None, "local_epochs": 1}, run={"rounds": 4})
    values["clients"]["a"]["data"] = f"npz:{large / 'left.npz'}"
    simulated(values, tmp_path / "whole")

    monkeypatch.setattr(Placement, "_cost_s", lambda self, client_id: 0.0)  # else none so small would move
    forgotten: list[str] = []
    send = WorkerProcess.send

    def watched(self: WorkerProcess, message: object) -> None:
        if isinstance(message, Forget):
            forgotten.append(message.client_id)
        send(self, message)

    monkeypatch.setattr(WorkerProcess, "send", watched)
    committed: list[Event] = []
    with pytest.raises(Interrupted):
        simulated(
            values,
            tmp_path / "parts",
            should_stop=lambda: any((event.type, event.round) == ("update_committed", 4) for event in committed),
            jobs=2,
            on_event=committed.append,
        )
    assert "c" in forgotten, "it waits behind the large one while the other worker has nothing to do"
    assert not (tmp_path / "parts" / "run.json").exists()
    simulated(values, tmp_path / "parts")
    assert hashed(tmp_path / "parts") == hashed(tmp_path / "whole")


def workers_of(pid: int) -> set[int]:
    """The workers that a process has started and that have not ended."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            is_worker = b"fedplcc.simulation.client_worker" in (stat.parent / "cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        if is_worker and state != "Z" and int(parent) == pid:
            found.add(int(stat.parent.name))
    return found


def is_running(pid: int) -> bool:
    try:
        return b"fedplcc.simulation.client_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def begun(values: dict[str, Any], folder: Path, *options: str) -> tuple[subprocess.Popen[str], list[str], set[int]]:
    """A command whose first round has committed, its command line, and its workers."""
    config = write_config(folder / "tiny_federation.toml", values)
    command = [sys.executable, "-m", "fedplcc", "simulate", "--config", str(config), "--out", str(folder / "out")]
    command += ["--device", "cpu", *options, "--jobs", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert process.stdout is not None
    assert any(line.split()[0] == "1" for line in process.stdout)
    return process, command, workers_of(process.pid)


@pytest.mark.full
def test_a_killed_command_leaves_no_worker_behind_and_goes_on(data: Path, tmp_path: Path) -> None:
    values = tiny_federation.document(data, training={"local_steps": 40})
    simulated(values, tmp_path / "whole")
    process, command, workers = begun(values, tmp_path)
    assert len(workers) == 2
    with process:
        process.send_signal(signal.SIGKILL)
    eventually(lambda: not any(map(is_running, workers)), "the workers end")
    assert not (tmp_path / "out" / "run.json").exists(), "it was too quick to be killed"
    command[-1] = "1"
    second = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=RUN_S, check=False)
    assert second.returncode == 0, second.stderr
    assert hashed(tmp_path / "out") == hashed(tmp_path / "whole")


def test_ctrl_c_ends_the_command_and_its_workers_at_once(data: Path, tmp_path: Path) -> None:
    process, _command, workers = begun(tiny_federation.document(data, run={"rounds": 1000}), tmp_path)
    assert len(workers) == 2
    with process:
        process.send_signal(signal.SIGINT)
        assert process.wait(RUN_S) == ExitCode.INTERRUPTED
        assert process.stderr is not None
        text = process.stderr.read()
    assert text.startswith("fedplcc: interrupted; ")
    assert len(text.splitlines()) == 1
    assert not any(map(is_running, workers))


@pytest.mark.full
def test_on_ray_they_give_the_same_bytes_and_only_this_machine_could_reach_them(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    values = three_clients(data, "moon")
    simulated(values, tmp_path / "one")
    before = set(Path(tempfile.gettempdir()).glob("fedplcc-ray-*"))
    process, _command, _workers = begun(values, tmp_path, "--engine", "ray")
    with process:
        started = descendants(process.pid)
        hosts = listening({process.pid, *started})
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read()
        assert process.wait(RUN_S) == 0, process.stderr.read()
    assert hosts, "Ray listens somewhere"
    assert hosts <= LOOPBACK
    assert hashed(tmp_path / "out") == hashed(tmp_path / "one")
    assert not started & descendants(os.getpid())
    assert set(Path(tempfile.gettempdir()).glob("fedplcc-ray-*")) == before
