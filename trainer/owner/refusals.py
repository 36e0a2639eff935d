"""What a site's policy forbids of a run, by the run's configuration alone: nothing has been read for the run then. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from fedplcc.shared.codes import Code
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.tables.privacy import Claim
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.methods.heads import classsums, creff
from fedplcc.shared.methods.parts.private_sums import PrivateSums
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange
from fedplcc.shared.privacy.guarantee import composed, epsilon_of, mu_of
from fedplcc.shared.types import Task
from fedplcc.trainer.owner.policy import Policy

CLAIMS: Sequence[str] = get_args(Claim)
"""Claims, from the least to the greatest."""
TELLS: Mapping[str, frozenset[str]] = {
    classsums.SUMS: frozenset({"class_counts"}),
    classsums.SCORES: frozenset({"class_counts", "scores"}),
    creff.GRADIENTS: frozenset({"class_counts"}),
}
"""Keys of `[leaves]` that a group beside the model tells of, by its name."""
ALL = frozenset({"models", "class_counts", "losses", "scores"})
"""Those that a group which is not in the table may tell of: that of a method of another package."""
MAX_LISTED = 5
"""Most entries of a policy's list in a sentence."""
MAX_NAME = 80
"""Most characters of a name in a sentence."""
MAX_SAID = 5
"""Most sentences in one error."""
_SLACK = 1 + 1e-9
"""Share of mu by which rounding may exceed a limit."""


class PolicyForbids(FedplccError):
    """The policy of the site's owner forbids the run; nothing was read for it, and nothing sent but this refusal."""

    code = Code.FAILED_PRECONDITION
    reason = "POLICY_FORBIDS"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A key of the policy that forbids a run.

    Attributes:
        asks: What the run has, in words: its key and value.
    """

    key: str
    allows: str
    asks: str

    @property
    def sentence(self) -> str:
        """Key, the policy's value and the run's."""
        return f"{self.key} = {self.allows}, and {self.asks}"


def check_policy(policy: Policy, config: RunConfig, task: Task) -> None:
    """Refuse a task of a run that the policy forbids.

    Raises:
        PolicyForbids: With a sentence for each of the first keys.
    """
    found = list(refusals(policy, config, rounds=max(task.total_rounds, task.round)))
    if found:
        more = "" if len(found) <= MAX_SAID else f"; and {len(found) - MAX_SAID} more"
        said = "; ".join(each.sentence for each in found[:MAX_SAID])
        raise PolicyForbids(
            f"the policy of this site forbids the run: {said}{more}; nothing was read for it",
            key=found[0].key,
            allows=found[0].allows,
            asks=found[0].asks,
        )


def refusals(policy: Policy, config: RunConfig, *, rounds: int = 0) -> Iterator[Refusal]:
    """Yield what a policy forbids of a run.

    Args:
        rounds: The run's rounds as they are now, where it has been prolonged.
    """
    yield from _of_runs(policy, config, rounds)
    yield from _of_thresholds(policy, config)
    yield from _of_privacy(policy, config)
    yield from _of_what_leaves(policy, config)


def least_budget(policy: Policy, epsilon: float | None, delta: float) -> tuple[float | None, float]:
    """Return the smaller of two limits on all releases: the policy's, and that of the settings; both may be None."""
    limits = policy.privacy
    if limits.epsilon is None:
        return epsilon, delta
    if epsilon is not None and mu_of(epsilon, delta) < mu_of(limits.epsilon, limits.delta):
        return epsilon, delta
    return limits.epsilon, limits.delta


def _of_runs(policy: Policy, config: RunConfig, rounds: int) -> Iterator[Refusal]:
    limits, weights = policy.runs, config.model.weights_sha256
    named: list[tuple[str, Sequence[str] | None, str, str | None]] = [
        ("methods", limits.methods, "run.method", config.run.method),
        ("models", limits.models, "model.name", config.model.name),
        ("backbones", limits.backbones, "model.weights_sha256", weights),
    ]
    for key, allowed, of_run, name in named:
        if allowed is not None and name is not None and name not in allowed:
            yield Refusal(f"runs.{key}", _list(allowed), f"the run has {of_run} = {_value(name)}")
    most, asked = limits.most_rounds, max(config.run.rounds, rounds)
    if most is not None and asked > most:
        yield Refusal("runs.most_rounds", str(most), f"the run has {asked} rounds (run.rounds)")
    most, size = limits.most_image_size, config.data.image_size
    if most is not None and size > most:
        yield Refusal("runs.most_image_size", str(most), f"the run has data.image_size = {size}")
    yield from _of_length(policy, config)


