"""A release of class sums or means: charged to the client's budget, then made, with the same bytes when it is made again."""

from __future__ import annotations

from fedplcc.shared.config.claims import client_refusal
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.methods.arrays import ArrayGroup
from fedplcc.shared.methods.parts.private_sums import SUMS, PrivateSums, private_means, quanta_of
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange, Report
from fedplcc.shared.privacy.class_sums import Release, Sums, class_sums, noise_facts, release_name, released
from fedplcc.shared.types import FloatArray, IntArray, RunSpec
from fedplcc.trainer.data.record import TRAIN
from fedplcc.trainer.privacy.budget import Budget, Charge, ClaimNotKept
from fedplcc.trainer.task.site import ClientSite
from fedplcc.trainer.task.work import Work


def check_release(site: ClientSite, config: RunConfig, run: RunSpec, round: int) -> None:
    """Refuse a run that claims more than the site holds, or a release that its budget has no room for.

    Nothing has been read for the run then.

    Raises:
        ClaimNotKept: The site tells class counts, chooses images by others, or has the backbone from a run.
        BudgetSpent: There is no room.
        StoreUnavailable: The budget cannot be read.
    """
    if config.withholds:
        refused = client_refusal(
            samples_per_class=site.samples_per_class,
            fraction=site.fraction,
            validation_per_class=site.validation_per_class,
            data=site.data,
        )
        if refused is None and site.tells_counts:
            refused = (
                'privacy.claim = "site" covers all that leaves this client, which told its class counts when it joined; '
                "start it with --privacy-epsilon"
            )
        if refused is None and (runs := site.consent.weights.runs_of(config.model.weights_sha256)):
            refused = (
                f'privacy.claim = "site" is about all that is made of training images, and run {runs[0]} trained the '
                f"weights {config.model.weights!r}, maybe on these images: features under them move with an image by "
                "more than the clip; begin with weights that no run trained"
            )
        if refused is not None:
            raise ClaimNotKept(f"client {site.client_id}: {refused}")
    release = config.release
    if release is not None:
        exchange = config.algorithm.part(PrototypeExchange)
        if exchange is not None and round > config.run.rounds:
            raise ClaimNotKept(
                f"round {round} would be a release more than the {config.run.rounds} that the run's epsilon is for; begin a "
                "new run from its model"
            )
        at = config.privacy.release_round(max(round, 1), config.run.rounds)
        _budget(site).check(release.mu, run.config_hash, at)


def private_groups(work: Work, features_ND: FloatArray, labels_N: IntArray) -> dict[str, ArrayGroup]:
    """Return the client's release for the round; none in a run without noise.

    Raises:
        BudgetSpent: There is no room for it.
        ClaimNotKept: The run has all its releases.
        DiskFull, StoreUnavailable: It cannot be charged.
    """
    config = work.job.config
    release = config.release
    if config.algorithm.part(PrivateSums) is None or release is None:
        return {}
    made = _released(work, release, features_ND, labels_N, centres=True)
    return {SUMS: quanta_of(made.sums_MD, made.counts_M)}


def private_report(work: Work, release: Release, features_ND: FloatArray, labels_N: IntArray) -> Report:
    """Return the class means of the client's release for the round.

    Raises:
        BudgetSpent: There is no room for it.
        ClaimNotKept: The run has all its releases.
        DiskFull, StoreUnavailable: It cannot be charged.
    """
    made = _released(work, release, features_ND, labels_N, centres=False)
    return Report(prototypes=private_means(made.sums_MD, made.counts_M, release.noise, len(labels_N)))


def _released(work: Work, release: Release, features_ND: FloatArray, labels_N: IntArray, *, centres: bool) -> Sums:
    """Return a release, after it was charged."""
    job, config = work.job, work.job.config
    loaded, run = job.loaded, job.run
    sums = class_sums(
        features_ND,
        labels_N,
        len(config.data.classes),
        release.clip,
        digests=[value.partition(" ")[2] for value in loaded.record.sides[TRAIN].values()],
        groups=loaded.groups or None,
        centres=centres,
    )
    at = config.privacy.release_round(job.task.round, config.run.rounds)
    budget = _budget(job.site)
    key, facts = budget.key(), noise_facts(job.site.client_id, run.config_hash, at)
    budget.charge(
        Charge(
            name=release_name(sums, release, key, facts),
            mu=release.mu,
            clip=release.clip,
            noise=release.noise,
            run_hash=run.config_hash,
            run_id=run.run_id,
            round=at,
            claim=config.privacy.claim,
        ),
        most_of_run=config.privacy.num_releases(config.run.rounds),
    )
    if job.metrics is not None:
        job.metrics.epsilon_spent.set(budget.spent_epsilon)
    return released(sums, release, key, facts)


def _budget(site: ClientSite) -> Budget:
    if site.budget is None:
        raise ClaimNotKept(f"client {site.client_id} has no state directory to keep what its releases cost")
    return site.budget
