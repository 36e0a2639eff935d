"""What is wrong at a client's site where a task ends in an error that is none of ours: its memory, or the model's own code.

The text of such an error may hold data, so it stays in this trainer's log; the aggregator hears the kind of the error and
the line of the model's code that it came through.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath

from shared.errors import Code, FedplccError, InvalidModel
from shared.run_config import ModelSection
from trainer.cancellation import Cancelled

_CPU_ALLOCATOR = ("DefaultCPUAllocator", "alloc_cpu")
"""What torch says of host memory that it did not get; it raises a plain RuntimeError."""


class OutOfMemory(FedplccError):
    """A task needs more memory than there is, of the host or of the accelerator."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "OUT_OF_MEMORY"


class ModelFailed(FedplccError):
    """The code behind `package.module:factory` raised."""

    code = Code.FAILED_PRECONDITION
    reason = "MODEL_FAILED"


@contextmanager
def site_failures(model: ModelSection) -> Iterator[None]:
    """Within the block, errors of memory and of the model's own code become ours; any other stays as it is.

    Raises:
        OutOfMemory, ModelFailed: In place of what was raised, which is their cause.
    """
    try:
        yield
    except Cancelled:
        raise
    except InvalidModel as error:
        # Making a model is somebody's code too, and says whatever it met as a wrong model.
        if error.__cause__ is not None and is_out_of_memory(error.__cause__):
            raise OutOfMemory("there is not enough memory for the run's model") from error
        raise
    except FedplccError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise OutOfMemory("there is not enough memory for this task") from error
        place = _place_in_model(error, model)
        if place is None:
            raise
        raise ModelFailed(f"model {model.name!r} raised {type(error).__name__} at {place}") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there was no memory: Python's and numpy's, torch's of an accelerator or of the host."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(mark in str(error) for mark in _CPU_ALLOCATOR)


def _place_in_model(error: BaseException, model: ModelSection) -> str | None:
    """File and line of the innermost frame in the factory's package; None where there is none."""
    if not model.is_factory:
        return None
    package = model.name.partition(":")[0].partition(".")[0]
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package:
            place = f"{PurePath(frame.f_code.co_filename).name}:{line}"
    return place
