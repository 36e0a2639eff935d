"""`[aggregation]`: every method with every rule, settings that do nothing, and hashes that stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import pytest

from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.folds.rules import RuleName
from tests.support.federation.numpy_client import a_document
from tests.support.records.method_settings import public_of

RULES = get_args(RuleName)
NOT_SHARED = "in this run of {} clients keep theirs"
REFUSED: Mapping[str, Mapping[str, str]] = {
    "feddyn": dict.fromkeys(RULES[1:], "the state of the server of feddyn is a sum over all clients"),
    "creff": dict.fromkeys(RULES[1:], "the server of creff also averages what clients send beside models"),
    "fcclplus": dict.fromkeys(RULES[1:], "the server of fcclplus also averages what is said of public images"),
    "classsums": {
        "clipped_mean": 'classsums adds sums of classes; take "median"',
        "trimmed_mean": 'classsums adds sums of classes; take "median"',
        "median": 'method.shrinkage = "chosen" takes folds away from sums',
    },
}
"""Sentences of the pairs that are refused with the method's defaults; all others are taken."""


def config(method: str, rule: str, hyper: Mapping[str, Any] | None = None, **keys: Any) -> Any:
    document = a_document(method, aggregation={"rule": rule, **keys})
    return parse_run_config({**public_of(method, hyper or {}), **document, "method": dict(hyper or {})})


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_rule_or_says_why_not(method: str) -> None:
    for rule in RULES:
        refused = REFUSED.get(method, {}).get(rule)
        if refused is None:
            assert config(method, rule).aggregation.rule == rule
            continue
        with pytest.raises(InvalidConfig, match=r"aggregation\.rule") as problem:
            config(method, rule)
        assert refused in str(problem.value)


@pytest.mark.parametrize(
    ("method", "hyper", "rule", "refused"),
    [
        ("classsums", {"shrinkage": 0.3}, "median", None),
        ("classsums", {"head": "means"}, "median", None),
        ("classsums", {"head": "means"}, "trimmed_mean", "adds sums of classes"),
        ("fedproto", {"share_model": False}, "median", NOT_SHARED.format("fedproto")),
        ("fedopt", {"server_opt": "sgdm", "server_lr": 1.0, "beta1": 0.0}, "median", None),
        ("fedavg", {"averaging": "domain"}, "median", 'method.averaging = "domain" weighs them'),
        ("fedavg", {"averaging": "domain"}, "clipped_mean", None),
        ("fedrep", {"upload_head": False}, "trimmed_mean", None),
    ],
)
def test_settings_of_a_method_decide_too(method: str, hyper: Mapping[str, Any], rule: str, refused: str | None) -> None:
    if refused is None:
        assert config(method, rule, hyper).aggregation.rule == rule
        return
    with pytest.raises(InvalidConfig) as problem:
        config(method, rule, hyper)
    assert refused in str(problem.value)


@pytest.mark.parametrize(
    ("method", "keys", "said"),
    [
        (
            "fedavg",
            {"rule": "median", "clip_to": 3.0},
            'is about aggregation.rule = "clipped_mean", and the rule is "median"',
        ),
        (
            "fedavg",
            {"rule": "mean", "trim_share": 0.1},
            'is about aggregation.rule = "trimmed_mean", and the rule is "mean"',
        ),
        ("fedavg", {"rule": "clipped_mean", "clip_to": 0.0}, 'a length above 0, or "median"'),
        ("fedavg", {"rule": "trimmed_mean", "trim_share": 0.5}, "it must be less than 0.5"),
        ("fedavg", {"rule": "median", "max_weight_share": 0.5}, "no client weighs more than another"),
        ("classsums", {"rule": "mean", "max_weight_share": 0.5}, "no client weighs more than another"),
        ("fedavg", {"rule": "krum"}, "aggregation.rule"),
    ],
)
def test_what_does_nothing_or_is_unknown_is_refused(method: str, keys: Mapping[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig) as problem:
        parse_run_config(a_document(method, aggregation=dict(keys)))
    assert said in str(problem.value)


def test_a_run_without_a_rule_has_the_hash_that_it_had() -> None:
    plain = parse_run_config(a_document("fedplcc"))
    neutral = {"method": {"small_clusters": "withhold"}, "aggregation": {"rule": "mean"}}
    said = parse_run_config({**a_document("fedplcc"), **neutral})
    assert "aggregation" not in plain.canonical_json
    assert "small_clusters" not in plain.canonical_json
    assert said.hash == plain.hash
    ruled = config("fedplcc", "clipped_mean")
    assert ruled.hash != plain.hash
    assert parse_run_config({**a_document("fedplcc"), "aggregation": {"rule": "clipped_mean"}}).hash == ruled.hash
