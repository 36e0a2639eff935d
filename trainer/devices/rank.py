"""Program of a further device's process: does the work that comes on stdin, and ends when stdin does.

Its arguments are its rank, the number of devices, its device and the folder where the processes meet.
"""

from __future__ import annotations

import os
import pickle  # nosec B403 # what comes is of the trainer that started this process
import shutil
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path

import torch

from fedplcc.shared.errors import FedplccError
from fedplcc.shared.process import log
from fedplcc.trainer.devices.group import joined
from fedplcc.trainer.devices.processes import END_S, READY


def main() -> None:
    """Do the work, then wait for the end: the others may still read what this process sent."""
    rank, size, device, folder = int(sys.argv[1]), int(sys.argv[2]), torch.device(sys.argv[3]), Path(sys.argv[4])
    log.set_up("warning")
    told = os.dup(1)
    os.dup2(2, 1)  # what a model prints is no message
    ending = threading.Thread(target=_end_with_trainer, args=(folder,), daemon=True)
    try:
        work = pickle.load(sys.stdin.buffer)  # nosec B301 # of the trainer that started this process
        ending.start()
        os.write(told, READY)
        with joined(rank, size, device, folder) as group:
            work(group)
            ending.join()
    except BaseException as error:
        if isinstance(error, FedplccError) and ending.ident is not None:
            ending.join(END_S)  # the first device meets the same, names it and ends this process
        else:
            traceback.print_exc()
        with suppress(OSError):  # the trainer may be gone
            os.write(told, b"\n" + type(error).__name__.encode("ascii", "replace"))
        _end(folder)


def _end_with_trainer(folder: Path) -> None:
    sys.stdin.buffer.read()
    _end(folder)


def _end(folder: Path) -> None:
    """End this process; without it the training is over, and nobody meets in the folder any more."""
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main()
