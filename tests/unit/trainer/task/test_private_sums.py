"""Private class sums of a trainer: what leaves it, what it costs, and that a release again has the same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image

from fedplcc.shared.errors import FirstModelDiffers, MalformedUpdate, RoundClosed
from fedplcc.shared.methods.arithmetic.fixed_point import widened
from fedplcc.shared.methods.parts.private_sums import SUMS
from fedplcc.shared.privacy.guarantee import noise_for
from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.tensors import from_bytes, prototypes_from_bytes, prototypes_to_bytes, to_bytes
from fedplcc.shared.types import (
    CLASS_MEAN,
    GLOBAL_CLUSTER,
    MODEL,
    ClientProblem,
    Payload,
    PrototypeSet,
    RunSpec,
    Task,
    TaskKind,
)
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.privacy.budget import SECRET, Budget, BudgetSpent, ClaimNotKept
from fedplcc.trainer.readings.metrics import TrainerMetrics
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.failures import sentence_for_others
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from fedplcc.trainer.task.withholding import TOLD_TIMINGS
from fedplcc.trainer.weights.store import Source, WeightsStore
from tests.support import present
from tests.support.failpoints import killed_at
from tests.unit.trainer.builders import npz
from tests.unit.trainer.memory_aggregator import MemoryAggregator
from tests.unit.trainer.tasks import CLASSES, a_run

NET = "timm:test_resnet"
KEY = bytes(range(32))
NUM = 14


@pytest.fixture(scope="module")
def consent(tmp_path_factory: pytest.TempPathFactory) -> Consent:
    torch.manual_seed(1)
    arrays = {
        name: value.numpy()
        for name, value in timm.create_model(NET.removeprefix("timm:"), num_classes=0).state_dict().items()
    }
    store = WeightsStore(tmp_path_factory.mktemp("weights"))
    store.add(arrays, name="tiny", model=NET, source=Source(place="here"))
    return Consent(weights=store)


def data_of(folder: Path, seed: int, labels: list[int]) -> str:
    """Training images of a seed; the test images are always the same."""
    rng, same = np.random.default_rng(seed), np.random.default_rng(99)
    images = rng.integers(0, 255, (len(labels), 16, 16, 3)).astype(np.uint8)
    tests = same.integers(0, 255, (6, 16, 16, 3)).astype(np.uint8)
    return npz(folder / f"images-{seed}.npz", images, np.array(labels), CLASSES, tests=(tests, np.arange(6) % 3))


def private_run(consent: Consent, claim: str = "site", **privacy: Any) -> RunSpec:
    known = present(consent.weights.find("tiny"))
    return a_run(
        "classsums",
        model={"name": NET, "weights": "tiny", "weights_sha256": known.sha256},
        training={"train": "head"},
        method={"head": "means"},
        privacy={"clip": 0.1, "epsilon": 1.0, "delta": 1e-5, "claim": claim, **privacy},
    )


class Site:
    """A client on folders of its own, with a known key."""

    def __init__(self, folder: Path, data: str, consent: Consent, *, epsilon: float | None = 5.0, **facts: Any) -> None:
        self.budget = Budget(folder / "privacy", epsilon=epsilon)
        self.budget.key()
        (folder / "privacy" / SECRET).write_bytes(KEY)
        self.aggregator = MemoryAggregator()
        self.problems: list[ClientProblem] = []
        self.states = folder / "states"
        how = {"tells_counts": epsilon is None, **facts}
        self.site = ClientSite.at("ann", "hospital", data, device="cpu", consent=consent, budget=self.budget, **how)
        self.metrics = TrainerMetrics(new_registry("trainer"))
        self.begin()

    def begin(self) -> None:
        self.runner = TaskRunner(self.site, ClientStates(self.states), metrics=self.metrics)

    def do(self, run: RunSpec, kind: TaskKind = TaskKind.TRAIN, round: int = 1) -> None:
        payload = Payload()
        if kind is not TaskKind.INIT:
            if not self.aggregator.blobs:
                first = Site(
                    self.states / "first",
                    self.site.data,
                    self.site.consent,
                    epsilon=self.budget.limit,
                    tells_counts=False,
                )
                first.do(run, TaskKind.INIT)
                (data, _) = next(iter(first.aggregator.stored.values()))
                self.aggregator.offer(MODEL, data)
            data = next(iter(self.aggregator.blobs.values()))
            payload = Payload(tensor_groups=(self.aggregator.offer(MODEL, data),))
            if "fedproto" in run.config_json:
                none_yet = self.aggregator.offer(GLOBAL_CLUSTER, prototypes_to_bytes(PrototypeSet.empty()))
                payload = replace(payload, prototype_sets=(none_yet,))
        task = Task(kind=kind, run=run, round=round, total_rounds=3, payload=payload)
        self.runner.perform(task, self.aggregator, on_problem=self.problems.append)

    def release(self, which: int = -1) -> bytes:
        _, update = self.aggregator.updates[which]
        return self.aggregator.stored[update.payload.tensor_group(SUMS).sha256][0]


def released(site: Site) -> tuple[np.ndarray, np.ndarray]:
    """Sums and counts of the last release, in float64."""
    group = from_bytes(site.release())
    return widened(group["sums"]), widened(group["counts"])


def all_that_left(site: Site, run: RunSpec) -> dict[str, Any]:
    """Everything that the site sends in a round, but the release's numbers, timings, which are told by name, and the bytes
    of a model that is made of specification and seed.
    """
    joined = site.runner.announce()
    known = site.runner.client_for(run, site.problems.append)
    site.do(run, TaskKind.INIT, 0)
    site.do(run)
    site.do(run, TaskKind.EVALUATE)
    told: list[Any] = []
    for number, update in site.aggregator.updates:
        blobs = [(blob.role, blob.size_bytes) for blob in update.payload.blobs]
        payload = replace(update.payload, tensor_groups=(), prototype_sets=())
        told.append((number, blobs, replace(update, payload=payload, timings={})))
        assert set(update.timings) <= TOLD_TIMINGS or "site" not in run.config_json
    for number, evaluation in site.aggregator.evaluations:
        told.append((number, replace(evaluation, timings={})))
        assert set(evaluation.timings) <= TOLD_TIMINGS or "site" not in run.config_json
    return {
        "joined": joined,
        "admitted": known,
        "told": told,
        "problems": site.problems,
        "readings": site.runner.readings(),
        "metadata": [update.payload.metadata for _, update in site.aggregator.updates],
    }


def test_at_claim_site_nothing_that_is_made_of_training_images_leaves_but_the_release(
    tmp_path: Path, consent: Consent
) -> None:
    rng = np.random.default_rng(0)
    first = data_of(tmp_path, 1, [0] * 9 + [1] * 5)
    second = data_of(tmp_path, 2, rng.integers(0, 3, NUM).tolist())
    for claim, is_equal in (("site", True), ("none", False)):
        run, sites, left = private_run(consent, claim), [], []
        for name, data in (("a", first), ("b", second)):
            sites.append(Site(tmp_path / claim / name, data, consent))
            left.append(all_that_left(sites[-1], run))
        assert (left[0] == left[1]) == is_equal
        assert sites[0].release() != sites[1].release()
    assert [kind for _, blobs, _ in left[0]["told"][:2] for kind, _ in blobs] == [MODEL, SUMS]


def test_the_release_is_of_all_classes_and_the_head_is_scored_as_it_was_received(
    tmp_path: Path, consent: Consent
) -> None:
    site, run = Site(tmp_path, data_of(tmp_path, 1, [0] * 9 + [1] * 5), consent), private_run(consent)
    all_that_left(site, run)
    (charge,) = site.budget.charges
    noise = noise_for(1.0, 1e-5, 1)
    assert (charge.clip, charge.noise, charge.claim, charge.round) == (0.1, noise, "site", 1)
    sums_MD, counts_M = released(site)
    assert sums_MD.shape[0] == len(counts_M) == 3
    deviation = sums_MD.std()
    assert 0.7 * noise * 0.1 < deviation < 1.4 * noise * 0.1
    ((_, evaluation),) = site.aggregator.evaluations
    assert [(each.set_name, each.model) for each in evaluation.counts] == [("test", "global")]
    assert site.metrics.epsilon_spent._value.get() == pytest.approx(1.0, abs=1e-6)


def test_a_release_again_has_the_same_bytes_and_one_charge(tmp_path: Path, consent: Consent) -> None:
    data = data_of(tmp_path, 1, [0] * 9 + [1] * 5)
    run = private_run(consent)
    site = Site(tmp_path / "a", data, consent, epsilon=1.0)
    site.do(run)
    site.do(run, round=2)  # another round of the one release
    site.begin()  # another process
    site.do(run, round=3)
    other = Site(tmp_path / "b", data, consent, epsilon=1.0)  # another folder with the same key
    other.do(run)
    assert len({site.release(0), site.release(1), site.release(2), other.release()}) == 1
    assert len(site.budget.charges) == 1
    later = private_run(consent, release_every=1)
    with pytest.raises(BudgetSpent, match="allows 1"):
        site.do(later)
    assert len(site.aggregator.updates) == 3


@pytest.mark.parametrize("at", range(1, 40, 3))
def test_a_trainer_that_is_killed_between_charge_and_delivery_sends_what_it_would_have_sent(
    tmp_path: Path, consent: Consent, at: int
) -> None:
    run, data = private_run(consent), data_of(tmp_path, 1, [0] * 9 + [1] * 5)
    whole = Site(tmp_path / "whole", data, consent)
    whole.do(run)
    site = Site(tmp_path / "killed", data, consent)
    site.aggregator.blobs |= whole.aggregator.blobs
    with killed_at(at, "trainer."):
        site.do(run)
    site.begin()
    if not site.aggregator.updates:
        site.do(run)
    assert {site.release(n) for n in range(len(site.aggregator.updates))} == {whole.release()}
    assert site.budget.charges == whole.budget.charges


def test_other_images_have_other_noise_and_cost_again(tmp_path: Path, consent: Consent) -> None:
    run = private_run(consent)
    site = Site(tmp_path / "a", data_of(tmp_path, 1, [0] * 9 + [1] * 5), consent)
    site.do(run)
    moved = Site(tmp_path / "a", data_of(tmp_path, 2, [0] * 9 + [1] * 5), consent)
    moved.states = tmp_path / "elsewhere"  # its record of the run's data is gone, its budget is not
    moved.begin()
    with pytest.raises(ClaimNotKept, match="release 2 of the 1"):
        moved.do(run)
    moved.do(replace(run, run_id="run-2"))
    first, second = (released(each)[0] for each in (site, moved))
    assert len(moved.budget.charges) == 2
    # The same noise would leave the difference of the sums, which is small beside it.
    assert np.abs(first - second).std() > 0.5 * noise_for(1.0, 1e-5, 1) * 0.1


def test_without_room_nothing_is_read_or_sent(tmp_path: Path, consent: Consent) -> None:
    site = Site(tmp_path, "npz:/nowhere.npz", consent, epsilon=0.5)
    for kind in (TaskKind.INIT, TaskKind.TRAIN):
        task = Task(kind=kind, run=private_run(consent), round=1, total_rounds=3)
        with pytest.raises(BudgetSpent, match=r"from epsilon 0 to 1, and its owner allows 0\.5"):
            site.runner.perform(task, site.aggregator)
    assert (site.aggregator.num_joined, site.aggregator.updates, site.budget.charges) == (0, [], ())


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"tells_counts": True}, "told its class counts when it joined; start it with --privacy-epsilon"),
        ({"samples_per_class": 2}, "samples_per_class = 2 chooses images by what others there are"),
        ({"fraction": 0.5}, "fraction = 0.5"),
        ({"validation_per_class": 1}, "validation_per_class = 1"),
    ],
)
def test_a_site_that_does_not_hold_the_claim_refuses_the_run(
    tmp_path: Path, consent: Consent, facts: dict[str, Any], said: str
) -> None:
    site = Site(tmp_path, "npz:/nowhere.npz", consent, **facts)
    with pytest.raises(ClaimNotKept) as refused:
        site.do(private_run(consent), TaskKind.INIT)
    assert said in refused.value.detail
    assert not site.aggregator.updates


def test_features_under_weights_that_a_run_trained_are_not_claimed(tmp_path: Path, consent: Consent) -> None:
    store = WeightsStore(tmp_path / "weights")
    kept = consent.weights.backbones()[0]
    arrays = {name: value.numpy() for name, value in consent.weights.load(kept.sha256).items()}
    for name, runs in (("a", ()), ("tiny", ("scans-1",))):  # two names of the same weights
        store.add(arrays, name=name, model=NET, source=Source(place="here", runs=runs))
    site = Site(tmp_path, "npz:/nowhere.npz", Consent(weights=store))
    with pytest.raises(ClaimNotKept, match="run scans-1 trained the weights 'tiny', maybe on these images"):
        site.do(private_run(consent), TaskKind.INIT)


def test_a_site_that_withholds_tells_kinds_of_problems_alone(tmp_path: Path, consent: Consent) -> None:
    folder = tmp_path / "images"
    for name in CLASSES:
        for side in ("train", "test"):
            (folder / side / name).mkdir(parents=True)
            Image.new("RGB", (16, 16)).save(folder / side / name / "fine.png")
        (folder / "train" / name / "broken.png").write_bytes(b"no picture")
    site = Site(tmp_path / "a", f"folder:{folder}", consent)
    told: list[ClientProblem] = []
    site.runner.client_for(private_run(consent), told.append)
    assert [(problem.reason, "3" in problem.detail) for problem in told] == [("UNREADABLE_FILES", False)]
    assert site.runner.readings() == {}
    open_site = Site(tmp_path / "b", f"folder:{folder}", consent, epsilon=None)
    open_site.runner.client_for(private_run(consent, "none"), told.append)
    assert "3 of the data set's files" in told[-1].detail
    assert open_site.runner.readings() != {}
    for each, run in ((site, private_run(consent)), (open_site, private_run(consent, "none"))):
        each.aggregator.failures["commit"] = [MalformedUpdate("class 3 is wrong")]
        with pytest.raises(MalformedUpdate) as refused:
            each.do(run)
        assert ("class 3" in sentence_for_others(refused.value)) == (each is open_site)


def test_who_keeps_its_class_counts_keeps_the_size_of_its_images(tmp_path: Path, consent: Consent) -> None:
    data = data_of(tmp_path, 1, [0, 1, 2])
    told = Site(tmp_path / "told", data, consent, tells_counts=True).site.announced()
    kept = Site(tmp_path / "kept", data, consent, tells_counts=False).site.announced()
    assert (told.smallest_side, kept.smallest_side) == (16, 0)
    assert (sum(told.class_counts.values()), kept.class_counts) == (3, {})


def private_means_run(**privacy: Any) -> RunSpec:
    noise = {"clip": 1.0, "noise": 0.05, "claim": "prototypes", "release_every": 1, **privacy}
    return a_run("fedproto", privacy=noise)


def means_of(site: Site, which: int = -1) -> PrototypeSet:
    _, update = site.aggregator.updates[which]
    blob = present(update.payload.prototype_set(CLASS_MEAN))
    return prototypes_from_bytes(site.aggregator.stored[blob.sha256][0])


def test_class_means_are_a_release_in_every_round(tmp_path: Path, consent: Consent) -> None:
    data, run = data_of(tmp_path, 1, [0] * 9 + [1] * 5), private_means_run()
    site, other = (Site(tmp_path / name, data, consent, epsilon=None) for name in ("a", "b"))
    site.do(run)
    found = means_of(site)
    assert found.class_ids.tolist() == [0, 1]
    np.testing.assert_allclose(found.weights, [9, 5], atol=1)
    assert (np.linalg.norm(found.vectors, axis=1) < 1.1).all(), "means of features no longer than the clip"
    assert np.abs(found.vectors.mean(1)).max() > 1e-3, "features as they are, not less their own mean"
    other.do(run)
    assert means_of(other).vectors.tobytes() == found.vectors.tobytes(), "the same key and images, in another folder"
    site.do(run, round=2)
    assert [charge.round for charge in site.budget.charges] == [1, 2]
    assert means_of(site).vectors.tobytes() != found.vectors.tobytes()
    with pytest.raises(ClaimNotKept, match="round 4 would be a release more than the 3"):
        site.do(run, round=4)


def test_features_are_of_no_model_that_somebody_made_for_them(tmp_path: Path, consent: Consent) -> None:
    """By a layer that overflows for some images alone a failure would tell of them, as often as it is asked for."""
    run = private_run(consent)
    site = Site(tmp_path, data_of(tmp_path, 1, [0] * 9 + [1] * 5), consent)
    site.do(run)
    first = from_bytes(next(iter(site.aggregator.blobs.values())))
    model = {name: np.full_like(array, 3e38) if name.startswith("hidden") else array for name, array in first.items()}
    payload = Payload(tensor_groups=(site.aggregator.offer(MODEL, to_bytes(model)),))
    with pytest.raises(FirstModelDiffers):
        site.runner.perform(
            Task(kind=TaskKind.TRAIN, run=run, round=2, total_rounds=3, payload=payload), site.aggregator
        )
    assert len(site.budget.charges) == 1


@pytest.mark.parametrize("is_of_sums", [True, False])
def test_a_round_that_is_asked_for_with_model_after_model_is_no_way_round_the_runs_epsilon(
    tmp_path: Path, consent: Consent, is_of_sums: bool
) -> None:
    """An aggregator that takes no commit and offers another model has the sums or means under each released anew."""
    data, run = data_of(tmp_path, 1, [0] * 9 + [1] * 5), private_means_run()
    if is_of_sums:
        run = private_run(consent, epsilon=None, delta=None, noise=5.0, release_every=1)
    site = Site(tmp_path / "a", data, consent, epsilon=None, tells_counts=False)
    site.do(run)
    first = from_bytes(next(iter(site.aggregator.blobs.values())))
    none_yet = site.aggregator.offer(GLOBAL_CLUSTER, prototypes_to_bytes(PrototypeSet.empty()))

    def too_late(*_: Any, **__: Any) -> None:
        raise RoundClosed("too late")

    site.aggregator.commit_update = too_late  # type: ignore[assignment]
    for number, refused in ((1, RoundClosed), (2, RoundClosed), (3, ClaimNotKept), (4, ClaimNotKept)):
        model = {
            name: array * (1 + number / 100_000) if array.dtype == np.float32 else array
            for name, array in first.items()
        }
        sets = () if is_of_sums else (none_yet,)
        payload = Payload(tensor_groups=(site.aggregator.offer(MODEL, to_bytes(model)),), prototype_sets=sets)
        task = Task(kind=TaskKind.TRAIN, run=run, round=2, total_rounds=3, payload=payload)
        with pytest.raises(refused):
            site.runner.perform(task, site.aggregator)
    assert [charge.round for charge in site.budget.charges] == [1, 2, 2]


def test_classes_whose_count_is_lost_in_noise_have_no_mean(tmp_path: Path, consent: Consent) -> None:
    site = Site(tmp_path, data_of(tmp_path, 1, [0] * 9 + [1] * 5), consent, epsilon=None)
    site.do(private_means_run(noise=1e3))
    found = means_of(site)
    assert len(found) < 3
    assert (found.weights <= NUM).all()
    with pytest.raises(BudgetSpent):
        Site(tmp_path / "b", site.site.data, consent, epsilon=0.5).do(private_means_run())
