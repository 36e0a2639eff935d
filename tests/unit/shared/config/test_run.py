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


def test_whole_numbers_pass_for_floats_and_lists_for_tuples() -> None:
    document = a_document(training={"learning_rate": 1}, method={"lambda1": 3}, data={"mean": [0, 0.5, 1]})
    config = parse_run_config(document)
    assert config.training.learning_rate == 1.0
    assert config.data.mean == (0.0, 0.5, 1.0)


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("resnet10", "imagenet5x5"),
        ("resnet18", "imagenet7x7"),
        ("cnn4", None),
        ("timm:vit.in21k", None),
        ("m:Net", None),
    ],
)
def test_models_are_built_in_of_timm_or_factories_and_have_their_usual_stem(name: str, stem: str | None) -> None:
    config = parse_run_config(a_document(model={"name": name}))
    assert (config.model.name, config.model.stem) == (name, stem)
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
    admission = {"quarantined": ["zed", "ann", "zed"]}
    training: dict[str, Any] = {"adversarial": {}, "mix_style": {}}
    quorum = {"deadline_s": 600.0, "min_clients": 1}
    config = parse_run_config(a_document(quorum=quorum, admission=admission, training=training))
    assert (config.quorum.silence_s, config.admission.quarantined) == (120.0, ("ann", "zed"))
    attack = present(config.training.attack)
    assert (attack.epsilon, attack.step_size, attack.steps) == (8 / 255, 2 / 255, 7)
    assert config.training.mix_style == {"probability": 0.5, "alpha": 0.1}
    plain = parse_run_config(a_document()).training
    assert (plain.attack, plain.mixing) == (None, None)


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
    more = {**document, "admission": {"max_prototypes_per_class": most + 1}}
    with pytest.raises(InvalidConfig, match=rf"at most {most} can be allowed|at most 4096"):
        parse_run_config(more)
    stale = parse_run_config({**document, "method": {"proto_staleness": 1}})
    assert stale.num_pooled_clients == run["min_clients"], "prototypes of clients that are not in the cohort stay"


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


def test_attacks_on_test_images_are_as_large_as_those_of_training_unless_it_is_said() -> None:
    grey = {"adversarial": {"epsilon": 0.3, "step_size": 0.075}}
    assert parse_run_config(a_document(evaluation={"attacks": ["pgd20", "fgsm"]})).attack_epsilon == 8 / 255
    assert parse_run_config(a_document(training=grey)).attack_epsilon == 0.3
    chosen = parse_run_config(a_document(training=grey, evaluation={"attacks": ["pgd20", "fgsm"], "epsilon": 0.1}))
    assert (chosen.attack_epsilon, chosen.evaluation.attacks) == (0.1, ("fgsm", "pgd20"))


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

