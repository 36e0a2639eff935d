"""The run configuration: what it accepts, what its hash rests on, and the sentence that each mistake gets."""

from __future__ import annotations

import datetime
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared import version as package
from fedplcc.shared.config.run import (
    FederationFile,
    canonical_json,
    load_federation,
    parse_federation,
    parse_run_config,
)
from fedplcc.shared.config.sections import read_document
from fedplcc.shared.config.tables.run_tables import VERSION
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.parts.prototypes import MAX_PAIRS
from tests.support import present
from tests.support.records.method_settings import public_of

ISSUE = """
[run]
name = "digits"
method = "fedplcc"
rounds = 30
seed = 0
clients = ["mnist", "optdigits", "mnistm", "synth"]   # the roster; or min_clients = 4
[method]            # this method's hyper-parameters, defaults from its paper
lambda1 = 100.0
[model]
name = "resnet10"
[data]
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
image_size = 32
[training]
local_steps = 10    # or local_epochs; exactly one
batch_size = 32
threads = 1
[clients.mnist]     # only demo and simulate read these; deployed trainers say it on their command line
domain = "mnist"
data = "digits:mnist"
samples_per_class = 30
"""


def a_document(**sections: Any) -> dict[str, Any]:
    """The least that a person must write, with changes; a section given as None is left out."""
    document: dict[str, Any] = {
        "run": {"method": "fedplcc", "clients": ["ann", "bob"]},
        "data": {"classes": ["cat", "dog"]},
    }
    for name, values in sections.items():
        document[name] = {**document.get(name, {}), **values} if isinstance(values, dict) else values
    return {name: values for name, values in document.items() if values is not None}


def problem(document: Any) -> str:
    with pytest.raises(InvalidConfig) as refused:
        parse_run_config(document)
    return refused.value.detail


# What is accepted


def test_the_configuration_of_the_readme_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(ISSUE)
    found = load_federation(path)
    assert found.config.run.clients == ("mnist", "mnistm", "optdigits", "synth")
    assert found.config.method.model_dump()["lambda1"] == 100.0
    assert found.clients["mnist"].samples_per_class == 30


def test_everything_has_a_default_but_the_method_the_clients_and_the_classes() -> None:
    config = parse_run_config(a_document())
    assert (config.run.name, config.run.rounds, config.run.seed) == ("run", 30, 0)
    assert (config.model.name, config.model.stem) == ("resnet10", "imagenet5x5")
    assert (config.training.local_steps, config.training.local_epochs) == (10, None)
    assert config.algorithm is METHODS["fedplcc"]
    for section, key in (("run", "method"), ("data", "classes")):
        document = a_document()
        del document[section][key]
        assert f"{section}.{key} is missing" in problem(document)
    assert problem({}) == "run is missing; data is missing"


def test_the_order_of_the_roster_does_not_matter() -> None:
    one, other = a_document(run={"clients": ["ann", "bob"]}), a_document(run={"clients": ["bob", "ann"]})
    assert parse_run_config(one) == parse_run_config(other)


def test_whole_numbers_pass_for_floats_and_lists_for_tuples() -> None:
    document = a_document(training={"learning_rate": 1}, method={"lambda1": 3}, data={"mean": [0, 0.5, 1]})
    config = parse_run_config(document)
    assert config.training.learning_rate == 1.0
    assert config.data.mean == (0.0, 0.5, 1.0)


@pytest.mark.parametrize(
    "name",
    ["cnn4", "cnn5", "resnet10", "resnet18", "timm:vit_tiny_patch16_224.augreg_in21k", "my.models:make", "m:Net"],
)
def test_models_are_built_in_of_timm_or_factories(name: str) -> None:
    assert parse_run_config(a_document(model={"name": name})).model.name == name


@pytest.mark.parametrize(
    ("name", "stem"), [("resnet10", "imagenet5x5"), ("resnet18", "imagenet7x7"), ("cnn4", None), ("m:Net", None)]
)
def test_a_model_has_its_usual_stem_where_none_is_chosen(name: str, stem: str | None) -> None:
    config = parse_run_config(a_document(model={"name": name}))
    assert config.model.stem == stem
    assert parse_run_config(a_document(model={"name": name, "stem": stem})).hash == config.hash


