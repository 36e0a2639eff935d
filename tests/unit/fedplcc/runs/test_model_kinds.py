"""`[clients.NAME.model]`: a client's own kind of model, where models are not shared, and its refusal where they are."""

from __future__ import annotations

from typing import Any

import pytest

from fedplcc.runs.configuration import federation_json
from fedplcc.runs.configuration_check import judge
from fedplcc.shared.config.run import FederationFile, parse_federation
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods import METHODS

CLIENTS = {"north": {"data": "digits:mnist"}, "south": {"data": "digits:synth"}}
NOT_SHARED = {"share_model": False}


def a_document(method: str = "fedproto", hyper: Any = NOT_SHARED, **clients: Any) -> dict[str, Any]:
    """A run of two clients; keyword arguments are further keys of theirs."""
    return {
        "run": {"method": method},
        "method": hyper,
        "data": {"classes": ["a", "b"]},
        "clients": {name: {**table, **clients.get(name, {})} for name, table in CLIENTS.items()},
    }


def federation(**clients: Any) -> FederationFile:
    return parse_federation(a_document(**clients))


def test_a_client_has_the_runs_kind_unless_its_table_names_another() -> None:
    found = federation(north={"model": {"name": "resnet10", "stem": "cifar3x3"}}).clients
    assert found["north"].model is not None
    assert found["north"].model.kind == "resnet10 cifar3x3"
    assert found["south"].model is None
    grouped = federation(north={"model": {"name": "resnet18", "norm": "group"}}).clients["north"].model
    assert grouped is not None
    assert grouped.kind == "resnet18-groupnorm imagenet7x7"


def test_the_kind_is_part_of_the_federation_and_changes_no_hash_of_the_run() -> None:
    plain, kinds = federation(), federation(north={"model": {"name": "cnn5"}})
    assert plain.config.hash == kinds.config.hash
    assert federation_json(plain) != federation_json(kinds)


@pytest.mark.parametrize(
    "method", [name for name, method in METHODS.items() if method.has_global_model(method.config())]
)
def test_where_models_are_averaged_every_client_has_the_runs(method: str) -> None:
    document = a_document(method, {}, north={"model": {"name": "cnn5"}})
    if METHODS[method].uses_public(METHODS[method].config()):
        document["public"] = {"data": "digits:mnist"}
    does = "makes one head for all models" if method == "classsums" else "averages models"
    sentence = f"clients.north.model: method {method} {does}, so every client has the run's"
    with pytest.raises(InvalidConfig) as refused:
        parse_federation(document)
    assert refused.value.detail == sentence
    assert judge(document).problems == (sentence,)


def test_where_features_are_mixed_a_client_has_a_resnet() -> None:
    own = {"model": {"name": "resnet18"}}
    document = {**a_document(north=own), "model": {"name": "resnet10"}, "training": {"mix_style": {}}}
    assert parse_federation(document).clients["north"].model is not None
    document["clients"]["north"] = {**document["clients"]["north"], "model": {"name": "cnn5"}}
    with pytest.raises(InvalidConfig, match=r"clients\.north\.model: training\.mix_style mixes .* model is 'cnn5'"):
        parse_federation(document)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({"name": "cnn6"}, "clients.north.model.name = \"cnn6\": unknown model 'cnn6'"),
        ({"name": "cnn5", "stem": "cifar3x3"}, "clients.north.model.stem = \"cifar3x3\": model 'cnn5' has no stem"),
        ({"name": "cnn5", "norm": "group"}, "clients.north.model.norm = \"group\": model 'cnn5' has no normalisation"),
        ({"nam": "cnn5"}, "unknown key 'clients.north.model.nam'; did you mean 'clients.north.model.name'?"),
        ("cnn5", 'clients.north.model is a table of keys, not "cnn5"'),
        ({"name": "timm:" + "x" * 200}, "clients.north.model: a kind of model is a name of letters"),
        ({"name": "a.b:cédille"}, "clients.north.model: a kind of model is a name of letters"),
    ],
)
def test_a_kind_that_cannot_be_is_refused_by_its_key(model: Any, sentence: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        federation(north={"model": model})
    assert refused.value.detail.startswith(sentence)
    assert judge(a_document(north={"model": model})).problems
