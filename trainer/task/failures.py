"""Failures of a client's site, and the sentences about them that leave it.

The text of an error may hold data or names of files where it comes from memory, the model's own code, a file or a library.
Such a text stays in the trainer's log. The aggregator is sent the kind of the error and the line of the model's code.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from fedplcc.shared.codes import Code
from fedplcc.shared.config.tables.model import ModelSection
from fedplcc.shared.errors import FedplccError, InvalidData, InvalidModel
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.task.withholding import KEPT

_CPU_ALLOCATOR = ("DefaultCPUAllocator", "alloc_cpu")
"""Marks of torch's error for host memory, which is a plain RuntimeError."""


class OutOfMemory(FedplccError):
    """A task needs more memory than the host or the accelerator has."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "OUT_OF_MEMORY"


class ModelFailed(FedplccError):
    """The code behind `package.module:factory` raised."""

    code = Code.FAILED_PRECONDITION
    reason = "MODEL_FAILED"


_STAYS = "its sentence stays at this site"


@contextmanager
def site_failures(model: ModelSection, *, withholds: bool = False) -> Iterator[None]:
    """Within the block, turn errors of memory and of the model's own code into errors of this module; others pass unchanged.

    Args:
        withholds: Whether the sentence of no error leaves the site.

    Raises:
        OutOfMemory, ModelFailed: The original error is their cause.
    """
    try:
        with _mapped(model):
            yield
    except FedplccError as error:
        if withholds:
            error.add_note(_STAYS)
        raise


@contextmanager
def _mapped(model: ModelSection) -> Iterator[None]:
    try:
        yield
    except Cancelled:
        raise
    except InvalidModel as error:
        # A model's factory is foreign code too; its errors arrive as InvalidModel, whatever they were.
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


def sentence_for_others(error: FedplccError) -> str:
    """Return the sentence on a failed task that may leave the site: it names no file and quotes no other error.

    The whole sentence is `error.detail`, which the trainer's log has.
    """
    cause = error.__cause__
    if _STAYS in getattr(error, "__notes__", ()):
        return KEPT
    if isinstance(error, InvalidData):
        return "this client's data cannot be read, or do not fit the run; the log of its trainer says why"
    if isinstance(error, InvalidModel) and cause is not None:
        return f"the run's model cannot be made at this site ({type(cause).__name__}); the log of its trainer says why"
    return error.detail


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is for lack of memory: of Python or numpy, or of torch on an accelerator or the host."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(mark in str(error) for mark in _CPU_ALLOCATOR)


def _place_in_model(error: BaseException, model: ModelSection) -> str | None:
    """Return module and line of the innermost frame in the factory's package; None where there is none."""
    if not model.is_factory:
        return None
    package = model.name.partition(":")[0].partition(".")[0]
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] == package:
            place = f"{module}:{line}"
    return place
