"""Prototypes of a client's training samples under the model that it has trained."""

from __future__ import annotations

from torch import nn

from fedplcc.shared.codes import Code
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange, excess_rows
from fedplcc.shared.methods.prototypes import ClusterConfig, PrototypeConfig
from fedplcc.shared.tensors import blob_ref, prototypes_to_bytes
from fedplcc.shared.types import ClientActivity, FloatArray, IntArray
from fedplcc.trainer.learning.divergence import check_features
from fedplcc.trainer.learning.site_statistics import with_site_statistics
from fedplcc.trainer.task.parts.private_sums import private_report
from fedplcc.trainer.task.withholding import told_prototypes
from fedplcc.trainer.task.work import Work


class TooManyPrototypes(FedplccError):
    """The client's samples give more prototypes than the aggregator takes; the same run will always give as many."""

    code = Code.FAILED_PRECONDITION
    reason = "TOO_MANY_PROTOTYPES"


def summarise(work: Work) -> None:
    """Make the client's set."""
    assert work.trained is not None
    job, config = work.job, work.job.config
    exchange = config.algorithm.part(PrototypeExchange)
    if exchange is None:
        return
    num_classes = len(config.data.classes)
    job.begin(ClientActivity.SUMMARISING)
    with job.timed("summarise_seconds"):
        if work.trained.seen is None:
            features_ND, labels_N = _features(work, work.model)
        else:
            features_ND, labels_N = work.trained.seen
            check_features(features_ND, client_id=job.site.client_id, round=job.task.round)
        release, least = config.release, job.site.policy.thresholds.prototype_images
        if exchange.has_noise and release is not None:  # then no policy has a least size: see _of_thresholds
            report = private_report(work, release, features_ND, labels_N)
        else:
            report = exchange.report(features_ND, labels_N, num_classes, _with_least(config.method, least))
        prototypes = told_prototypes(report.prototypes, least)
    excess = excess_rows(prototypes, num_classes, config.max_prototypes_per_class)
    if excess is not None:
        raise TooManyPrototypes(
            f'the client\'s data give {excess} of an update; set partition = "last" or a larger '
            "min_cluster_size in the run's [method] section"
        )
    vectors = prototypes_to_bytes(prototypes)
    work.sets[blob_ref(exchange.kind, vectors)] = vectors
    work.prototypes = prototypes
    num_withheld = round(float(report.prototypes.weights.sum() - prototypes.weights.sum()))
    work.num_excluded = report.num_excluded + num_withheld + len(job.loaded.train) - len(labels_N)


def _with_least(hyper: MethodConfig, least: int) -> MethodConfig:
    """Return hyper-parameters whose clusters have at least so many samples, where the client makes clusters."""
    if not isinstance(hyper, ClusterConfig) or hyper.min_cluster_size >= least:
        return hyper
    return hyper.model_copy(update={"min_cluster_size": least})


def uses_seen_features(config: RunConfig) -> bool:
    """Whether prototypes are made of the features that training saw, not of a pass after it."""
    return isinstance(config.method, PrototypeConfig) and config.method.proto_pass == "last_epoch"  # nosec B105


def _features(work: Work, model: nn.Module) -> tuple[FloatArray, IntArray]:
    """Return the features and labels that prototypes are made of; the model keeps its bytes."""
    job = work.job
    if job.config.training.prototype_statistics == "trained":
        return work.features(model)
    with with_site_statistics(
        model,
        job.loaded.train,
        job.config,
        should_stop=job.should_stop,
        on_share=lambda share: job.on_activity(ClientActivity.SUMMARISING, share / 2),
    ):
        return work.features(model, begin=0.5)
