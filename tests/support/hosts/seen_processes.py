"""Arguments and environments of all processes that begin within a block, as everybody on the machine may read them."""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

MARK = "FEDPLCC_TEST_SEEN"
"""Variable of the environment by which these processes, and those that they start, are known."""
LOOK_S = 0.005


class SeenProcesses:
    """Looks into /proc again and again, in a thread of its own."""

    def __init__(self) -> None:
        self.environment = {MARK: uuid.uuid4().hex}
        """What a process that is to be seen gets in its environment."""
        self.seen: dict[int, set[bytes]] = {}
        """What was read of each process, by its id: arguments and environment, in all its programs."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        mark = f"{MARK}={self.environment[MARK]}".encode()
        while not self._is_over.wait(LOOK_S):
            for folder in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):  # it has ended meanwhile
                    environment = (folder / "environ").read_bytes()
                    if mark in environment:
                        found = self.seen.setdefault(int(folder.name), set())
                        found |= {(folder / "cmdline").read_bytes(), environment}
