"""Claims of privacy: every method, claim and setting is tried, and what is untrue is refused with the sentence why."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.config.problems import run_problems
from fedplcc.shared.config.run import parse_federation, parse_run_config
from fedplcc.shared.config.younger_keys import YOUNGER_KEYS
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods.parts.private_sums import SUMS, PrivateSums
from fedplcc.shared.privacy.guarantee import noise_for
from fedplcc.shared.types import GLOBAL_MODEL
from tests.support import present
from tests.support.records.method_settings import SETTINGS, public_of

CLAIMS = ("none", "prototypes", "site")
EPSILON = {"clip": 0.1, "epsilon": 1.0, "delta": 1e-5}
OF_CLASS_MEANS = ("fedpcl", "fedproto", "fedmlp", "fpl", "fedproc")
FROZEN: dict[str, Any] = {
    "model": {"name": "timm:test_resnet", "weights": "tiny", "weights_sha256": "ab" * 32},
    "training": {"train": "head"},
}
UNTRUE: dict[str, tuple[dict[str, Any], str]] = {
    "trained backbone": ({"training": {"train": "all"}}, 'training.train = "all"'),
    "trained blocks": ({"training": {"train": "last:1"}}, 'training.train = "last:1"'),
    "first model": ({"run": {"initial_model": "sha256:" + "cd" * 32}}, "run.initial_model"),
    "trained weights": ({"run": {"initial_runs": ["digits-1"]}}, "run digits-1 trained the weights (run.initial_runs)"),
    "window of all": ({"data": {"window": "auto"}}, 'data.window = "auto"'),
    "validation": ({"data": {"validation_every": 5}}, "data.validation_every"),
    "patience": ({"run": {"patience": 3}}, "run.patience"),
    "own classes": ({"evaluation": {"own_classes": True}}, "evaluation.own_classes"),
}
"""Settings with which "site" alone is untrue, and what the sentence names."""


def a_document(method: str, privacy: dict[str, Any], *layers: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "run": {"method": method, "rounds": 4, "clients": ["a", "b"]},
        "data": {"classes": ["x", "y", "z"]},
        "privacy": privacy,
    }
    for layer in layers:
        for name, values in layer.items():
            document[name] = {**document.get(name, {}), **values}
    return document


def sums(claim: str = "site", *layers: dict[str, Any], **privacy: Any) -> dict[str, Any]:
    means = {"method": {"head": "means"}}
    return a_document("classsums", {**EPSILON, "claim": claim, **privacy}, FROZEN, means, *layers)


def refused(document: dict[str, Any]) -> str:
    with pytest.raises(InvalidConfig) as error:
        parse_run_config(document)
    return error.value.detail


def test_every_method_claim_and_setting_is_true_or_refused() -> None:
    outcomes: Counter[str] = Counter()
    settings = [(setting.method.name, dict(setting.hyper)) for setting in SETTINGS]
    for (name, hyper), claim, every in itertools.product(settings, CLAIMS, (None, 0, 1)):
        has_noise = every is not None
        privacy = {**(EPSILON if has_noise else {}), **({"release_every": every} if every else {}), "claim": claim}
        layers = [{"method": hyper}, public_of(name, hyper)]
        is_frozen = not run_problems(a_document(name, {}, *layers, FROZEN))
        layers += [FROZEN] if is_frozen else []
        assert not run_problems(a_document(name, {}, *layers)), (name, hyper)
        is_of_sums = hyper == {"head": "means"}
        is_of_means = name in OF_CLASS_MEANS and every == 1 and claim != "site"
        is_of_means &= hyper.get("proto_pass") != "last_epoch"
        is_true = is_of_sums or is_of_means if has_noise else claim == "none"
        problems = run_problems(a_document(name, privacy, *layers))
        assert bool(problems) != is_true, (name, hyper, claim, every, problems)
        assert all(problem.location.startswith("privacy") for problem in problems), problems
        outcomes["without noise" if is_true and not has_noise else "true" if is_true else "refused"] += 1
    num_means = sum(name in OF_CLASS_MEANS and "proto_pass" not in hyper for name, hyper in settings)
    assert num_means >= len(OF_CLASS_MEANS)
    assert outcomes["without noise"] == len(settings)
    assert outcomes["true"] == 2 * len(CLAIMS) + 2 * num_means
    assert outcomes.total() == 9 * len(settings)


@pytest.mark.parametrize("case", UNTRUE)
@pytest.mark.parametrize("claim", CLAIMS)
def test_a_setting_by_which_more_leaves_refuses_the_claim_of_a_site_alone(claim: str, case: str) -> None:
    layer, said = UNTRUE[case]
    document = sums(claim, layer)
    if claim != "site":
        assert parse_run_config(document).privacy.claim == claim
        return
    sentence = refused(document)
    assert said in sentence
    assert "all that is made of training images" in sentence


def test_no_noise_makes_clusters_private() -> None:
    for name in ("fedplcc", "fedplvm", "fedccl"):
        assert "a partition depends on every image" in refused(a_document(name, {**EPSILON}))
    assert "needs the second moment" in refused(a_document("classsums", {**EPSILON}, {"method": {"head": "lda"}}))
    assert "sends none" in refused(a_document("fedavg", {**EPSILON}))
    every = {**EPSILON, "release_every": 1}
    assert "each is a release" in refused(a_document("fedproto", {**EPSILON}))
    assert "more than once" in refused(a_document("fpl", every, {"method": {"proto_pass": "last_epoch"}}))
    site = {"training": {"prototype_statistics": "site"}}
    assert "depend on all others" in refused(a_document("fedproc", every, site))
    assert "trained on the images in the clear" in refused(a_document("fedproto", {**every, "claim": "site"}))
    assert "stages of [stream]" in refused(sums("none", {"stream": {"stages": 2, "rounds_per_stage": 2}}))


@pytest.mark.parametrize(
    ("privacy", "said"),
    [
        ({"claim": "site"}, "needs noise"),
        ({"epsilon": 1.0, "delta": 1e-5}, "set 'clip' too"),
        ({"clip": 1.0}, "set either 'noise', or both"),
        ({"clip": 1.0, "epsilon": 1.0}, "'epsilon' and 'delta' both"),
        ({"clip": 1.0, "noise": 1.0, "epsilon": 1.0, "delta": 1e-5}, "set either 'noise', or both"),
        ({"release_every": 2}, "set 'clip' too"),
        ({"clip": 0.0, "noise": 1.0}, "at least 0.001"),
        ({"clip": 1.0, "noise": 0.001, "claim": "prototypes"}, "come to no epsilon"),
        ({"clip": 1e3, "noise": 1e5}, "may come to 2^30 or more"),
        ({"clip": 1.0, "noise": 1.0, "claim": "clusters"}, "claim"),
    ],
)
def test_half_a_setting_is_told_what_is_missing(privacy: dict[str, Any], said: str) -> None:
    assert said in refused(a_document("classsums", privacy, {"method": {"head": "means"}}))


@pytest.mark.parametrize(
    ("client", "said"),
    [
        ({"samples_per_class": 3}, "samples_per_class = 3 chooses images by what others there are"),
        ({"fraction": 0.5}, "fraction"),
        ({"validation_per_class": 2}, "validation_per_class"),
        ({"data": "part:0/2:iid:folder:x"}, "looks at all of them"),
        ({"data": "long_tail(imbalance=10):folder:x"}, "looks at all of them"),
    ],
)
def test_a_subset_that_depends_on_other_images_refuses_the_claim(client: dict[str, Any], said: str) -> None:
    document = {**sums("site"), "clients": {"a": {"data": "folder:x"}, "b": {"data": "folder:y", **client}}}
    with pytest.raises(InvalidConfig, match=r"clients\.b") as error:
        parse_federation(document)
    assert said in error.value.detail
    parse_federation({**document, "privacy": {**document["privacy"], "claim": "prototypes"}})


def test_with_noise_a_client_sends_sums_alone_and_scores_the_head_that_it_received() -> None:
    config = parse_run_config(sums("site"))
    method, hyper = config.algorithm, config.method
    assert list(method.uploads(hyper, 3, 8)) == [SUMS]
    assert config.evaluated_models == (GLOBAL_MODEL,)
    assert method.sends(hyper) == ()
    assert not method.shares_model(hyper)
    assert not method.keeps_client_state
    assert method.phases(hyper) == ()
    part = present(method.part(PrivateSums))
    assert (part.clip, part.noise) == (0.1, noise_for(1.0, 1e-5, 1))
    assert parse_run_config(sums("none")).algorithm.has_global_model(hyper)


def test_releases_of_a_run_share_its_epsilon() -> None:
    noises = []
    for every in (None, 3, 1):  # one release of the four rounds, two, four
        release = present(parse_run_config(sums("site", release_every=every)).release)
        noises.append(release.noise)
    np.testing.assert_allclose(noises, noises[0] * np.sqrt([1, 2, 4]))
    rounds = parse_run_config(sums("site", release_every=3)).privacy
    assert [rounds.release_round(number, 4) for number in (1, 2, 3, 4, 5, 9)] == [1, 1, 1, 4, 4, 4]
    assert [parse_run_config(sums("site")).privacy.release_round(number, 4) for number in (1, 4)] == [1, 1]


def test_a_run_without_noise_keeps_its_hash() -> None:
    plain = parse_run_config({name: table for name, table in sums().items() if name != "privacy"})
    assert "privacy" not in plain.canonical_json
    unset = {key.partition(".")[2]: value for key, value in YOUNGER_KEYS.items() if key.startswith("privacy.")}
    assert parse_run_config({**sums(), "privacy": unset}).hash == plain.hash
    assert parse_run_config(sums()).hash != plain.hash