def test_the_options_of_a_timm_model_are_filled_in() -> None:
    plain = parse_run_config(a_document(model={"name": "timm:resnet18"}))
    assert plain.model.options == {"hidden_dim": 128, "feature_norm": "none"}
    written = parse_run_config(a_document(model={"name": "timm:resnet18", "options": {"hidden_dim": 128}}))
    assert written.hash == plain.hash
    unset = {"pretrained": False, "checkpoint": None}
    assert parse_run_config(a_document(model={"name": "timm:resnet18", "options": unset})).hash == plain.hash


# Hash


def test_the_version_is_that_of_the_package_and_part_of_the_configuration() -> None:
    assert package.VERSION.startswith(f"{VERSION}.")
    config = parse_run_config(a_document())
    assert json.loads(config.canonical_json)["run"]["version"] == VERSION
    assert parse_run_config(a_document(run={"version": VERSION})).hash == config.hash
    with pytest.raises(InvalidConfig, match=r'run\.version = "0\.1"'):
        parse_run_config(a_document(run={"version": "0.1"}))


def test_defaults_written_out_give_the_same_hash() -> None:
    plain, config = a_document(), parse_run_config(a_document())
    written = {**plain, "model": {"name": "resnet10"}, "method": {"tau": 0.07}, "training": {"local_steps": 10}}
    assert parse_run_config(written).hash == config.hash
    assert parse_run_config(a_document(method={"tau": 0.08})).hash != config.hash


@pytest.mark.parametrize(
    ("neutral", "other"),
    [
        ({"model": {"norm": "batch"}}, {"model": {"norm": "group"}}),
        ({"admission": {}}, {"admission": {"max_update_norm": 5.0, "quarantined": ["zed", "ann", "zed"]}}),
        (
            {"quorum": {"every_domain": False, "on_no_quorum": "wait"}},
            {"quorum": {"deadline_s": 6.0, "min_clients": 1}},
        ),
        ({}, {"quorum": {"deadline_s": 6.0, "min_clients": 1, "hard_deadline_s": 7.0}}),
        ({"evaluation": {"every": 1, "last": 10}}, {"evaluation": {"every": 5}}),
        ({"evaluation": {"confusion": False}}, {"evaluation": {"confusion": True}}),
        ({}, {"training": {"adversarial": {}}}),
        ({}, {"training": {"mix_style": {}}}),
    ],
)
def test_what_is_chosen_is_part_of_the_hash_and_read_back_and_a_default_is_not(
    neutral: dict[str, Any], other: dict[str, Any]
) -> None:
    plain = parse_run_config(a_document())
    assert parse_run_config(a_document(**neutral)).hash == plain.hash
    chosen = parse_run_config(a_document(**other))
    assert chosen.hash != plain.hash
    assert parse_run_config(json.loads(chosen.canonical_json)) == chosen


def test_what_is_switched_on_has_the_usual_values() -> None:
    config = parse_run_config(
        a_document(
            quorum={"deadline_s": 600.0, "min_clients": 1},
            admission={"quarantined": ["zed", "ann", "zed"]},
            training={"adversarial": {}, "mix_style": {}},
        )
    )
    assert (config.quorum.silence_s, config.admission.quarantined) == (120.0, ("ann", "zed"))
    attack = present(config.training.attack)
    assert (attack.epsilon, attack.step_size, attack.steps) == (8 / 255, 2 / 255, 7)
    assert config.training.mix_style == {"probability": 0.5, "alpha": 0.1}
    plain = parse_run_config(a_document()).training
    assert (plain.attack, plain.mixing) == (None, None)


