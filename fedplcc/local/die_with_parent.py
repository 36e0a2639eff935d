"""Start a program that the kernel kills when the parent process ends.

Run as a script by its path, with the parent's process id and the program's command line. Only Linux can do this; elsewhere
the program starts without it.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From linux/prctl.h; the setting outlives execve, so the program needs no change."""


def main() -> None:
    """Ask the kernel for the signal, then replace this program."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the call
            sys.exit(1)
    os.execv(command[0], command)  # nosec B606 # the parent's own command line


if __name__ == "__main__":
    main()