FEDREP, OWN_NORM = {"method": "fedrep"}, {"personal": "batch_norm"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"run": {"round": 3}}, "unknown key 'run.round'; did you mean 'run.rounds'?"),
    ({"trainin": {"threads": 2}}, "unknown key 'trainin'; did you mean 'training'?"),
    ({"model": {"qqq": 3}}, "unknown key 'model.qqq'; known: model.name, model.norm, model.options, model.stem"),
    ({"method": {"lambda_1": 3}}, "unknown key 'method.lambda_1'; did you mean 'method.lambda1'?"),
    ({"run": {"method": "fedavg"}, "method": {"lambda1": 3}}, "unknown key 'method.lambda1'; known"),
    ({"run": {"method": "fedplc"}}, "unknown method 'fedplc'; did you mean 'fedplcc'?"),
    ({"run": {"method": "zzz"}}, "unknown method 'zzz'; known: "),
    ({"model": {"name": "resnet-10"}}, "unknown model 'resnet-10'; did you mean 'resnet10'?"),
    ({"model": {"name": "zzz"}}, "or write timm:NAME or package.module:factory"),
    ({"model": {"name": "timm:hf-hub:a/b"}}, "names of other hubs are not taken"),
    ({"model": {"name": "timm:resnet18", "options": {"hidden": 3}}}, "unknown key 'model.options.hidden'; did you"),
    ({"run": {"rounds": 0}}, "run.rounds = 0: it must be at least 1"),
    ({"run": {"rounds": 1, "method": "classsums"}}, "run.rounds = 1: as it is set, method classsums needs 2, the last"),
    ({"run": {"rounds": 10**9}}, "run.rounds = 1000000000: it must be at most"),
    ({"run": {"seed": -1}}, "run.seed = -1: it must be at least 0"),
    ({"run": {"seed": 2**31}}, "run.seed = 2147483648: it must be less than 2147483648"),
    ({"method": {"tau": 0}}, "method.tau = 0: it must be at least 0.001"),
    ({"method": {"phi": 1.5}}, "method.phi = 1.5: it must be at most 1"),
    ({"method": {"lambda1": -1}}, "method.lambda1 = -1: it must be at least 0"),
    ({"method": {"lambda1": float("nan")}}, "method.lambda1 = NaN: write a finite number"),
    ({"training": {"learning_rate": float("inf")}}, "training.learning_rate = Infinity: write a"),
    ({"training": {"momentum": 1}}, "training.momentum = 1: it must be less than 1"),
    ({"training": {"batch_size": 1}}, "training.batch_size = 1: it must be at least"),
    ({"data": {"image_size": 7}}, "data.image_size = 7: it must be at least 8"),
    ({"data": {"std": [0.5, 0, 0.5]}}, "data.std.1 = 0: it must be more than 0"),
    ({"data": {"mean": [0.5, 0.5]}}, "data.mean.2 is missing"),
    ({"model": {"stem": "big"}}, "model.stem = \"big\": model 'resnet10' has the stems imagenet5x5, cifar3x3"),
    ({"model": {"name": "resnet18", "stem": "imagenet5x5"}}, "model.stem = \"imagenet5x5\": model 'resnet18' has the"),
    ({"model": {"norm": "layer"}}, "model.norm = \"layer\": it must be 'batch' or 'group'"),
    ({"model": {"name": "cnn5", "norm": "group"}}, "model.norm = \"group\": model 'cnn5' has no normalisation to"),
    ({"run": FEDREP, "method": OWN_NORM, "model": {"norm": "group"}}, 'and method.personal = "batch_norm" is about'),
    ({"model": {"norm": "group"}, "evaluation": {"batch_norm": "site"}}, 'model.norm = "group" leaves no BatchNorm'),
    ({"model": {"name": "cnn5"}, "evaluation": {"batch_norm": "site"}}, "model 'cnn5' has no BatchNorm layer, and"),
    ({"run": FEDREP, "method": OWN_NORM, "model": {"name": "cnn4"}}, "has no BatchNorm layer, and method.personal"),
    ({"method": {"average_decay": 0.5}}, "method.average_decay = 0.5 does nothing without method.global_average ="),
    ({"model": {"name": "cnn5", "stem": "cifar3x3"}}, "model.stem = \"cifar3x3\": model 'cnn5' has no stem to choose"),
    ({"model": {"name": "cnn4", "options": {"width": 2}}}, "model.options: model 'cnn4' takes no options; they are"),
    ({"model": {"name": "timm:resnet18", "options": {"hidden_dim": -1}}}, "model.options.hidden_dim = -1: it must be"),
    ({"training": {"augment": ["crop", "turn"]}}, 'training.augment.1 = "turn": it must be one of crop, resized_crop'),
    ({"method": {"partition": "best"}}, 'method.partition = "best": '),
    ({"run": {"rounds": "30"}}, 'run.rounds = "30": write a whole number'),
    ({"run": {"rounds": True}}, "run.rounds = true: write a whole number"),
    ({"method": {"tau": True}}, "method.tau = true: write a number"),
    ({"run": {"rounds": 2.5}}, "run.rounds = 2.5: write a whole number"),
    ({"data": {"classes": [0, 1]}}, "data.classes.0 = 0: write a text"),
    ({"run": {"min_clients": 2}}, "set exactly one of 'clients' (the roster) and 'min_clients'"),
    ({"run": {"clients": None}}, "set exactly one of 'clients' (the roster) and 'min_clients'"),
    ({"run": {"clients": []}}, "run.clients: the roster must name at least one client"),
    ({"run": {"clients": ["ann", "ann"]}}, "run.clients: the roster names a client twice"),
    ({"run": {"clients": ["ann", "../etc"]}}, 'run.clients.1 = "../etc": a name is up to 64 letters'),
    ({"run": {"cohort_size": 3}}, "cohort_size = 3 is more than the 2 clients of the run"),
    ({"model": {"name": "timm:resnet18", "weights": "mine"}}, "keep one with `fedplcc weights add FILE|PACKAGE --name"),
    ({"model": {"name": "timm:resnet18", "options": {"pretrained": True}}}, "model.options: 'pretrained' is gone"),
    ({"model": {"name": "timm:resnet18", "weights_sha256": "0" * 64}}, "it is the SHA-256 of the backbone that"),
    ({"model": {"name": "timm:resnet18", "weights": "mine", "weights_sha256": "ABC"}}, 'model.weights_sha256 = "ABC"'),
    ({"model": {"name": "cnn4", "weights": "mine", "weights_sha256": "0" * 64}}, "model 'cnn4' begins with no"),
    ({"training": {"local_steps": 1, "local_epochs": 1}}, "training: set exactly one of 'local_steps' and"),
    ({"data": {"classes": ["cat"]}}, "data.classes needs at least 2 entries, not 1"),
    ({"data": {"classes": []}}, "data.classes needs at least 2 entries, not 0"),
    ({"data": {"classes": ["x"] * 10_001}}, "data.classes takes at most 10000 entries"),
    ({"data": {"mean": [0.5] * 4}}, "data.mean takes at most 3 entries, not 4"),
    ({"data": {"classes": ["cat", "cat"]}}, "data.classes: a class is named twice"),
    ({"data": {"classes": ["cat", ""]}}, "data.classes: '' is no name of 1 to 128"),
    ({"data": {"classes": ["cat", "\ud800"]}}, "data.classes: '\\ud800' is no name of"),
    ({"model": {"options": {"x": {1, 2}}}}, "model.options.x: input was not a valid JSON"),
    ({"model": {"options": {"x": datetime.date(2020, 1, 1)}}}, "not a valid JSON value"),
    ({"model": {"options": {"x": float("nan")}}}, "write a finite number"),
    ({"training": 3}, "training is a table of keys, not 3"),
    ({"method": 3}, "method is a table of keys, not 3"),
    ({"run": "fedavg"}, 'run is a table of keys, not "fedavg"'),
    ({"admission": {"max_update_norm": 0.0}}, "admission.max_update_norm = 0.0: it must be more than 0"),
    ({"admission": {"max_update_norm": float("inf")}}, "admission.max_update_norm = Infinity: write a finite number"),
    ({"admission": {"quarantine_after": True}}, "admission.quarantine_after = true: write a whole number"),
    ({"admission": {"quarantined": ["bob", "ann"]}}, "admission.quarantined names every client of the run; leave at"),
    ({"admission": {"max_prototypes_per_class": 4097}}, "admission.max_prototypes_per_class = 4097: it must be at"),
    ({"admission": {"max_update_nrm": 1.0}}, "unknown key 'admission.max_update_nrm'; did you mean"),
    ({"training": {"mix_style": {"alfa": 0.1}}}, "did you mean 'training.mix_style.alpha'"),
    ({"training": {"mix_style": {"alpha": 0.0}}}, "training.mix_style.alpha = 0.0: it must be more than 0"),
    ({"training": {"mix_style": {"probability": 1.5}}}, "training.mix_style.probability = 1.5"),
    ({"training": {"mix_style": {"probability": 0}}}, "training.mix_style.probability = 0"),
    ({"training": {"mix_style": {}}, "model": {"name": "cnn4"}}, "training.mix_style mixes features of resnet10 and"),
    ({"training": {"mix_style": {}}, "method": {"proto_pass": "last_epoch"}}, "training.mix_style are mixed; leave"),
    ({"training": {"adversarial": {"epsilom": 0.1}}}, "did you mean 'training.adversarial.epsilon'"),
    ({"training": {"adversarial": {"epsilon": 0.0}}}, "training.adversarial.epsilon = 0.0"),
    ({"training": {"adversarial": {"steps": 0}}}, "training.adversarial.steps = 0"),
    ({"evaluation": {"attacks": ["pgd"]}}, "evaluation.attacks"),
    ({"evaluation": {"epsilon": 2.0}}, "evaluation.epsilon = 2.0"),
    ({"quorum": {"min_clients": 2}}, "quorum: set 'deadline_s' too: without a deadline every round waits for its"),
    ({"quorum": {"deadline_s": 600.0}}, "quorum: deadline_s drops nobody while the quorum is the whole cohort; set"),
    ({"quorum": {"deadline_s": 600.0, "min_clients": 3}}, "quorum.min_clients = 3 is more than 2, the number of"),
    ({"quorum": {"deadline_s": 600.0, "min_clients": 2}, "run": {"cohort_size": 1}}, "quorum.min_clients = 2 is more"),
    ({"quorum": {"deadline_s": 6.0, "min_clients": 5}, "run": {"clients": None, "min_clients": 4}}, "5 is more than 4"),
    ({"quorum": {"deadline_s": -1.0}}, "quorum.deadline_s = -1.0: it must be at least 0"),
    ({"quorum": {"deadline_s": 60.0, "min_clients": 1, "hard_deadline_s": 60.0}}, "quorum: set 'hard_deadline_s' to"),
    ({"quorum": {"on_no_quorum": "stop"}}, "quorum.on_no_quorum = \"stop\": it must be 'wait' or 'fail'"),
    ({"quorum": {"deadline": 600.0}}, "unknown key 'quorum.deadline'; did you mean 'quorum.deadline_s'?"),
    ({"quorum": {"min_clients": 2, "deadline_s": 60.0}, "admission": {"quarantined": ["bob"]}}, "is more than 1, the"),
    ({"evaluation": {"every": 0}}, "evaluation.every"),
    ({"evaluation": {"last": 0}}, "evaluation.last"),
    ({"training": {"adversarial": {}}, "method": {"proto_pass": "last_epoch"}}, "of attacked images; leave one of"),
    ({"data": {"classes": [1, 2]}}, "data.classes.0 = 1: write a text"),
    ({"clients": {"ann": {"data": "digits:mnist"}}}, "unknown key 'clients'"),
]
"""Sections of a document, and part of the sentence that refuses them."""