def _of_length(policy: Policy, config: RunConfig) -> Iterator[Refusal]:
    """Yield what is forbidden of the length of a round's training, in the two ways to count it."""
    limits, training = policy.runs, config.training
    phases = config.algorithm.phases(config.method)
    by_run = sum(phase.epochs is None for phase in phases)
    epochs = sum(phase.epochs or 0 for phase in phases) + by_run * (training.local_epochs or 0)
    steps = by_run * (training.local_steps or 0)
    for key, most, asked, what, other in (
        ("most_local_steps", limits.most_local_steps, steps, ("mini-batch", "mini-batches"), limits.most_local_epochs),
        ("most_local_epochs", limits.most_local_epochs, epochs, ("pass", "passes"), limits.most_local_steps),
    ):
        has = f"the run trains for {asked} {what[asked != 1]} a round"
        if most is not None and asked > most:
            yield Refusal(f"runs.{key}", str(most), has)
        elif most is None and asked and other is not None:
            given = "most_local_epochs" if key == "most_local_steps" else "most_local_steps"
            yield Refusal(f"runs.{given}", str(other), f"{has}, which {given} does not count: runs.{key} does")


def _of_thresholds(policy: Policy, config: RunConfig) -> Iterator[Refusal]:
    least, exchange = policy.thresholds, config.algorithm.part(PrototypeExchange)
    if least.class_images > 1 and config.release is not None:
        yield Refusal(
            "thresholds.class_images",
            str(least.class_images),
            f"the run has privacy.clip = {config.privacy.clip:g}: which classes there are would show beside the noise",
        )
    if least.prototype_images > 1 and exchange is not None and not exchange.weights_are_counts:
        yield Refusal(
            "thresholds.prototype_images",
            str(least.prototype_images),
            f"the run has run.method = {_value(config.run.method)}, whose prototypes do not say what they stand for",
        )


def _of_privacy(policy: Policy, config: RunConfig) -> Iterator[Refusal]:
    limits, claim = policy.privacy, config.privacy.claim
    if CLAIMS.index(claim) < CLAIMS.index(limits.claim):
        yield Refusal("privacy.claim", _value(limits.claim), f"the run has privacy.claim = {_value(claim)}")
    release = config.release
    if release is None or limits.epsilon is None:
        return
    mu = composed([release.mu] * config.privacy.num_releases(config.run.rounds))
    if mu > mu_of(limits.epsilon, limits.delta) * _SLACK:
        yield Refusal(
            "privacy.epsilon",
            f"{limits.epsilon:g}",
            f"the run's releases come to epsilon {epsilon_of(limits.delta, mu):.3g} (delta {limits.delta:g})",
        )


def _of_what_leaves(policy: Policy, config: RunConfig) -> Iterator[Refusal]:
    """Yield what the run needs of a client that the policy keeps at the site; what it can do without is left out."""
    method, leaves = config.run.method, policy.leaves
    sends = f"the run has run.method = {_value(method)}, whose clients send"
    told = frozenset(what for name in _groups(config) for what in TELLS.get(name, ALL))
    if not leaves.models and (config.algorithm.shares_model(config.method) or "models" in told):
        yield Refusal("leaves.models", "false", f"{sends} trained weights")
    if not leaves.losses and "losses" in told:
        yield Refusal("leaves.losses", "false", f"{sends} what may tell of losses")
    if not leaves.scores and "scores" in told:
        yield Refusal("leaves.scores", "false", f"{sends} how many of their training images are found")
    if not leaves.class_counts:
        if config.algorithm.has_prototypes or "class_counts" in told:
            yield Refusal(
                "leaves.class_counts", "false", f"{sends} something for each class, which tells what they have"
            )
        if config.stream.is_stream:
            yield Refusal(
                "leaves.class_counts", "false", "the run has [stream], whose results count each class's images"
            )
        if config.evaluation.own_classes:
            yield Refusal("leaves.class_counts", "false", "the run has evaluation.own_classes = true")


def _groups(config: RunConfig) -> Sequence[str]:
    """Return the names of the groups that an update has beside its model, but for releases with noise and outputs for public
    images.
    """
    method = config.algorithm
    if method.part(PrivateSums) is not None:
        return ()
    return sorted(method.uploads(config.method, len(config.data.classes), 1))


def _list(values: Sequence[str]) -> str:
    more = "" if len(values) <= MAX_LISTED else f", and {len(values) - MAX_LISTED} more"
    return f"[{', '.join(map(_value, values[:MAX_LISTED]))}{more}]"


def _value(text: str) -> str:
    return json.dumps(text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}...")