@pytest.mark.parametrize(
    ("admission", "sentence"),
    [
        ({"max_update_norm": 0.0}, "admission.max_update_norm = 0.0: it must be more than 0"),
        ({"max_update_norm": float("inf")}, "admission.max_update_norm = Infinity: write a finite number"),
        ({"quarantine_after": True}, "admission.quarantine_after = true: write a whole number"),
        ({"quarantined": ["bob", "ann"]}, "admission.quarantined names every client of the run; leave at least one"),
        (
            {"max_prototypes_per_class": 4097},
            "admission.max_prototypes_per_class = 4097: it must be at most 4096",
        ),
        ({"max_update_nrm": 1.0}, "unknown key 'admission.max_update_nrm'; did you mean 'admission.max_update_norm'?"),
    ],
)
def test_what_is_wrong_with_admission_is_said(admission: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_run_config(a_document(admission=admission))
    assert refused.value.detail == sentence


@pytest.mark.parametrize(("key", "limit"), [("max_prototype_norm", 50.0), ("max_prototypes_per_class", 20)])
def test_a_limit_on_prototypes_is_of_methods_that_have_them(key: str, limit: float) -> None:
    document = a_document(admission={"quarantine_after": 3})
    document["run"]["method"] = "fedplcc"
    before = parse_run_config(document)
    document["admission"][key] = limit
    limited = parse_run_config(document)
    assert limited.hash != before.hash
    assert parse_run_config(json.loads(limited.canonical_json)) == limited
    document["run"]["method"] = "fedavg"
    with pytest.raises(InvalidConfig) as refused:
        parse_run_config(document)
    assert f"admission.{key} limits prototypes, and fedavg has none; leave it out" in refused.value.detail


@pytest.mark.parametrize(
    ("run", "num_classes", "most"),
    [
        ({"min_clients": 2}, 2, 4096),
        ({"min_clients": 20}, 10, 1036),
        ({"min_clients": 1000}, 10, 20),
        ({"min_clients": 1000, "cohort_size": 20}, 10, 1036),
        ({"min_clients": 1000}, 10_000, 1),
    ],
)
def test_the_cost_of_clustering_is_bounded_whatever_the_numbers_of_clients_and_classes(
    run: dict[str, Any], num_classes: int, most: int
) -> None:
    document = {
        "run": {"method": "fedplcc", **run},
        "data": {"classes": [f"class {number}" for number in range(num_classes)]},
    }
    config = parse_run_config(document)
    assert config.max_prototypes_per_class == most
    pairs = num_classes * (most * config.num_pooled_clients) ** 2
    assert pairs <= MAX_PAIRS or most == 1
    stale = parse_run_config({**document, "method": {"proto_staleness": 1}})
    assert stale.num_pooled_clients == run["min_clients"], "prototypes of clients that are not in the cohort stay"


def test_a_configuration_whose_clustering_would_take_days_is_refused_by_its_key() -> None:
    document = a_document(
        run={"clients": [f"client-{number}" for number in range(100)]}, admission={"max_prototypes_per_class": 4096}
    )
    with pytest.raises(InvalidConfig) as refused:
        parse_run_config(document)
    assert refused.value.detail == (
        "admission.max_prototypes_per_class = 4096: with 100 clients and 2 classes a round could compare more than "
        "4294967296 pairs of prototypes; at most 463 can be allowed"
    )
    document["admission"]["max_prototypes_per_class"] = 463
    assert parse_run_config(document).max_prototypes_per_class == 463


def test_a_quorum_counts_on_nobody_who_is_quarantined() -> None:
    document = a_document(quorum={"min_clients": 2, "deadline_s": 60.0}, admission={"quarantined": ["bob"]})
    with pytest.raises(InvalidConfig) as refused:
        parse_run_config(document)
    assert refused.value.detail == (
        "quorum.min_clients = 2 is more than 1, the number of clients in run.clients that are not quarantined"
    )


@pytest.mark.parametrize(
    ("evaluation", "evaluated"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ({"every": 4, "last": 1}, [4, 8, 9]),
        ({"every": 4, "last": 3}, [4, 7, 8, 9]),
        ({"every": 100, "last": 1}, [9]),
        ({"every": 4}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ],
)
def test_every_nth_round_is_evaluated_and_the_last_ones_always(
    evaluation: dict[str, int], evaluated: list[int]
) -> None:
    section = parse_run_config(a_document(evaluation=evaluation)).evaluation
    assert [number for number in range(1, 10) if section.covers(number, 9)] == evaluated


def test_confusion_matrices_are_asked_for_and_many_classes_have_none() -> None:
    def classes(number: int) -> dict[str, Any]:
        return {**a_document()["data"], "classes": [f"class {index}" for index in range(number)]}

    parse_run_config({**a_document(evaluation={"confusion": True}), "data": classes(64)})
    with pytest.raises(InvalidConfig, match=r"evaluation\.confusion .* at most 64 classes, and the run has 65"):
        parse_run_config({**a_document(evaluation={"confusion": True}), "data": classes(65)})


@pytest.mark.parametrize("key", ["every", "last"])
def test_no_run_is_without_an_evaluation(key: str) -> None:
    with pytest.raises(InvalidConfig, match=f"evaluation.{key}"):
        parse_run_config(a_document(evaluation={key: 0}))


def test_attacks_on_test_images_are_as_large_as_those_of_training_unless_it_is_said() -> None:
    grey = {"adversarial": {"epsilon": 0.3, "step_size": 0.075}}
    assert parse_run_config(a_document(evaluation={"attacks": ["pgd20", "fgsm"]})).attack_epsilon == 8 / 255
    assert parse_run_config(a_document(training=grey)).attack_epsilon == 0.3
    chosen = parse_run_config(a_document(training=grey, evaluation={"attacks": ["pgd20", "fgsm"], "epsilon": 0.1}))
    assert (chosen.attack_epsilon, chosen.evaluation.attacks) == (0.1, ("fgsm", "pgd20"))


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"training": {"mix_style": {"alfa": 0.1}}}, "did you mean 'training.mix_style.alpha'"),
        ({"training": {"mix_style": {"alpha": 0.0}}}, "training.mix_style.alpha = 0.0: it must be more than 0"),
        ({"training": {"mix_style": {"probability": 1.5}}}, "training.mix_style.probability = 1.5"),
        ({"training": {"mix_style": {"probability": 0}}}, "training.mix_style.probability = 0"),
        (
            {"training": {"mix_style": {}}, "model": {"name": "cnn4"}},
            "training.mix_style mixes features of resnet10 and resnet18, and the model is 'cnn4'; leave it out",
        ),
        (
            {"training": {"mix_style": {}}, "method": {"proto_pass": "last_epoch"}},
            "training.mix_style are mixed; leave one of the two out",
        ),
    ],
)
def test_a_mixing_that_cannot_be_is_refused_by_its_key(sections: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(sentence)):
        parse_run_config(a_document(**sections))


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"training": {"adversarial": {"epsilom": 0.1}}}, "did you mean 'training.adversarial.epsilon'"),
        ({"training": {"adversarial": {"epsilon": 0.0}}}, "training.adversarial.epsilon = 0.0"),
        ({"training": {"adversarial": {"steps": 0}}}, "training.adversarial.steps = 0"),
        ({"evaluation": {"attacks": ["pgd"]}}, "evaluation.attacks"),
        ({"evaluation": {"epsilon": 2.0}}, "evaluation.epsilon = 2.0"),
    ],
)
def test_an_attack_that_cannot_be_is_refused_by_its_key(sections: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidConfig, match=sentence):
        parse_run_config(a_document(**sections))


