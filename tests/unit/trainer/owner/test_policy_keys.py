"""Every key of a policy from both sides: what it allows, and what it forbids with its sentence, or leaves out."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.config.sections import dotted_keys, validate
from fedplcc.shared.config.settings import TrainerSettings
from fedplcc.shared.errors import CodeNotAllowed
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.parts.public import PUBLIC
from fedplcc.shared.tensors import prototypes_from_bytes
from fedplcc.shared.types import MODEL, Evaluation, Payload, Task, TaskKind, Update
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.owner.policy import NO_POLICY, Policy
from fedplcc.trainer.owner.refusals import TELLS, PolicyForbids, check_policy, refusals
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from tests.unit.trainer.memory_aggregator import MemoryAggregator
from tests.unit.trainer.tasks import CLASSES, a_run, a_train_task

SHA256, OTHER = "a" * 64, "b" * 64
BACKBONE = {"name": "timm:test_resnet", "weights": "tiny", "weights_sha256": SHA256}
SUMS: dict[str, Any] = {
    "run": {"method": "classsums"},
    "model": BACKBONE,
    "training": {"train": "head"},
    "method": {"head": "means"},
}
PRIVATE = {**SUMS, "privacy": {"clip": 0.1, "epsilon": 3.0, "delta": 1e-5, "claim": "site"}}


def a_policy(text: str) -> Policy:
    return validate(Policy, tomllib.loads(text), "")


def a_config(sections: dict[str, Any]) -> RunConfig:
    document: dict[str, Any] = {
        "run": {"method": "fedavg", "rounds": 3, "clients": ["ann"]},
        "model": {"name": "cnn4"},
        "data": {"classes": list(CLASSES), "image_size": 16},
        "training": {"local_steps": 2, "batch_size": 4},
    }
    for name, values in sections.items():
        document[name] = {**document.get(name, {}), **values}
    if "name" in sections.get("model", {}):
        document["model"] = sections["model"]
    if "local_epochs" in document["training"]:
        del document["training"]["local_steps"]
    return parse_run_config(document)


def budget(**privacy: Any) -> dict[str, Any]:
    return {**PRIVATE, "privacy": {**PRIVATE["privacy"], **privacy}}


Sections = dict[str, Any]
OTHER_BACKBONE = {**SUMS, "model": {**BACKBONE, "weights_sha256": OTHER}}
TWO_PHASES = {"run": {"method": "fedrep"}, "method": {"head_epochs": 3}, "training": {"local_epochs": 2}}
OWN_MODELS = {"run": {"method": "fedproto"}, "method": {"share_model": False}}
KEPT_HEADS = {"run": {"method": "fedrep"}, "training": {"local_epochs": 1}}
FORBIDDEN: dict[str, tuple[str, list[Sections], list[tuple[Sections, str]]]] = {
    "runs.methods": (
        'runs.methods = ["fedavg", "moon"]',
        [{}, {"run": {"method": "moon"}}],
        [({"run": {"method": "fedplcc"}}, '["fedavg", "moon"], and the run has run.method = "fedplcc"')],
    ),
    "runs.models": (
        'runs.models = ["cnn4"]',
        [{}],
        [({"model": {"name": "resnet10"}}, '["cnn4"], and the run has model.name = "resnet10"')],
    ),
    "runs.backbones": (
        f'runs.backbones = ["{SHA256}"]',
        [{}, SUMS],
        [(OTHER_BACKBONE, f'["{SHA256}"], and the run has model.weights_sha256 = "{OTHER}"')],
    ),
    "runs.most_rounds": (
        "runs.most_rounds = 5",
        [{"run": {"rounds": 5}}],
        [({"run": {"rounds": 6}}, "5, and the run has 6 rounds (run.rounds)")],
    ),
    "runs.most_image_size": (
        "runs.most_image_size = 32",
        [{"data": {"image_size": 32}}],
        [({"data": {"image_size": 33}}, "32, and the run has data.image_size = 33")],
    ),
    "runs.most_local_steps": (
        "runs.most_local_steps = 4",
        [{"training": {"local_steps": 4}}, SUMS],
        [
            ({"training": {"local_steps": 5}}, "4, and the run trains for 5 mini-batches a round"),
            ({"training": {"local_epochs": 1}}, "which most_local_steps does not count: runs.most_local_epochs"),
        ],
    ),
    "runs.most_local_epochs": (
        "runs.most_local_epochs = 4",
        [{"training": {"local_epochs": 4}}, SUMS],
        [
            ({"training": {"local_epochs": 5}}, "4, and the run trains for 5 passes a round"),
            ({"training": {"local_steps": 1}}, "4, and the run trains for 1 mini-batch a round, which"),
            (TWO_PHASES, "4, and the run trains for 5 passes a round"),
        ],
    ),
    "privacy.claim": (
        'privacy.claim = "prototypes"',
        [PRIVATE, budget(claim="prototypes")],
        [({}, '"prototypes", and the run has privacy.claim = "none"')],
    ),
    "privacy.epsilon": (
        "privacy.epsilon = 3",
        [{}, PRIVATE],
        [(budget(epsilon=3.1), "3, and the run's releases come to epsilon 3.1 (delta 1e-05)")],
    ),
    "privacy.delta": (
        "privacy.epsilon = 3\nprivacy.delta = 1e-4",
        [PRIVATE],
        [(budget(delta=1e-3), "3, and the run's releases come to epsilon 3.64 (delta 0.0001)")],
    ),
    "leaves.models": (
        "leaves.models = false",
        [SUMS, PRIVATE, OWN_MODELS],
        [
            ({}, 'false, and the run has run.method = "fedavg", whose clients send trained weights'),
            (KEPT_HEADS, '"fedrep", whose clients send trained weights'),
        ],
    ),
}
"""Keys by which a run is forbidden on its configuration alone: a policy, runs that it allows, and runs that it forbids."""


def test_every_key_is_tried_from_both_sides() -> None:
    """`approve` has the tests of approval, `leaves.logs` those of the site's log."""
    assert sorted({*FORBIDDEN, *LEFT_OUT, "runs.allow_code", "approve", "leaves.logs"}) == sorted(
        key for _, key in dotted_keys(Policy)
    )
    assert not FORBIDDEN.keys() & LEFT_OUT.keys()


