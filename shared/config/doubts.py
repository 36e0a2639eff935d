"""Sentences on a configuration that is valid and may not be what was meant. Pure."""

from __future__ import annotations

from fedplcc.shared.config.recipes import PHOTOS, PHOTOS_BY_STEPS, of_photographs, recipe
from fedplcc.shared.config.run import RunConfig


def doubts_about(config: RunConfig) -> list[str]:
    """Return them; none where there is nothing to say."""
    return list(filter(None, (_about_head(config), _about_weights(config))))


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
