"""`fedplcc run watch` in a real terminal, with a real federation behind a real gateway."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from typing import Self

import pytest

from tests.support import ROOT
from tests.support.federation.processes import eventually
from tests.support.federation.served_gateway import ServedGateway

SHELL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "fedplcc", *sys.argv[1:]])
"""
"""Makes the terminal that of the command, so that Ctrl-C reaches it as a signal."""
WAIT_S = 60.0


class Terminal:
    """A pseudo-terminal and the command that runs in it; use it as a context manager."""

    def __init__(self, *command: str, environment: Mapping[str, str], size: tuple[int, int]) -> None:
        self.master, self._slave = os.openpty()
        self.output = b""
        self._command, self._environment = command, environment
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.before = termios.tcgetattr(self._slave)

    def __enter__(self) -> Self:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SHELL, *self._command],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**inherited, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "TZ": "UTC", **self._environment},
        )
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(WAIT_S)
        os.close(self.master)
        os.close(self._slave)

    @property
    def attributes(self) -> list[object]:
        """What the terminal does with characters."""
        return termios.tcgetattr(self._slave)

    @property
    def text(self) -> str:
        """What was written, without colours and moves."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.output.decode(errors="replace"))

    def read(self) -> None:
        """Take what has been written."""
        while select.select([self.master], [], [], 0)[0]:
            try:
                self.output += os.read(self.master, 1 << 16)
            except OSError:
                return  # nobody has the terminal open any more

    def wait_for(self, *parts: str) -> None:
        """Wait until all of this has been written."""

        def has_written() -> bool:
            self.read()
            assert self._process.poll() is None, self.text
            return all(part in self.text for part in parts)

        eventually(has_written, f"the terminal shows {parts}", WAIT_S)

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.master, keys)

    def exit_code(self) -> int:
        """Wait for the command's end; returns how it ended."""

        def ended() -> bool:
            self.read()
            return self._process.poll() is not None

        eventually(ended, "the command ends", WAIT_S)
        self.read()
        return int(self._process.returncode)


@pytest.fixture
def run_id(served: ServedGateway) -> str:
    """A run of ten rounds, of which one has committed."""
    run_id = served.create(run={"method": "fedplcc", "rounds": 10})
    served.federation.join()
    stepped_to(served, run_id, 2)
    return run_id


def stepped_to(served: ServedGateway, run_id: str, number: int) -> None:
    """Let the clients work until a round has opened."""
    while served.federation.coordinator.get_run(run_id).round_number < number:
        served.federation.step()


def test_a_run_is_watched_and_left_with_ctrl_c_and_the_terminal_is_as_it_was(
    served: ServedGateway, run_id: str
) -> None:
    # Some shells export the size that the terminal has when they start.
    environment = {"LANG": "C.UTF-8", "COLUMNS": "60", "LINES": "24"}
    with Terminal("run", "watch", run_id, "--gateway", served.url, environment=environment, size=(60, 24)) as terminal:
        terminal.wait_for(run_id, "mean", "worst", "round 2: training")
        stepped_to(served, run_id, 4)
        terminal.wait_for("round 4: training")
        assert max(len(line) for line in terminal.text.splitlines() if "%" in line) <= 60
        terminal.type(b"\x03")
        assert terminal.exit_code() == 130
        assert terminal.attributes == terminal.before
        assert f"run {run_id} goes on" in terminal.text
        assert f"watch it again with 'fedplcc run watch {run_id} --gateway {served.url}'" in terminal.text
        assert "Traceback" not in terminal.text
    assert served.federation.coordinator.get_run(run_id).status == "running"
