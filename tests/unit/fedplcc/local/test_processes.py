"""Processes of a local federation: why one ended, alarms, and that none outlives its parent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedplcc.local import die_with_parent
from fedplcc.local.federation import LocalProcess, ProcessEnded, unless
from fedplcc.shared.errors import FedplccError, InvalidConfig, RunNotFound, StoreUnavailable, Unavailable
from tests.support.federation.processes import eventually


def a_process(tmp_path: Path, *lines: object) -> LocalProcess:
    log = tmp_path / "trainer-ann.log"
    text = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    log.write_text("".join(f"{line}\n" for line in text))
    return LocalProcess("trainer-ann", ["trainer"], log)


REFUSAL = {"event": "cannot_go_on", "level": "error", "detail": "there is no data"}


@pytest.mark.parametrize(("code", "kind"), [(2, InvalidConfig), (4, StoreUnavailable), (3, ProcessEnded)])
def test_a_process_that_said_why_it_ended_is_quoted(tmp_path: Path, code: int, kind: type[FedplccError]) -> None:
    process = a_process(tmp_path, {"event": "trainer_starting", "level": "info"}, REFUSAL, "no JSON")
    error = process.failure(code)
    assert type(error) is kind
    assert error.detail == "trainer-ann ended: there is no data"


def test_of_a_process_that_said_nothing_the_log_is_named(tmp_path: Path) -> None:
    process = a_process(tmp_path, "Traceback (most recent call last):", "ImportError: no module")
    error = process.failure(1)
    assert type(error) is ProcessEnded
    assert error.detail == f"trainer-ann ended with exit code 1; what it did before is in {process.log}"


# Alarms


async def _alarm(after: asyncio.Event) -> FedplccError:
    await after.wait()
    return ProcessEnded("it ended")


def test_an_alarm_cancels_the_work() -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def both() -> None:
        ringing = asyncio.Event()
        ringing.set()
        await unless(work(), _alarm(asyncio.Event()), _alarm(ringing))

    with pytest.raises(ProcessEnded):
        asyncio.run(both())
    assert ended == [True]


def test_an_alarm_that_follows_broken_work_explains_it() -> None:
    async def both() -> None:
        ringing = asyncio.Event()

        async def work() -> None:
            asyncio.get_running_loop().call_later(0.01, ringing.set)
            raise Unavailable("the connection broke")

        await unless(work(), _alarm(ringing))

    with pytest.raises(ProcessEnded, match="it ended"):
        asyncio.run(both())


def test_work_that_fails_by_itself_fails_with_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedplcc.local.federation.ALARM_S", 0.01)

    async def work() -> None:
        raise RunNotFound("there is no run")

    async def both() -> None:
        await unless(work(), _alarm(asyncio.Event()))

    with pytest.raises(RunNotFound):
        asyncio.run(both())


# Orphans

PARENT = """
import os, subprocess, sys
guard, = sys.argv[1:]
child = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"]
subprocess.Popen([sys.executable, "-I", "-S", guard, str(os.getpid()), *child]).wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can end a process with its parent")
def test_a_process_does_not_outlive_a_killed_parent() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, die_with_parent.__file__], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
        assert _lives(child)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        eventually(lambda: not _lives(child), "the child ends with its parent", 10)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can end a process with its parent")
def test_a_process_whose_parent_is_gone_already_does_not_start() -> None:
    command = [sys.executable, "-I", "-S", str(die_with_parent.__file__), "1", sys.executable, "-c", "print('started')"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")


def _lives(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected by its parent does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