@pytest.mark.parametrize("key", FORBIDDEN)
def test_a_key_forbids_a_run_with_both_values_and_allows_others(key: str) -> None:
    text, allows, forbids = FORBIDDEN[key]
    policy = a_policy(text)
    for sections in allows:
        assert [each.sentence for each in refusals(policy, a_config(sections))] == []
    for sections, sentence in forbids:
        config = a_config(sections)
        said_of = key if key != "privacy.delta" else "privacy.epsilon"
        (refusal,) = refusals(policy, config)
        assert refusal.key == said_of
        assert refusal.sentence.startswith(f"{said_of} = ")
        assert sentence in refusal.sentence
        assert not list(refusals(NO_POLICY, config)), "a key that is not given forbids nothing"


def test_no_policy_forbids_nothing_of_any_method() -> None:
    for name in METHODS:
        more = SUMS if name == "classsums" else {"run": {"method": name}}
        more = {**more, "public": {"data": "npz:x.npz"}} if name == "fcclplus" else more
        assert not list(refusals(NO_POLICY, a_config(more)))


def test_a_run_that_was_prolonged_is_forbidden_beyond_the_rounds() -> None:
    policy, run = a_policy("runs.most_rounds = 5"), a_run("fedavg")
    config = a_config({})
    check_policy(policy, config, Task(kind=TaskKind.TRAIN, run=run, round=4, total_rounds=5))
    with pytest.raises(PolicyForbids, match="the run has 6 rounds"):
        check_policy(policy, config, Task(kind=TaskKind.TRAIN, run=run, round=4, total_rounds=6))


def test_all_keys_that_forbid_a_run_are_said_in_one_sentence_and_a_long_list_is_shortened() -> None:
    names = [f"method-{number}" * 25 for number in range(50)]
    policy = a_policy(f"runs.methods = {names}\nruns.most_rounds = 1\nleaves.models = false")
    with pytest.raises(PolicyForbids) as caught:
        check_policy(policy, a_config({}), Task(kind=TaskKind.INIT, run=a_run("fedavg")))
    error = caught.value
    assert (error.reason, error.metadata["key"], error.metadata["asks"]) == (
        "POLICY_FORBIDS",
        "runs.methods",
        'the run has run.method = "fedavg"',
    )
    assert "and 45 more]" in error.detail
    assert "runs.most_rounds = 1" in error.detail
    assert "leaves.models = false" in error.detail
    assert len(error.detail) < 1024, "what a heartbeat carries"


