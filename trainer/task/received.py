"""What came with a task: model, prototypes, server arrays and public images, each fetched at the first look."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from shared.methods.arrays import ArrayGroup
from shared.types import PrototypeSet
from trainer.learning.public_images import PublicImages
from trainer.task.fetched_model import FetchedModel
from trainer.task.inputs import TaskInputs, received_arrays, received_prototypes
from trainer.task.job import Job


class Received:
    """What one client's task came with, for all parts of its method."""

    def __init__(self, job: Job, inputs: TaskInputs) -> None:
        """Prepare; nothing is fetched."""
        self._job, self._inputs = job, inputs

    def first_model(self) -> FetchedModel:
        """Return the model that training starts from where the client keeps none of its own yet.

        It is not kept here: its memory is to be free during the training. See `TaskInputs.first_model`.
        """
        return self._inputs.first_model(self._job)

    @cached_property
    def prototypes(self) -> PrototypeSet:
        """The global prototypes; the empty set in a method without any."""
        has_prototypes = self._job.config.algorithm.has_prototypes
        return received_prototypes(self._job) if has_prototypes else PrototypeSet.empty()

    def arrays(self, dim: int) -> Mapping[str, ArrayGroup]:
        """Return the server arrays by group; none before the first aggregation.

        Args:
            dim: The model's feature size D.
        """
        return received_arrays(self._job, dim)

    @cached_property
    def public(self) -> PublicImages | None:
        """The run's public images at this site; None where it uses none."""
        return self._inputs.public_images(self._job.config)