@pytest.mark.parametrize(("sections", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_what_cannot_be_is_refused_by_its_key(sections: dict[str, Any], sentence: str) -> None:
    assert sentence in problem(a_document(**sections))


@pytest.mark.parametrize("document", [None, [], "fedavg", 3])
def test_what_is_no_table_is_told_so(document: Any) -> None:
    assert problem(document).startswith("a run configuration is a table with the sections run, method, model, data")


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


BAD_CLIENTS: list[tuple[Any, str]] = [
    ({"ann": {"domain": "city"}}, "clients.ann.data is missing"),
    ({"ann": {"data": "x", "sample_per_class": 3}}, "did you mean 'clients.ann.samples_per_class'?"),
    ({"ann": {"data": "x", "samples_per_class": 0}}, "clients.ann.samples_per_class = 0: it must be"),
    ({"ann": {"data": "x", "fraction": 0.0}}, "clients.ann.fraction = 0.0: it must be more than 0"),
    ({"ann": {"data": "x", "fraction": 1.5}}, "clients.ann.fraction = 1.5: it must be at most 1"),
    ({"ann": {"data": "x", "fraction": 0.3, "samples_per_class": 3}}, "clients.ann: set at most one of"),
    ({"a b": {"data": "x"}}, "clients.a b: a client's name is up to 64 letters, digits"),
    ({"ann": {"data": "x", "domain": "a b"}}, 'clients.ann.domain = "a b": a name is up to 64'),
    ({"ann": "digits:mnist"}, 'clients.ann is a table of keys, not "digits:mnist"'),
    (["ann"], "[clients] holds one table per client: [clients.NAME]"),
]


@pytest.mark.parametrize(("tables", "sentence"), BAD_CLIENTS, ids=[sentence for _, sentence in BAD_CLIENTS])
def test_a_wrong_client_table_is_explained(tables: Any, sentence: str) -> None:
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
    for other in (tmp_path / "nothing.toml", tmp_path):
        with pytest.raises(InvalidConfig, match=r"cannot read .*: (No such file|Is a directory)"):
            load_federation(other)
