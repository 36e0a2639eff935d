"""Sentences on a configuration that is valid and may not be what was meant. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from fedplcc.shared.config.recipes import PHOTOS, PHOTOS_BY_STEPS, of_photographs, recipe
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.tables.training import TrainingSection
from fedplcc.shared.config.toml_text import toml_value

OF_STEPS = tuple(f"training.{key}" for key in TrainingSection.model_fields if key not in ("train", "threads", "views",
    "evaluation_batch_size", "prototype_statistics"))  # fmt: skip
"""Keys that gradient steps read, and nothing else."""


def doubts_about(config: RunConfig) -> list[str]:
    """Return them; none where there is nothing to say."""
    found = (_about_head(config), _about_weights(config), _about_cohorts(config))
    return [*filter(None, found), *_about_idle_keys(config)]


def about_single_samples(config: RunConfig) -> str:
    """Return a sentence on what members of a run of clients that have joined get of a single sample; else nothing."""
    if getattr(config.method, "min_cluster_size", None) != 1:
        return ""
    return (
        "method.min_cluster_size = 1: of a client's only sample of a class, and of any cluster of one, every member of the "
        "run gets the feature, bit for bit; 2, which config init writes for clients that have joined, keeps it there"
    )


def _about_idle_keys(config: RunConfig) -> Iterator[str]:
    """Yield a sentence on each reason for which keys do nothing that somebody has set to another value than the default."""
    for why, keys in _idle(config):
        if told := [f"{key} = {_value(config, key)}" for key in keys if _is_set(config, key)]:
            yield f"{why}: {', '.join(told)} {'does' if len(told) == 1 else 'do'} nothing"


def _idle(config: RunConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield keys that nothing reads in a run like this, and why."""
    method, name = config.method.model_dump(), config.run.method
    if not config.algorithm.phases(config.method):
        balanced = "; method.balanced lets rare classes weigh as much as others" if "balanced" in method else ""
        yield f"{name} takes no gradient steps{balanced}", OF_STEPS
    elif config.training.optimizer == "adamw":
        yield "adamw has no momentum", ("training.momentum",)
    if not config.algorithm.shares_model(config.method):
        yield "clients send no models here", ("method.averaging",)
    if not config.evaluation.attacks:
        yield "evaluation.attacks is empty", ("evaluation.epsilon",)
    others = {
        "head": ("means", ("shrinkage",)),
        "server_opt": ("sgdm", ("beta2", "adaptivity")),
        "min_cluster_size": (1, ("small_clusters",)),
    }
    for key, (value, keys) in others.items():
        if method.get(key) == value:
            yield f"method.{key} is {value!r}".replace("'", '"'), tuple(f"method.{each}" for each in keys)
    if method.get("server_opt") == "adagrad":
        yield 'method.server_opt is "adagrad"', ("method.beta2",)
    if method.get("personal", "head") != "head":
        yield "no head is personal", ("method.head_epochs",)


def _is_set(config: RunConfig, key: str) -> bool:
    section, _, name = key.partition(".")
    values = getattr(config, section)
    default = 10 if key == "training.local_steps" else type(values).model_fields[name].default
    return bool(getattr(values, name) not in (default, None))


def _value(config: RunConfig, key: str) -> str:
    section, _, name = key.partition(".")
    return toml_value(getattr(config, section).model_dump(mode="json")[name])


def _about_cohorts(config: RunConfig) -> str:
    """Return a sentence on rounds that are tested by some of the clients, each by others; else nothing."""
    size, clients = config.run.cohort_size, config.run.clients
    if size is None or (clients is not None and size >= len(clients)):
        return ""
    return (
        f"run.cohort_size = {size}: a round is tested by its cohort alone, so mean and worst of two rounds may be of other "
        "domains; clients that evaluate only are tested in every round"
    )


def _about_head(config: RunConfig) -> str:
    """Return a sentence on rounds and head of a recipe for photographs that the method does not belong to; else nothing."""
    if config.training.train != "head":
        return ""
    fitting = of_photographs(config.run.method)
    (other,) = {PHOTOS, PHOTOS_BY_STEPS} - {fitting}
    said = recipe(other)
    if (config.run.rounds, dict(config.model.options)) != (said["run"]["rounds"], said["model"]["options"]):
        return ""
    return (
        f"{config.run.method} has the rounds and the head of the recipe {other}, which are not for it; "
        f"config init --recipe {fitting} --method {config.run.method} writes those that are"
    )


def _about_weights(config: RunConfig) -> str:
    """Return a sentence on a rule against liars that lets each client say how much it weighs; else nothing."""
    section = config.aggregation
    if section.rule != "clipped_mean" or section.max_weight_share is not None or config.method.averaging == "equal":
        return ""
    return (
        'aggregation.rule = "clipped_mean" shortens steps, and weighs them by the samples that each client says it has: one '
        "that says a huge number has the model. aggregation.max_weight_share bounds that; 0.25 held with four clients"
    )
