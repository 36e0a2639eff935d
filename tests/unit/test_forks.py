"""Forks in place of starts: the same process, less the seconds in which it loads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.federation.forks import can_fork, parent_of, typed
from tests.support.federation.processes import Federation, Process


def ended(folder: Path, *arguments: str, may_fork: bool) -> tuple[int | None, str]:
    folder.mkdir()
    process = Process("tried", folder, arguments)
    process.may_fork = may_fork
    process.environment = {"FEDPLCC_NAMED_NOWHERE": "1"}
    process.start()
    assert process._process is not None
    code = process._process.wait(60)
    lines = [json.loads(line) if line.startswith("{") else line for line in process.log().splitlines()]
    return code, str([line if isinstance(line, str) else line["event"] for line in lines])


@pytest.mark.parametrize("service", ["aggregator", "gateway", "trainer"])
def test_a_fork_says_and_returns_what_a_start_does(tmp_path: Path, service: str) -> None:
    words = (service, "--no-such-flag")
    fork = ended(tmp_path / "fork", *words, may_fork=True)
    assert fork == ended(tmp_path / "start", *words, may_fork=False)
    assert fork[0] == 2


def test_a_fork_is_its_own_process_with_its_own_folder_and_dies_by_signals(federation: Federation) -> None:
    process = federation.start_aggregator()
    assert Path(f"/proc/{process.pid}/cwd").resolve() == federation.folder.resolve()
    assert b"forks" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    open_files = [file.readlink().name for file in Path(f"/proc/{process.pid}/fd").glob("[012]")]
    assert sorted(open_files) == ["aggregator.log", "aggregator.log", "null"]
    assert process.end(signal.SIGTERM) == 0
    process.start()
    process.kill()
    assert process.exit_code == -signal.SIGKILL


def test_a_command_that_is_typed_reads_prints_complains_and_ends_as_one_that_starts(tmp_path: Path) -> None:
    (tmp_path / "fork").mkdir()
    (tmp_path / "start").mkdir()
    for words, given in ((("join",), "no invitation\n"), (("config", "init", "run.toml"), ""), (("--version",), "")):
        fork = typed(*words, cwd=tmp_path / "fork", given=given)
        line = [sys.executable, "-m", "fedplcc", *words]
        start = subprocess.run(
            line,
            cwd=tmp_path / "start",
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (fork.returncode, fork.stdout, fork.stderr) == (start.returncode, start.stdout, start.stderr), words
    assert (tmp_path / "fork" / "run.toml").read_bytes() == (tmp_path / "start" / "run.toml").read_bytes()


def test_a_parent_outlives_forks_that_end_together_and_those_nobody_waits_for(tmp_path: Path) -> None:
    with Path(os.devnull).open("r+b") as nothing:
        streams = [nothing.fileno()] * 3
        for _time in range(8):
            forks = [parent_of("fedplcc").fork("this", [], tmp_path, os.environ, streams) for _each in range(12)]
            del forks[::4]
            assert [each.wait(60) for each in forks] == [0] * 9


@pytest.mark.parametrize(
    ("module", "arguments", "variable"),
    [
        ("fedplcc", [], "SITE"),  # real starts are those of the command
        ("fedplcc.trainer", ["--threads", "2"], "SITE"),
        ("fedplcc.trainer", [], "LD_PRELOAD"),
        ("fedplcc.aggregator", [], "PYTHONDEVMODE"),
    ],
)
def test_what_is_read_while_a_process_loads_needs_a_start(module: str, arguments: list[str], variable: str) -> None:
    assert not can_fork(module, arguments, {variable: "1"})
    assert can_fork("fedplcc.trainer", [], {"SITE": "1"})


def test_libraries_load_with_one_thread_in_tests_and_what_they_start() -> None:
    assert os.environ["OPENBLAS_NUM_THREADS"] == os.environ["OMP_NUM_THREADS"] == "1"
    code = "import sys, tests.support; sys.exit(any(name in sys.modules for name in ('numpy', 'torch')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == 0, "said too late: a library has loaded before"
