"""Arguments and environments of all processes that begin within a block, as everybody on the machine may read them."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

LOOK_S = 0.05
"""Much less than the start of a Python takes."""


class SeenProcesses:
    """Looks into Linux's /proc again and again, in a thread of its own."""

    def __init__(self) -> None:
        self.seen: dict[int, set[bytes]] = {}
        """What was read of each process below this one, by its id: arguments and environment, of all its programs."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        others: set[int] = set()
        """Processes that others have started; looked at once."""
        while not self._is_over.wait(LOOK_S):
            present = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
            others &= present
            for pid in sorted(present - others):
                with suppress(OSError):  # it has ended meanwhile
                    if pid not in self.seen and _parent(pid) not in {os.getpid(), *self.seen}:
                        others.add(pid)
                        continue
                    found = self.seen.setdefault(pid, set())
                    found |= {Path(f"/proc/{pid}/{file}").read_bytes() for file in ("cmdline", "environ")}


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