def test_allowed_code_joins_that_of_the_flags() -> None:
    settings = TrainerSettings.model_validate({"client": "ann", "data": ["npz:x.npz"], "allow_code": ["a:first"]})
    consent = Consent.of_owner(settings, a_policy('runs.allow_code = ["b:second"]'))
    consent.check_code("a:first")
    consent.check_code("b:second")
    with pytest.raises(CodeNotAllowed, match="lists it in the policy"):
        Consent.of_owner(settings).check_code("b:second")


# What is left out


@dataclass
class Left:
    """What a client sent in a round."""

    joined: dict[str, int]
    num_joined: int
    update: Update
    evaluation: Evaluation
    model: str
    aggregator: MemoryAggregator

    @property
    def prototypes(self) -> Any:
        (blob,) = self.update.payload.prototype_sets
        return prototypes_from_bytes(self.aggregator.stored[blob.sha256][0])

    @property
    def totals(self) -> dict[str, tuple[int, ...]]:
        return {counts.set_name: counts.total for counts in self.evaluation.counts}


def what_left(data: str, folder: Path, policy: str, method: str, **sections: Any) -> Left:
    run, aggregator = a_run(method, **sections), MemoryAggregator()
    site = ClientSite.at("ann", "hospital", data, device="cpu", policy=a_policy(policy))
    runner = TaskRunner(site, ClientStates(folder))
    joined = runner.announce()
    task = a_train_task(aggregator, data, run)
    runner.perform(task, aggregator)
    payload = Payload(tensor_groups=task.payload.tensor_groups)
    runner.perform(Task(kind=TaskKind.EVALUATE, run=run, round=1, total_rounds=3, payload=payload), aggregator)
    ((_, update),), ((_, evaluation),) = aggregator.updates, aggregator.evaluations
    model = update.payload.tensor_group(MODEL).sha256
    return Left(dict(joined.class_counts), joined.num_examples, update, evaluation, model, aggregator)


Both = Callable[[Left, Left], None]


def _class_images(before: Left, after: Left) -> None:
    assert (before.joined, before.num_joined) == (dict(zip(CLASSES, (9, 5, 1), strict=True)), 15)
    assert (after.joined, after.num_joined) == (dict(zip(CLASSES, (9, 0, 0), strict=True)), 9)
    assert (before.update.class_counts, after.update.class_counts) == ((9, 5, 1), (9, 0, 0))
    assert after.update.num_examples == 9
    assert before.model != after.model, "it was trained on the large class alone"
    assert set(before.prototypes.class_ids.tolist()) == {0, 1, 2}
    assert set(after.prototypes.class_ids.tolist()) == {0}
    assert (before.totals, after.totals) == ({"test": (4, 2, 1)}, {"test": (0, 0, 0)})
    assert [len(each.confusion) for each in before.evaluation.counts] == [9]
    assert [len(each.confusion) for each in after.evaluation.counts] == [0]


def _test_images(before: Left, after: Left) -> None:
    assert (before.totals, after.totals) == ({"test": (4, 2, 1)}, {"test": (0, 0, 0)})
    assert (before.update.class_counts, before.model) == (after.update.class_counts, after.model)


def _prototype_images(before: Left, after: Left) -> None:
    assert min(before.prototypes.weights) < 5
    assert min(after.prototypes.weights) >= 5
    assert len(after.prototypes)
    assert sum(after.prototypes.weights) == after.update.num_examples - after.update.num_excluded
    assert before.model == after.model


def _class_counts(before: Left, after: Left) -> None:
    assert (before.joined, after.joined) == (dict(zip(CLASSES, (9, 5, 1), strict=True)), {})
    assert (before.update.class_counts, after.update.class_counts) == ((9, 5, 1), (0, 0, 0))
    assert before.update.num_examples == after.update.num_examples == after.num_joined == 15
    assert before.model == after.model


