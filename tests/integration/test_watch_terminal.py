"""`fedplcc run watch` in a real terminal, with a real federation behind a real gateway."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.support import ROOT
from tests.support.federation.processes import eventually
from tests.support.federation.served_gateway import ServedGateway

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"
SHELL = """
import fcntl, os, signal, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if not child:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
status = 0x7F
while os.WIFSTOPPED(status):
    status = os.waitpid(child, os.WUNTRACED)[1]
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""What a shell does for a command in the foreground: what is typed reaches it as signals, and Ctrl-Z can stop it."""
WAIT_S = 20.0


class Terminal:
    """A pseudo-terminal and the command that runs in it; use it as a context manager."""

    def __init__(self, *command: str, environment: Mapping[str, str], size: tuple[int, int] = (80, 24)) -> None:
        self.master, self._slave = os.openpty()
        self.output = b""
        self._command, self._environment = command, environment
        self._set_size(size)
        self.before = termios.tcgetattr(self._slave)

    def __enter__(self) -> Self:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SHELL, "-m", "fedplcc", *self._command],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**inherited, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "TZ": "UTC", **self._environment},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
    def last_screen(self) -> str:
        """What was drawn last, without colours."""
        drawn = self.output.rpartition(b"\x1b[H")[2].decode(errors="replace")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)

    def read(self) -> None:
        """Take what has been written."""
        while select.select([self.master], [], [], 0)[0]:
            try:
                self.output += os.read(self.master, 1 << 16)
            except OSError:
                return  # nobody has the terminal open any more

    def has_written(self, text: bytes, *, times: int) -> bool:
        """Whether this has been written so often by now."""
        self.read()
        return self.output.count(text) == times

    def shows(self, *parts: str) -> bool:
        """Whether all of this is on the screen now."""
        self.read()
        assert self._process.poll() is None, self.output.decode(errors="replace")
        return all(part in self.last_screen for part in parts)

    def wait_for(self, *parts: str) -> str:
        """Wait until all of this is on the screen; returns it."""
        try:
            eventually(lambda: self.shows(*parts), f"the screen shows {parts}", WAIT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}, but:\n{self.last_screen}") from None
        return self.last_screen

    def resize(self, width: int, height: int) -> None:
        """As dragging the corner of its window does."""
        self._set_size((width, height))

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

    @property
    def is_stopped(self) -> bool:
        """Whether the command was stopped, as by Ctrl-Z."""
        return Path(f"/proc/{self._command_id}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def go_on(self) -> None:
        """As the shell's `fg`."""
        os.kill(self._command_id, signal.SIGCONT)

    @property
    def _command_id(self) -> int:
        return os.tcgetpgrp(self.master)

    def _set_size(self, size: tuple[int, int]) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedGateway]:
    with ServedGateway(tmp_path) as gateway:
        yield gateway


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


def watching(served: ServedGateway, run_id: str, *flags: str, **environment: str) -> Terminal:
    # Some shells export the size that the terminal has when they start; resizing does not change what they said.
    environment = {"LANG": "C.UTF-8", "COLUMNS": "80", "LINES": "24", **environment}
    return Terminal("run", "watch", run_id, "--gateway", served.url, *flags, environment=environment)


def test_a_run_is_watched_resized_and_left_with_ctrl_c_and_the_terminal_is_as_it_was(
    served: ServedGateway, run_id: str
) -> None:
    with watching(served, run_id) as terminal:
        first = terminal.wait_for(run_id, "1 of 10", "ann-domain", "bob-domain", "worst", "prototypes", "clients")
        assert "━" in first
        assert terminal.output.count(ENTER) == 1
        assert HIDE_CURSOR in terminal.output
        assert terminal.attributes != terminal.before, "what is typed is not shown"
        stepped_to(served, run_id, 4)
        terminal.wait_for("3 of 10", "rounds 1 to 3")
        terminal.resize(40, 20)
        narrow = terminal.wait_for("3 of 10", "round 3")
        assert max(map(len, narrow.splitlines())) <= 40
        terminal.type(b"typed by mistake\n\x03")
        assert terminal.exit_code() == 130
        assert terminal.attributes == terminal.before
        assert terminal.output.count(LEAVE) == 1
        after = terminal.output.rpartition(LEAVE)[2]
        assert SHOW_CURSOR in terminal.output.rpartition(HIDE_CURSOR)[2]
        text = after.decode()
        assert f"run {run_id} goes on" in text
        assert f"watch it again with 'fedplcc run watch {run_id} --gateway {served.url}'" in text
        assert "Traceback" not in text
        assert b"typed by mistake" not in terminal.output
        heading, *rounds = (line.split() for line in text.splitlines()[-5:-1])
        assert "round" in heading
        assert [line[0] for line in rounds] == ["1", "2", "3"]
    assert served.federation.coordinator.get_run(run_id).status == "running"


def test_an_aggregator_that_goes_away_is_said_and_the_end_of_the_run_ends_watching(
    served: ServedGateway, run_id: str
) -> None:
    with watching(served, run_id, LANG="C", NO_COLOR="1") as terminal:
        assert terminal.wait_for("1 of 10", "connected to").isascii()
        assert b"\x1b[3" not in terminal.output, "NO_COLOR is respected"
        served.stop_aggregator()
        terminal.wait_for("no aggregator answers", "not up to date")
        served.start_aggregator()
        terminal.wait_for("connected to")
        terminal.type(b"\x1a")
        eventually(lambda: terminal.is_stopped, "the command is stopped", WAIT_S)
        assert terminal.attributes == terminal.before, "the shell has its terminal back"
        terminal.read()
        assert terminal.output.count(LEAVE) == 1
        terminal.go_on()
        eventually(lambda: terminal.has_written(ENTER, times=2), "it shows again", WAIT_S)
        served.federation.run_to_end(run_id)
        assert terminal.exit_code() == 0
        assert terminal.attributes == terminal.before
        assert f"run {run_id} has completed" in terminal.output.rpartition(LEAVE)[2].decode()


def test_lines_can_be_had_on_a_terminal_too(served: ServedGateway, run_id: str) -> None:
    served.federation.run_to_end(run_id)
    with watching(served, run_id, "--lines") as terminal:
        assert terminal.exit_code() == 0
        assert ENTER not in terminal.output
        assert f"run {run_id} has completed" in terminal.output.decode()
