"""A client's training in a round, as the parts of its method see it: what came, and what the update has so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from torch import nn

from fedplcc.shared.methods.arrays import ArrayGroup, ClientState
from fedplcc.shared.tensors import blob_ref, to_bytes
from fedplcc.shared.types import BlobRef, ClientActivity, FloatArray, IntArray, PrototypeSet
from fedplcc.trainer.learning.divergence import check_features
from fedplcc.trainer.learning.evaluation import collect_features
from fedplcc.trainer.learning.public_images import PublicImages
from fedplcc.trainer.learning.training import LocalTraining, RoundInputs
from fedplcc.trainer.models import FeatureModel
from fedplcc.trainer.task.inputs import model_with
from fedplcc.trainer.task.job import Job


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """A training in progress; the parts of the method change it.

    Attributes:
        model: The model that is trained, in place.
        inputs: Inputs of the training, of what came with the task. Its `received` is None while the model is the round's.
        public: The run's public images at this site; None where it uses none.
        trained: What the training came to; None before it.
        client_state: The state to keep if the update is committed; None where there is none.
        uploads: Bytes of the groups that the update has beside its model.
        losses: Means of the loss terms of parts, by name.
        prototypes: The client's prototypes; empty in a method without any.
        num_excluded: Samples that no prototype stands for.
    """

    job: Job
    model: nn.Module
    inputs: RoundInputs
    public: PublicImages | None = None
    trained: LocalTraining | None = None
    client_state: ClientState | None = None
    uploads: dict[BlobRef, bytes] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)
    int_lists: dict[str, tuple[int, ...]] = field(default_factory=dict)
    sets: dict[BlobRef, bytes] = field(default_factory=dict)
    prototypes: PrototypeSet = field(default_factory=PrototypeSet.empty)
    num_excluded: int = 0

    @property
    def dim(self) -> int:
        """The model's feature size D."""
        return cast(FeatureModel, self.model).feature_dim

    def received_model(self) -> nn.Module:
        """Return the round's model; asked before the training."""
        return self.model if self.inputs.received is None else model_with(self.job, self.inputs.received)

    def upload(self, groups: Mapping[str, ArrayGroup]) -> None:
        """Add groups to the update."""
        for name in sorted(groups):
            data = to_bytes(groups[name])
            self.uploads[blob_ref(name, data)] = data

    def features(self, model: nn.Module, *, begin: float = 0.0) -> tuple[FloatArray, IntArray]:
        """Return features `[N, D]` and labels `[N]` of the client's training samples; leaves the model in evaluation mode.

        Args:
            begin: Fraction of the activity that is done already.

        Raises:
            TrainingDiverged: A feature is not finite.
        """
        job = self.job
        features_ND, labels_N = collect_features(
            model,
            job.loaded.train,
            job.config,
            should_stop=job.should_stop,
            on_share=lambda share: job.on_activity(ClientActivity.SUMMARISING, begin + (1 - begin) * share),
        )
        check_features(features_ND, client_id=job.site.client_id, round=job.task.round)
        return features_ND, labels_N