def _losses(before: Left, after: Left) -> None:
    assert before.update.losses
    assert not after.update.losses
    assert before.model == after.model


def _scores(before: Left, after: Left) -> None:
    assert (before.totals, after.totals) == ({"test": (4, 2, 1)}, {"test": (0, 0, 0)})
    assert all(not any(counts.correct) for counts in after.evaluation.counts)
    assert before.model == after.model


def _readings(before: Left, after: Left) -> None:
    assert "train_seconds" in before.update.timings
    assert "train_seconds" not in after.update.timings
    assert "evaluate_seconds" in before.evaluation.timings
    assert "evaluate_seconds" not in after.evaluation.timings


CONFUSION = {"evaluation": {"confusion": True}}
LEFT_OUT: dict[str, tuple[str, str, dict[str, Any], Both]] = {
    "thresholds.class_images": ("thresholds.class_images = 6", "fedplcc", CONFUSION, _class_images),
    "thresholds.test_images": ("thresholds.test_images = 8", "fedavg", {}, _test_images),
    "thresholds.prototype_images": ("thresholds.prototype_images = 5", "fedplcc", {}, _prototype_images),
    "leaves.class_counts": ("leaves.class_counts = false", "fedavg", {}, _class_counts),
    "leaves.losses": ("leaves.losses = false", "fedplcc", {}, _losses),
    "leaves.scores": ("leaves.scores = false", "fedavg", {}, _scores),
    "leaves.readings": ("leaves.readings = false", "fedavg", {}, _readings),
}
"""Keys by which a field is left out: a policy, a method with what else the run has, and what differs."""


@pytest.mark.parametrize("key", LEFT_OUT)
def test_a_key_leaves_out_what_it_names_and_nothing_else_does(key: str, data: str, tmp_path: Path) -> None:
    policy, method, sections, compare = LEFT_OUT[key]
    before = what_left(data, tmp_path / "before", "", method, **sections)
    compare(before, what_left(data, tmp_path / "after", policy, method, **sections))


@pytest.mark.parametrize(
    ("policy", "sections", "sentence"),
    [
        ("thresholds.class_images = 2", PRIVATE, "2, and the run has privacy.clip = 0.1"),
        ("leaves.class_counts = false", {"run": {"method": "fedplcc"}}, "something for each class"),
        ("leaves.class_counts = false", SUMS, "something for each class"),
        ("leaves.class_counts = false", {"run": {"method": "creff"}}, "something for each class"),
        ("leaves.class_counts = false", {"evaluation": {"own_classes": True}}, "evaluation.own_classes = true"),
        (
            "leaves.class_counts = false",
            {"run": {"rounds": 4}, "stream": {"stages": 2, "rounds_per_stage": 2}},
            "the run has [stream]",
        ),
        ("leaves.scores = false", {**SUMS, "method": {"head": "lda"}}, "how many of their training images are found"),
    ],
)
def test_what_a_run_cannot_do_without_forbids_it(policy: str, sections: dict[str, Any], sentence: str) -> None:
    key = policy.partition(" =")[0]
    (refusal,) = refusals(a_policy(policy), a_config(sections))
    assert refusal.key == key
    assert sentence in refusal.sentence
    assert not list(refusals(a_policy(policy), a_config({})))


def test_what_private_sums_tell_counts_for_no_key_but_the_threshold() -> None:
    policy = a_policy(
        "[leaves]\nmodels = false\nclass_counts = false\nlosses = false\nscores = false\nreadings = false"
    )
    assert not list(refusals(policy, a_config(PRIVATE)))


def test_each_group_that_a_method_of_this_package_uploads_is_known() -> None:
    """A group without a row in the table counts as all that there is, so that a method of another package fails closed."""
    known = {
        name
        for method in METHODS.values()
        for name in method.uploads(method.config(), 3, 4)
        if method.name in {"fedavg", "classsums", "creff", "fcclplus"} or name != PUBLIC
    }
    assert known == TELLS.keys()


def test_a_policy_that_no_run_passes_is_none() -> None:
    with pytest.raises(Exception, match="no run would pass"):
        a_policy('thresholds.class_images = 2\nprivacy.claim = "site"')
