"""Ctrl-C while the command is still loading ends it with a word and its exit code, not with a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys
from fedplcc.__main__ import main

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

module, *arguments = sys.argv[1:]
sys.argv = ["fedplcc", *arguments]
sys.meta_path.insert(0, Interrupt())
main()
"""
"""The command, with Ctrl-C pressed when a module is about to be loaded."""


def interrupted_at(module: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, module, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("fedplcc.interruption", ("--help",)),
        ("typer", ("--help",)),
        ("fedplcc.shared.errors", ("--help",)),
        ("fedplcc.shared.config.run", ("simulate",)),
        ("numpy", ("simulate",)),
        ("asyncio", ("run", "list")),
        ("pydantic_settings", ("aggregator",)),
    ],
)
def test_ctrl_c_while_loading_is_one_word(module: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = interrupted_at(module, *arguments, cwd=tmp_path)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr in ("fedplcc: interrupted\n", ""), "typer ends silently while it parses"
    assert done.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_without_ctrl_c_nothing_is_hidden(tmp_path: Path) -> None:
    """A bug keeps its traceback, also at the entry point."""
    program = "import sys; sys.modules['typer'] = None; from fedplcc.__main__ import main; main()"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_after_the_end_ctrl_c_is_silent(tmp_path: Path) -> None:
    program = (
        "import atexit, os, signal, sys; sys.argv = ['fedplcc', '--version']\n"
        "from fedplcc.__main__ import main; atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT)); main()"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGINT
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [("simulate",), ("run", "list")])
def test_ctrl_c_that_a_library_swallows_while_loading_still_ends_the_command(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    swallowing = PROGRAM.replace(
        "os.kill(os.getpid(), signal.SIGINT)",
        "\n            try: os.kill(os.getpid(), signal.SIGINT)\n            except KeyboardInterrupt: pass",
    )
    assert swallowing != PROGRAM
    command = [sys.executable, "-c", swallowing, "fedplcc.shared.types", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (130, "fedplcc: interrupted\n")
    assert list(tmp_path.iterdir()) == []