def test_prototypes_of_attacked_images_are_refused() -> None:
    document = a_document(training={"adversarial": {}}) | {"method": {"proto_pass": "last_epoch"}}
    document["run"] = {**document["run"], "method": "fedplcc"}
    with pytest.raises(InvalidConfig, match="of attacked images; leave one of the two out"):
        parse_run_config(document)


NO_DEADLINE = "quorum: set 'deadline_s' too: without a deadline every round waits for its whole cohort"


@pytest.mark.parametrize(
    ("quorum", "run", "sentence"),
    [
        ({"min_clients": 2}, {}, NO_DEADLINE),
        (
            {"deadline_s": 600.0},
            {},
            "quorum: deadline_s drops nobody while the quorum is the whole cohort; set 'min_clients' or 'every_domain' too, "
            'or on_no_quorum = "fail"',
        ),
        (
            {"deadline_s": 600.0, "min_clients": 3},
            {},
            "quorum.min_clients = 3 is more than 2, the number of clients in run.clients",
        ),
        (
            {"deadline_s": 600.0, "min_clients": 2},
            {"cohort_size": 1},
            "quorum.min_clients = 2 is more than 1, the number of clients drawn for each round (run.cohort_size)",
        ),
        (
            {"deadline_s": 600.0, "min_clients": 5},
            {"clients": None, "min_clients": 4},
            "quorum.min_clients = 5 is more than 4, the number of clients that the run begins with (run.min_clients)",
        ),
        ({"deadline_s": -1.0}, {}, "quorum.deadline_s = -1.0: it must be at least 0"),
        (
            {"deadline_s": 60.0, "min_clients": 1, "hard_deadline_s": 60.0},
            {},
            "quorum: set 'hard_deadline_s' to more seconds than 'deadline_s'",
        ),
        ({"on_no_quorum": "stop"}, {}, "quorum.on_no_quorum = \"stop\": it must be 'wait' or 'fail'"),
        ({"deadline": 600.0}, {}, "unknown key 'quorum.deadline'; did you mean 'quorum.deadline_s'?"),
    ],
)
def test_what_is_wrong_with_a_quorum_is_said(quorum: dict[str, Any], run: dict[str, Any], sentence: str) -> None:
    document = a_document(quorum=quorum, run=run)
    document["run"] = {name: value for name, value in document["run"].items() if value is not None}
    with pytest.raises(InvalidConfig) as refused:
        parse_run_config(document)
    assert refused.value.detail == sentence


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Valid configurations of all kinds."""
    names = st.text("abcXYZ019", min_size=1, max_size=8)
    clients = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    roster = {"clients": clients} if draw(st.booleans()) else {"min_clients": draw(st.integers(1, 9))}
    length = draw(st.sampled_from(["local_steps", "local_epochs"]))
    method = draw(st.sampled_from(sorted(METHODS)))
    values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    options = st.dictionaries(
        st.text(max_size=5), values | st.text(max_size=5) | st.lists(values, max_size=3), max_size=3
    )
    return {
        "run": {
            **roster,
            "method": method,
            "rounds": draw(st.integers(METHODS[method].config().fewest_rounds, 1000)),
            "seed": draw(st.integers(0, 2**31 - 1)),
        },
        "method": {"lambda2": draw(st.floats(0, 1e6))} if method == "fedplcc" and draw(st.booleans()) else {},
        "model": {"name": "a.b:c", "options": draw(options)},
        "data": {"classes": draw(st.lists(names, min_size=2, max_size=5, unique=True))},
        "training": {length: draw(st.integers(1, 100)), "learning_rate": draw(st.floats(1e-6, 10))},
        "quorum": {"deadline_s": draw(st.floats(0, 1e6)), "every_domain": True} if draw(st.booleans()) else {},
        **public_of(method, {}),
    }


@given(documents())
def test_a_configuration_is_read_back_from_its_canonical_json(document: dict[str, Any]) -> None:
    config = parse_run_config(document)
    again = parse_run_config(json.loads(config.canonical_json))
    assert again == config
    assert (again.canonical_json, again.hash) == (config.canonical_json, config.hash)
    assert config.canonical_json.isascii()


def test_canonical_json_sorts_and_refuses_what_is_no_json() -> None:
    assert canonical_json({"b": [1.0, None], "a": "é"}) == '{"a":"\\u00e9","b":[1.0,null]}'
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"a": float("nan")})


# Mistakes

UNKNOWN = {
    "a key": (a_document(run={"round": 3}), "unknown key 'run.round'; did you mean 'run.rounds'?"),
    "a section": (a_document(trainin={"threads": 2}), "unknown key 'trainin'; did you mean 'training'?"),
    "a key like no other": (
        a_document(model={"qqq": 3}),
        "unknown key 'model.qqq'; known: model.name, model.norm, model.options, model.stem",
    ),
    "a hyper-parameter": (
        a_document(method={"lambda_1": 3}),
        "unknown key 'method.lambda_1'; did you mean 'method.lambda1'?",
    ),
    "a hyper-parameter of another method": (
        a_document(run={"method": "fedavg"}, method={"lambda1": 3}),
        "unknown key 'method.lambda1'; known: method.average_decay, method.averaging, method.global_average",
    ),
    "a method": (a_document(run={"method": "fedplc"}), "unknown method 'fedplc'; did you mean 'fedplcc'?"),
    "a method like no other": (a_document(run={"method": "zzz"}), "unknown method 'zzz'; known: "),
    "a model": (a_document(model={"name": "resnet-10"}), "unknown model 'resnet-10'; did you mean 'resnet10'?"),
    "a model like no other": (a_document(model={"name": "zzz"}), "or write timm:NAME or package.module:factory"),
    "a model of another hub": (a_document(model={"name": "timm:hf-hub:a/b"}), "names of other hubs are not taken"),
    "an option of timm": (
        a_document(model={"name": "timm:resnet18", "options": {"hidden": 3}}),
        "unknown key 'model.options.hidden'; did you mean 'model.options.hidden_dim'?",
    ),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_is_unknown_is_named_with_the_nearest_known(what: str) -> None:
    document, sentence = UNKNOWN[what]
    assert sentence in problem(document)


OUT_OF_RANGE: dict[str, tuple[dict[str, Any], str]] = {
    "run.rounds": ({"run": {"rounds": 0}}, "run.rounds = 0: it must be at least 1"),
    "run.rounds, fewer than the method needs": (
        {"run": {"rounds": 1, "method": "classsums"}},
        "run.rounds = 1: as it is set, method classsums needs 2, the last of which chooses by what the one before made",
    ),
    "run.rounds, high": ({"run": {"rounds": 10**9}}, "run.rounds = 1000000000: it must be at most"),
    "run.seed": ({"run": {"seed": -1}}, "run.seed = -1: it must be at least 0"),
    "run.seed, high": ({"run": {"seed": 2**31}}, "run.seed = 2147483648: it must be less than 2147483648"),
    "method.tau": ({"method": {"tau": 0}}, "method.tau = 0: it must be at least 0.001"),
    "method.phi": ({"method": {"phi": 1.5}}, "method.phi = 1.5: it must be at most 1"),
    "method.lambda1": ({"method": {"lambda1": -1}}, "method.lambda1 = -1: it must be at least 0"),
    "not a number": ({"method": {"lambda1": float("nan")}}, "method.lambda1 = NaN: write a finite number"),
    "infinity": ({"training": {"learning_rate": float("inf")}}, "training.learning_rate = Infinity: write a"),
    "training.momentum": ({"training": {"momentum": 1}}, "training.momentum = 1: it must be less than 1"),
    "batch_size": (
        {"training": {"batch_size": 1}},
        "training.batch_size = 1: it must be at least",
    ),
    "image_size": ({"data": {"image_size": 7}}, "data.image_size = 7: it must be at least 8"),
    "std": ({"data": {"std": [0.5, 0, 0.5]}}, "data.std.1 = 0: it must be more than 0"),
    "mean": ({"data": {"mean": [0.5, 0.5]}}, "data.mean.2 is missing"),
    "stem": (
        {"model": {"stem": "big"}},
        "model.stem = \"big\": model 'resnet10' has the stems imagenet5x5, cifar3x3, imagenet7x7",
    ),
    "a stem of another model": (
        {"model": {"name": "resnet18", "stem": "imagenet5x5"}},
        "model.stem = \"imagenet5x5\": model 'resnet18' has the stems imagenet7x7, cifar3x3",
    ),
    "a norm": (
        {"model": {"norm": "layer"}},
        "model.norm = \"layer\": it must be 'batch' or 'group'",
    ),
    "a norm of no model": (
        {"model": {"name": "cnn5", "norm": "group"}},
        "model.norm = \"group\": model 'cnn5' has no normalisation to choose; resnet10 and resnet18 have",
    ),
    "a norm without what clients keep": (
        {"run": {"method": "fedrep"}, "method": {"personal": "batch_norm"}, "model": {"norm": "group"}},
        'model.norm = "group" leaves no BatchNorm layer in the model, and method.personal = "batch_norm" is about',
    ),
    "a norm without what a site computes": (
        {"model": {"norm": "group"}, "evaluation": {"batch_norm": "site"}},
        'model.norm = "group" leaves no BatchNorm layer in the model, and evaluation.batch_norm = "site" is about',
    ),
    "a built-in model without what a site computes": (
        {"model": {"name": "cnn5"}, "evaluation": {"batch_norm": "site"}},
        "model 'cnn5' has no BatchNorm layer, and evaluation.batch_norm = \"site\" is about such layers; change one",
    ),
    "a built-in model without what clients keep": (
        {"run": {"method": "fedrep"}, "method": {"personal": "batch_norm"}, "model": {"name": "cnn4"}},
        "model 'cnn4' has no BatchNorm layer, and method.personal = \"batch_norm\" is about such layers",
    ),
    "a decay of no average": (
        {"method": {"average_decay": 0.5}},
        'method.average_decay = 0.5 does nothing without method.global_average = "ema"; set that, or leave it out',
    ),
    "a stem of no model": (
        {"model": {"name": "cnn5", "stem": "cifar3x3"}},
        "model.stem = \"cifar3x3\": model 'cnn5' has no stem to choose; leave the key out",
    ),
    "options of a built-in model": (
        {"model": {"name": "cnn4", "options": {"width": 2}}},
        "model.options: model 'cnn4' takes no options; they are for timm:NAME and package.module:factory",
    ),
    "an option of timm": (
        {"model": {"name": "timm:resnet18", "options": {"hidden_dim": -1}}},
        "model.options.hidden_dim = -1: it must be at least 0",
    ),
    "augment": (
        {"training": {"augment": ["crop", "turn"]}},
        'training.augment.1 = "turn": it must be one of crop, resized_crop, flip, color, gray, or package',
    ),
    "partition": ({"method": {"partition": "best"}}, 'method.partition = "best": '),
    "a text for a number": ({"run": {"rounds": "30"}}, 'run.rounds = "30": write a whole number'),
    "a truth for a number": ({"run": {"rounds": True}}, "run.rounds = true: write a whole number"),
    "a truth for a float": ({"method": {"tau": True}}, "method.tau = true: write a number"),
    "a fraction for a count": ({"run": {"rounds": 2.5}}, "run.rounds = 2.5: write a whole number"),
    "a number for a class": ({"data": {"classes": [0, 1]}}, "data.classes.0 = 0: write a text"),
}


@pytest.mark.parametrize("what", OUT_OF_RANGE)
def test_a_value_out_of_range_is_named_with_its_key_and_its_range(what: str) -> None:
    sections, sentence = OUT_OF_RANGE[what]
    assert sentence in problem(a_document(**sections))


CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "roster and number": ({"run": {"min_clients": 2}}, "set exactly one of 'clients' (the roster) and 'min_clients'"),
    "neither": ({"run": {"clients": None}}, "set exactly one of 'clients' (the roster) and 'min_clients'"),
    "no client": ({"run": {"clients": []}}, "run.clients: the roster must name at least one client"),
    "a client twice": ({"run": {"clients": ["ann", "ann"]}}, "run.clients: the roster names a client twice"),
    "a bad name": ({"run": {"clients": ["ann", "../etc"]}}, 'run.clients.1 = "../etc": a name is up to 64 letters'),
    "a large cohort": ({"run": {"cohort_size": 3}}, "cohort_size = 3 is more than the 2 clients of the run"),
    "weights that are not named by content": (
        {"model": {"name": "timm:resnet18", "weights": "mine"}},
        "keep one with `fedplcc weights add FILE|PACKAGE --name mine`",
    ),
    "weights by the former key": (
        {"model": {"name": "timm:resnet18", "options": {"pretrained": True}}},
        "model.options: 'pretrained' is gone: owners keep weights with `fedplcc weights add`",
    ),
    "a digest of no weights": (
        {"model": {"name": "timm:resnet18", "weights_sha256": "0" * 64}},
        "it is the SHA-256 of the backbone that 'weights' names, which is not set",
    ),
    "a digest of another form": (
        {"model": {"name": "timm:resnet18", "weights": "mine", "weights_sha256": "ABC"}},
        'model.weights_sha256 = "ABC"',
    ),
    "weights of a model that has none": (
        {"model": {"name": "cnn4", "weights": "mine", "weights_sha256": "0" * 64}},
        "model 'cnn4' begins with no weights; timm:NAME, resnet10 and resnet18 may",
    ),
    "two lengths": (
        {"training": {"local_steps": 1, "local_epochs": 1}},
        "training: set exactly one of 'local_steps' and 'local_epochs'",
    ),
    "one class": ({"data": {"classes": ["cat"]}}, "data.classes needs at least 2 entries, not 1"),
    "no class": ({"data": {"classes": []}}, "data.classes needs at least 2 entries, not 0"),
    "too many classes": ({"data": {"classes": ["x"] * 10_001}}, "data.classes takes at most 10000 entries"),
    "too many means": ({"data": {"mean": [0.5] * 4}}, "data.mean takes at most 3 entries, not 4"),
    "a class twice": ({"data": {"classes": ["cat", "cat"]}}, "data.classes: a class is named twice"),
    "a class without a name": ({"data": {"classes": ["cat", ""]}}, "data.classes: '' is no name of 1 to 128"),
    "an unprintable class": ({"data": {"classes": ["cat", "\ud800"]}}, "data.classes: '\\ud800' is no name of"),
    "options that are no JSON": ({"model": {"options": {"x": {1, 2}}}}, "model.options.x: input was not a valid JSON"),
    "a date among options": ({"model": {"options": {"x": datetime.date(2020, 1, 1)}}}, "not a valid JSON value"),
    "NaN among options": ({"model": {"options": {"x": float("nan")}}}, "write a finite number"),
    "a number for a section": ({"training": 3}, "training is a table of keys, not 3"),
    "a number for hyper-parameters": ({"method": 3}, "method is a table of keys, not 3"),
    "a text for the run": ({"run": "fedavg"}, 'run is a table of keys, not "fedavg"'),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_what_cannot_be_meant_is_explained(what: str) -> None:
    sections, sentence = CONTRADICTIONS[what]
    assert sentence in problem(a_document(**sections))


def test_entries_that_are_wrong_make_no_list_that_is_too_short() -> None:
    assert problem(a_document(data={"classes": [1, 2]})) == "data.classes.0 = 1: write a text"


@pytest.mark.parametrize("document", [None, [], "fedavg", 3])
def test_what_is_no_table_is_told_so(document: Any) -> None:
    assert problem(document).startswith("a run configuration is a table with the sections run, method, model, data")


def test_either_length_may_be_given() -> None:
    assert parse_run_config(a_document(training={"local_epochs": 2})).training.local_steps is None
    assert parse_run_config(a_document(training={"local_steps": 2})).training.local_epochs is None


# Files


def test_a_file_without_an_end_is_no_configuration_and_a_pipe_may_be_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"/dev/zero has more than 16,777,216 bytes"):
        read_document(Path("/dev/zero"))
    reading, writing = os.pipe()
    with open(writing, "w") as file:
        file.write("a = 1")
    try:
        assert read_document(Path(f"/dev/fd/{reading}")) == {"a": 1}
    finally:
        os.close(reading)


def federation(**sections: Any) -> FederationFile:
    return parse_federation(a_document(run={"clients": None}, **sections))


def test_the_clients_tables_are_the_roster_where_the_run_names_none() -> None:
    tables = {"zoe": {"data": "digits:mnist"}, "ann": {"data": "folder:/data", "domain": "city"}}
    found = federation(clients=tables)
    assert found.config.run.clients == ("ann", "zoe")
    assert (found.clients["ann"].domain, found.clients["zoe"].domain) == ("city", None)
    named = parse_federation(a_document(clients=tables))
    assert named.config.run.clients == ("ann", "bob")
    waiting = parse_federation(a_document(run={"clients": None, "min_clients": 2}, clients=tables))
    assert waiting.config.run.clients is None


def test_a_run_document_does_not_take_clients_tables() -> None:
    assert "unknown key 'clients'" in problem(a_document(clients={"ann": {"data": "digits:mnist"}}))


BAD_CLIENTS = {
    "no data": ({"ann": {"domain": "city"}}, "clients.ann.data is missing"),
    "an unknown key": ({"ann": {"data": "x", "sample_per_class": 3}}, "did you mean 'clients.ann.samples_per_class'?"),
    "no samples": (
        {"ann": {"data": "x", "samples_per_class": 0}},
        "clients.ann.samples_per_class = 0: it must be",
    ),
    "no share": ({"ann": {"data": "x", "fraction": 0.0}}, "clients.ann.fraction = 0.0: it must be more than 0"),
    "too much": ({"ann": {"data": "x", "fraction": 1.5}}, "clients.ann.fraction = 1.5: it must be at most 1"),
    "two sizes": (
        {"ann": {"data": "x", "fraction": 0.3, "samples_per_class": 3}},
        "clients.ann: set at most one of 'samples_per_class' and 'fraction'",
    ),
    "a bad name": ({"a b": {"data": "x"}}, "clients.a b: a client's name is up to 64 letters, digits"),
    "a bad domain": ({"ann": {"data": "x", "domain": "a b"}}, 'clients.ann.domain = "a b": a name is up to 64'),
    "no table": ({"ann": "digits:mnist"}, 'clients.ann is a table of keys, not "digits:mnist"'),
    "no tables": (["ann"], "[clients] holds one table per client: [clients.NAME]"),
}


@pytest.mark.parametrize("what", BAD_CLIENTS)
def test_a_wrong_client_table_is_explained(what: str) -> None:
    tables, sentence = BAD_CLIENTS[what]
    with pytest.raises(InvalidConfig, match=re.escape(sentence)):
        federation(clients=tables)


FILES = {
    "a syntax error": (b"[run\nmethod = 3", r"run\.toml is not TOML: .*line 1"),
    "a key twice": (b"[run]\nseed = 1\nseed = 2", r"run\.toml is not TOML: Cannot overwrite a value"),
    "lists without end": (b"a = " + b"[" * 100_000, r"run\.toml is not TOML: "),
    "a number without end": (b"a = " + b"9" * 5_000, r"run\.toml is not TOML: "),
    "no text": (b"\xff\xfe\x00", r"run\.toml is not UTF-8 text; save it as UTF-8$"),
    "an empty file": (b"", "run is missing; data is missing"),
    "an empty file with a byte order mark": (b"\xef\xbb\xbf", "run is missing; data is missing"),
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_is_no_configuration_is_explained(tmp_path: Path, what: str) -> None:
    content, sentence = FILES[what]
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(InvalidConfig, match=sentence):
        load_federation(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot read .*nothing\.toml: No such file"):
        load_federation(tmp_path / "nothing.toml")
    with pytest.raises(InvalidConfig, match=r"cannot read .*: Is a directory"):
        load_federation(tmp_path)
