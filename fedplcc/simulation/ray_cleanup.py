"""Script that removes what is left of a Ray cluster when the process that started it was killed.

Its argument is the cluster's folder; its standard input is a pipe that the owner holds open and never writes to. Ray ends
with its owner, but two of its processes first try for a minute to report to processes that are gone. The script finds the
cluster's processes by the files that they have open in its folder; only Linux shows these.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ATTEMPTS, PAUSE_S = 50, 0.1
"""Number of searches for remaining processes, and seconds between them: while they end, Ray may still start one."""


def main() -> None:
    """Wait until the owner has ended; if its folder is still there, kill the cluster's processes and remove it."""
    sys.stdin.buffer.read()
    folder = Path(sys.argv[1]).resolve()
    if not folder.is_dir():
        return
    for _ in range(ATTEMPTS):
        left = list(holders(folder))
        if not left:
            break
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_S)
    shutil.rmtree(folder, ignore_errors=True)


def holders(folder: Path) -> Iterator[int]:
    """Yield the processes that have a file open below a folder."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended, or belongs to another user
            if any(_is_below(folder, descriptor) for descriptor in (process / "fd").iterdir()):
                yield int(process.name)


def _is_below(folder: Path, descriptor: Path) -> bool:
    try:
        return Path(os.readlink(descriptor)).is_relative_to(folder)
    except OSError:
        return False


if __name__ == "__main__":
    main()
