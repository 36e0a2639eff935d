"""The run's first model, made at this site too and compared: it is a function of specification and seed, whoever sent it.

It is compared where it is used, before the first step of round 1, and not made by a second site in round 0: a third would be
needed where two differ, and any of them could hold that phase. Digests of statistics would let a back door pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fedplcc.shared.errors import FirstModelDiffers
from fedplcc.shared.types import TaskKind
from fedplcc.trainer.models import state_arrays
from fedplcc.trainer.task.job import Job
from fedplcc.trainer.task.models.mapped_head import new_rows

TOLERANCE = 1e-4
"""Largest difference from the first model as it is made here, as a share of a tensor's largest value: other processors and
versions of torch round other last bits."""

Arrays = Mapping[str, npt.NDArray[Any]]


def begins_with_first_model(job: Job) -> bool:
    """Whether a task is trained from the run's first model."""
    return job.task.kind is TaskKind.TRAIN and job.task.round == 1 and job.site.model is None


def comes_with_first_model(job: Job) -> bool:
    """Whether a task's model is the run's first one: in each round, where no client sends a model."""
    shares_model = job.config.algorithm.shares_model(job.config.method)
    is_first = job.task.round == 1 or not shares_model
    return is_first and job.task.kind is TaskKind.TRAIN and job.site.model is None


def check_first_model(job: Job, received: Arrays) -> None:
    """Check that the run's first model is the one that this site makes of specification and seed.

    Of a model that a person chose, these are the rows of new classes alone.

    Raises:
        FirstModelDiffers: It is another one, by more than `TOLERANCE`.
        FedplccError: The model cannot be made here.
    """
    config, classes = job.config, job.config.initial_class_map
    if classes is None and config.run.initial_model is not None:
        return
    with job.timed("first_model_seconds"):
        if classes is None:
            found, made = received, state_arrays(job.site.new_model(config, with_weights=True))
        else:
            model = job.site.new_model(config, with_weights=False)
            found, made = new_rows(model, received, classes, config.run.seed)
    differs = difference(found, made)
    if differs is not None:
        raise FirstModelDiffers(
            f"the run's first model is not the one that this site makes of specification and seed: {differs}"
        )


def difference(found: Arrays, made: Arrays) -> str | None:
    """Return in words how a model differs from the one that was made here; None where it does not, but for last bits."""
    foreign = sorted(found.keys() ^ made.keys())
    if foreign:
        return f"tensor {foreign[0]!r} is in one of the two alone"
    for name, mine in made.items():
        theirs = found[name]
        if (theirs.shape, theirs.dtype) != (mine.shape, mine.dtype):
            return f"tensor {name!r} is {theirs.dtype}{list(theirs.shape)}, and here {mine.dtype}{list(mine.shape)}"
        if np.array_equal(theirs, mine):
            continue
        largest = float(np.abs(mine).max())
        apart = float(np.abs(np.subtract(theirs, mine, dtype=np.float64)).max())
        if not np.issubdtype(mine.dtype, np.floating) or not apart <= TOLERANCE * largest:
            return f"tensor {name!r} differs by up to {apart:.3g}, and its largest value here is {largest:.3g}"
    return None
