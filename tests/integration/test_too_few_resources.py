"""A process with too few open files or too little memory says so at its start, in a sentence, and ends."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fedplcc.shared.config.settings import EXIT_CONFIG
from tests.support import ROOT
from tests.support.federation.processes import as_module

END_S = 120.0

AGGREGATOR = ("aggregator", "--insecure", "--port", "0", "--metrics-port", "off")
GATEWAY = ("gateway", "--insecure", "--port", "0", "--aggregator", "127.0.0.1:1")
TRAINER = (
    *("trainer", "--insecure", "--aggregator", "127.0.0.1:1", "--client", "ann", "--domain", "a"),
    *("--data", "digits:synth"),
    *("--device", "cpu", "--metrics-port", "off"),
)


def started(folder: Path, arguments: tuple[str, ...], limits: dict[int, int]) -> tuple[int, str]:
    """Exit code and output of a process that is started under these limits, soft and hard."""

    def limit() -> None:
        for which, most in limits.items():
            resource.setrlimit(which, (most, most))

    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            *as_module(arguments),
            *(() if "gateway" in arguments else ("--state-dir", str(folder / "state"))),
        ],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=END_S,
        preexec_fn=limit,
        check=False,
    )
    return ended.returncode, ended.stdout


def why(output: str) -> str:
    """The sentence of the log line that says why the process did not start."""
    (line,) = [line for line in output.splitlines() if '"cannot_' in line]
    return str(json.loads(line)["detail"])


@pytest.mark.parametrize("arguments", [AGGREGATOR, GATEWAY, TRAINER], ids=lambda arguments: arguments[0])
def test_too_few_open_files_are_said_before_anything_is_served(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, output = started(tmp_path, arguments, {resource.RLIMIT_NOFILE: 40})
    assert code == EXIT_CONFIG, output
    assert why(output) == (
        f"this process may have 40 files and connections open at once and needs {128 if arguments is TRAINER else 256}; "
        "raise the limit: ulimit -n, LimitNOFILE= in a unit, or --ulimit nofile= of a container"
    )
    assert not (tmp_path / "state" / "aggregator.sqlite").exists()


@pytest.mark.parametrize("arguments", [AGGREGATOR, GATEWAY], ids=lambda arguments: arguments[0])
def test_too_little_memory_is_said_before_anything_is_served(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, output = started(tmp_path, arguments, {resource.RLIMIT_AS: 420 << 20})
    assert code == EXIT_CONFIG, output
    sentence = why(output)
    assert sentence.startswith("this process has ")
    assert sentence.endswith("MiB of address space left and needs 512; raise the limit: ulimit -v")
    assert not (tmp_path / "state" / "aggregator.sqlite").exists()
