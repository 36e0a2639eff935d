"""Ends what is left of a Ray cluster of our own whose owner was killed, and removes its folder.

Run as a script by its path, with the cluster's folder; standard input is a pipe that its owner holds and never writes to.
Ray ends with its owner, but two of its processes first try for a minute to report that to those that are gone. Which
processes are the cluster's is told by the files that they have open in its folder; only Linux tells.
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
"""How often it is looked for processes that are left: while they end, Ray may still start one."""


def main() -> None:
    """Wait for the owner's end; where it has left its folder, it had no time to put things in order."""
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
    """Processes that have a file open below a folder."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended, or is somebody else's
            if any(_is_below(folder, descriptor) for descriptor in (process / "fd").iterdir()):
                yield int(process.name)


def _is_below(folder: Path, descriptor: Path) -> bool:
    try:
        return Path(os.readlink(descriptor)).is_relative_to(folder)
    except OSError:
        return False


if __name__ == "__main__":
    main()
