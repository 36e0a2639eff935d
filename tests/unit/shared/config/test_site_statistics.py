"""`evaluation.batch_norm` and `training.prototype_statistics`: neutral by default, and refused where they say nothing."""

from __future__ import annotations

from typing import Any

import pytest

from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.errors import InvalidConfig


def a_config(method: str = "fedplcc", hyper: dict[str, Any] | None = None, /, **sections: Any) -> RunConfig:
    document = {"run": {"method": method, "clients": ["a", "b"]}, "data": {"classes": ["cat", "dog"]}, **sections}
    return parse_run_config({**document, "method": hyper or {}})


def test_neutral_values_are_the_defaults() -> None:
    said = a_config(evaluation={"batch_norm": "shared"}, training={"prototype_statistics": "trained"})
    assert (said.canonical_json, said.hash) == (a_config().canonical_json, a_config().hash)
    assert said.site_statistics_key is None
    sections: tuple[dict[str, Any], ...] = (
        {"evaluation": {"batch_norm": "site"}},
        {"training": {"prototype_statistics": "site"}},
    )
    for section in sections:
        config = a_config(**section)
        assert '"site"' in config.canonical_json
        assert config.hash != a_config().hash
        assert config.site_statistics_key in (
            'evaluation.batch_norm = "site"',
            'training.prototype_statistics = "site"',
        )


@pytest.mark.parametrize(
    ("method", "hyper", "shared", "site"),
    [
        ("fedavg", {}, ("global",), ("global", "local")),
        ("fedplcc", {}, ("global",), ("global", "local")),
        ("fedccl", {}, ("global", "local"), ("global", "local")),
        ("fedrep", {}, ("global", "local"), ("global", "local")),
        ("fedrep", {"upload_head": False}, ("local",), ("local",)),
        ("fedproto", {"share_model": False}, ("local",), ("local",)),
        ("fedproto", {}, ("global",), ("global", "local")),
    ],
)
def test_every_client_has_a_local_model_at_its_site(
    method: str, hyper: dict[str, Any], shared: tuple[str, ...], site: tuple[str, ...]
) -> None:
    assert a_config(method, hyper).evaluated_models == shared
    assert a_config(method, hyper, evaluation={"batch_norm": "site"}).evaluated_models == site


@pytest.mark.parametrize(
    ("method", "hyper", "sentence"),
    [
        (
            "fedavg",
            {},
            "training.prototype_statistics is about the pass that makes prototypes, and fedavg has none; leave it out",
        ),
        (
            "fedplcc",
            {"proto_pass": "last_epoch"},
            'method.proto_pass = "last_epoch" makes prototypes of the features of training, without the pass that '
            "training.prototype_statistics is about; leave one of the two out",
        ),
    ],
)
def test_statistics_of_a_pass_that_there_is_not_are_refused(method: str, hyper: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        a_config(method, hyper, training={"prototype_statistics": "site"})
    assert caught.value.detail == sentence


@pytest.mark.parametrize(("section", "key"), [("evaluation", "batch_norm"), ("training", "prototype_statistics")])
def test_another_value_is_refused_by_key_and_value(section: str, key: str) -> None:
    values: dict[str, Any] = {section: {key: "own"}}
    with pytest.raises(InvalidConfig, match=f'{section}.{key} = "own"'):
        a_config(**values)
