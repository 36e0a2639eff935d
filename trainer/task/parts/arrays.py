"""Groups that an update has beside its model, made of the client's samples under the received model."""

from __future__ import annotations

from dataclasses import replace

from fedplcc.shared.methods.parts.part import BeforeTraining
from fedplcc.shared.scoring.scores import score_is_balanced
from fedplcc.shared.types import ClientActivity
from fedplcc.trainer.models import head_names, state_arrays
from fedplcc.trainer.reproducibility.randomness import derive_seed
from fedplcc.trainer.task.parts.private_sums import private_groups
from fedplcc.trainer.task.work import Work


def make_groups(work: Work) -> None:
    """Make what the method's parts declare as uploads."""
    job, num_classes = work.job, len(work.job.config.data.classes)
    method, hyper = job.config.algorithm, job.config.method
    if not method.uploads(hyper, num_classes, work.dim):
        return
    model = work.received_model()
    job.begin(ClientActivity.SUMMARISING)
    with job.timed("summarise_seconds"):
        features_ND, labels_N = work.features(model)
        arrays = state_arrays(model)
        before = BeforeTraining(
            features_ND=features_ND,
            labels_N=labels_N,
            num_classes=num_classes,
            head={name: arrays[name] for name in head_names(model)},
            received=work.inputs.arrays,
            state=work.inputs.client_state,
            round=job.task.round,
            seed=derive_seed("samples", job.config.run.seed, job.site.client_id),
            is_balanced=score_is_balanced(job.config.evaluation.score, job.loaded.class_counts),
            groups=job.loaded.groups,
        )
        groups = {**method.before_training(before, hyper), **private_groups(work, features_ND, labels_N)}
        work.inputs = replace(work.inputs, made=method.kept_before(before, groups, hyper))
    work.upload(groups)
