"""`[aggregation]`: how the updates of a round become one, and how much of it is one client's. Pure."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from fedplcc.shared.config.sections import InvalidKey, Section
from fedplcc.shared.methods.folds.rules import RuleName, rule_refusal, weighs_clients
from fedplcc.shared.methods.method import Method

CLIP_TO: Literal["median"] = "median"
TRIM_SHARE = 0.25


class AggregationSection(Section):
    """`[aggregation]`: how a round's updates become one."""

    rule: RuleName = "mean"
    """Mean of the clients' models, weighted as method.averaging says; the same with each client's step from the global model
    shortened to at most clip_to (clipped_mean; set max_weight_share too, or a client that says a huge number of images has
    the model); or number by number, each client counting once, the mean without the lowest
    and highest values (trimmed_mean) or the median. A domain that has one client may be taken for a liar. For classsums,
    "median" is that of the clients' class means."""
    clip_to: float | Literal["median"] = Field(CLIP_TO)
    """With "clipped_mean": longest step of a client, an L2 norm as admission.max_update_norm measures it, or the median of
    the round's, of an even number the lower."""
    trim_share: float = Field(TRIM_SHARE, gt=0, lt=0.5)
    """With "trimmed_mean": share of the clients whose values are left out at each end, rounded down: with 0.25 one of four
    to seven, and nobody of three."""
    max_weight_share: float | None = Field(None, gt=0, le=1)
    """Largest share of one client in the sum of the weights by which models are averaged, and of prototypes in each class:
    what it says beyond that does not count. Where so few clients cannot all be below it they weigh alike. The run's warnings
    name whom it capped. No limit if not set."""


def check_aggregation(section: AggregationSection, method: Method, hyper: Any) -> None:
    """Refuse a rule that is undefined for a method with these hyper-parameters, and settings that do nothing.

    Raises:
        InvalidKey: At the key to change, with what to do.
    """
    if isinstance(section.clip_to, float) and not section.clip_to > 0:
        raise InvalidKey(
            "aggregation.clip_to", f'aggregation.clip_to = {section.clip_to}: a length above 0, or "median"'
        )
    refused = rule_refusal(method, hyper, section.rule)
    if refused is not None:
        raise InvalidKey("aggregation.rule", refused)
    of_rules = {
        "clip_to": ("clipped_mean", section.clip_to != CLIP_TO),
        "trim_share": ("trimmed_mean", section.trim_share != TRIM_SHARE),
    }
    for key, (rule, is_set) in of_rules.items():
        if is_set and section.rule != rule:
            value = getattr(section, key)
            raise InvalidKey(
                f"aggregation.{key}",
                f'aggregation.{key} = {value} is about aggregation.rule = "{rule}", and the rule is "{section.rule}"; leave '
                "one of the two out",
            )
    if section.max_weight_share is not None and not weighs_clients(method, hyper, section.rule):
        raise InvalidKey(
            "aggregation.max_weight_share",
            f"aggregation.max_weight_share = {section.max_weight_share} limits weights, and in this run of {method.name} "
            "no client weighs more than another; leave it out",
        )
