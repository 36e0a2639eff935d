"""Results that are an exponential average of the rounds' models, in whole runs: training is that of runs without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.aggregator.garbage.rules import Keep, needed_blobs, rounds_of
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.steering import ExtendRun, PauseRun, ResumeRun
from fedplcc.shared.tensors import from_bytes
from fedplcc.shared.types import BlobRef, Round, Run, RunStatus
from fedplcc.state.replay import replay
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import a_document
from tests.support.hosts.failing_disk import Disk, Killed

ROUNDS = 5
AVERAGE = {"global_average": "ema", "average_decay": 0.9}
ALL = {"global_average": "ema", "proto_window": 2, "averaging": "domain"}
"""With windows of prototypes and domains that weigh alike."""
EVERY = 8
"""Of the steps on disk of a run, every so-manyth is one that the aggregator is killed before."""
Model = dict[str, np.ndarray]


class Kept(LocalFederation):
    """Keeps every model."""

    keep = Keep(models=ROUNDS + 1, prototypes=0, updates=ROUNDS + 1)


class Sparse(LocalFederation):
    """Keeps as little as can be."""

    keep = Keep(models=1, prototypes=0, updates=0)


def begun(federation: LocalFederation, method: str, hyper: dict[str, Any], rounds: int = ROUNDS) -> Run:
    federation.join()
    document = {**a_document(method, run={"rounds": rounds}), "method": hyper}
    return federation.coordinator.create_run("the run", document)


def ended(federation: LocalFederation, method: str, hyper: dict[str, Any]) -> list[Round]:
    run = federation.run_to_end(begun(federation, method, hyper).run_id)
    assert run.status is RunStatus.COMPLETED
    return federation.coordinator.list_rounds(run.run_id)


def model_of(folder: Path, blob: BlobRef | None) -> Model:
    assert blob is not None
    return from_bytes((folder / "blobs" / blob.sha256[:2] / blob.sha256).read_bytes())


@pytest.mark.parametrize(
    ("method", "hyper"),
    [
        ("fedavg", {}),
        ("feddyn", {}),
        ("fedopt", {}),
        ("fedplcc", {}),
        ("fedrep", {"upload_head": False}),
        ("creff", {"num_features": 4, "match_steps": 3, "retrain_epochs": 2}),
    ],
    ids=["fedavg", "feddyn", "fedopt", "fedplcc", "fedrep", "creff"],
)
def test_a_result_is_the_average_of_the_models_so_far_and_training_goes_on_from_the_newest(
    tmp_path: Path, method: str, hyper: dict[str, Any]
) -> None:
    """Of methods that have slots, a start or a head of their own, or withhold one, too."""
    with Kept.small(tmp_path / "plain") as plain, Kept.small(tmp_path / "average") as average:
        newest, found = ended(plain, method, hyper), ended(average, method, {**hyper, **AVERAGE})
    assert found[1].model == newest[1].model, "the average begins with the first round's model"
    expected = model_of(tmp_path / "plain", newest[1].model)
    for number in range(2, ROUNDS + 1):
        latest = model_of(tmp_path / "plain", newest[number].model)
        result = model_of(tmp_path / "average", found[number].model)
        for name, value in latest.items():
            if value.dtype == np.float32:
                expected[name] = np.asarray(
                    0.9 * expected[name].astype(np.float64) + (1 - 0.9) * value.astype(np.float64), np.float32
                )
            else:
                expected[name] = np.maximum(expected[name], value)
            assert (result[name] == expected[name]).all()
        begins, model = found[number].start, newest[number].start or newest[number].model
        assert begins is not None
        assert model is not None
        assert begins.sha256 == model.sha256
        assert found[number].server_state == newest[number].server_state


def test_whatever_is_killed_or_collected_the_averages_are_the_same_and_can_be_computed_again(tmp_path: Path) -> None:
    with Kept.small(tmp_path / "undisturbed") as federation:
        expected = ended(federation, "fedavg", AVERAGE)
    with Kept.small(tmp_path / "killed") as federation:
        run_id = begun(federation, "fedavg", AVERAGE).run_id
        while not federation.coordinator.get_run(run_id).status.is_final:
            federation.step()
            federation.start_again()
            federation.join()
        found = federation.coordinator.list_rounds(run_id)
        assert [each.model for each in found] == [each.model for each in expected]
    for number in (1, 3, ROUNDS):
        assert replay(tmp_path / "killed", run_id, number).is_equal
    with Sparse.small(tmp_path / "sparse") as federation:
        assert [each.model for each in ended(federation, "fedavg", AVERAGE)] == [each.model for each in expected]


@pytest.mark.parametrize(
    ("method", "hyper"),
    [
        ("fedavg", {}),
        ("feddyn", {}),
        ("creff", {"num_features": 4, "match_steps": 3, "retrain_epochs": 2}),
    ],
    ids=["fedavg", "feddyn", "creff"],
)
def test_a_model_that_no_round_names_goes_with_the_next_collection_and_averages_are_computed_again_without_it(
    tmp_path: Path, method: str, hyper: dict[str, Any]
) -> None:
    """Of FedDyn and CReFF the next round starts from another model than the round came to."""
    with Kept.small(tmp_path) as federation:
        federation.coordinator.garbage_collection.collect()
        run = federation.run_to_end(begun(federation, method, {**hyper, **AVERAGE}).run_id)
        federation.coordinator.garbage_collection.step()  # and no scan
        stored = {path.name for path in (tmp_path / "blobs").glob("*/*")}
        assert stored == needed_blobs(run, rounds_of(federation.store, run, Kept.keep), Kept.keep)
        federation.coordinator.garbage_collection.collect()
        for number in range(1, ROUNDS + 1):
            assert replay(tmp_path, run.run_id, number).is_equal


def test_a_round_that_does_not_come_to_its_models_again_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Kept.small(tmp_path) as federation:
        run = federation.run_to_end(begun(federation, "fedavg", AVERAGE).run_id)
    monkeypatch.setattr(
        "fedplcc.aggregator.computation.parts.model.fold_weights", lambda counts, *_: [1.0] * len(counts)
    )
    found = replay(tmp_path, run.run_id, 3)
    assert not found.is_equal
    assert found.computed.keys() == found.recorded.keys()


def results(federation: LocalFederation, run: Run) -> list[tuple[BlobRef | None, ...]]:
    rounds = federation.coordinator.list_rounds(run.run_id)
    return [(each.model, each.start, each.prototypes) for each in rounds]


def test_an_aggregator_killed_between_steps_on_disk_ends_in_the_undisturbed_results(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    with LocalFederation.small(folder / "undisturbed") as federation:
        disk.revive()
        right = results(federation, federation.run_to_end(begun(federation, "fedplcc", ALL).run_id))
        steps = list(disk.steps)
    for step in range(1, len(steps) + 1, EVERY):
        with LocalFederation.small(folder / str(step)) as federation:
            disk.kill_before(step)
            with pytest.raises(Killed):
                federation.run_to_end(begun(federation, "fedplcc", ALL).run_id)
            disk.revive()
            federation.restart()
            found = results(federation, federation.run_to_end(begun(federation, "fedplcc", ALL).run_id))
            assert found == right, f"killed before step {step}, {steps[step - 1]}"


def test_a_run_that_is_paused_and_resumed_has_the_same_results_and_so_has_one_that_goes_on_to_more_rounds(
    folder: Path,
) -> None:
    with Sparse.small(folder / "undisturbed") as federation:
        right = results(federation, federation.run_to_end(begun(federation, "fedplcc", ALL).run_id))
    with Sparse.small(folder / "paused") as federation:
        run = begun(federation, "fedplcc", ALL, rounds=ROUNDS - 2)
        while not federation.coordinator.get_run(run.run_id).status.is_final:
            federation.step()
            if federation.coordinator.get_run(run.run_id).status is RunStatus.RUNNING:
                federation.coordinator.steer(run.run_id, PauseRun(now=True))
                federation.coordinator.garbage_collection.collect()
                federation.restart()
                federation.coordinator.steer(run.run_id, ResumeRun())
        federation.coordinator.steer(run.run_id, ExtendRun(rounds=ROUNDS))
        assert results(federation, federation.run_to_end(run.run_id)) == right


def test_the_model_that_a_run_begins_with_has_no_part_in_its_averages(tmp_path: Path) -> None:
    with Kept.small(tmp_path) as federation:
        first = ended(federation, "fedavg", AVERAGE)
        (of_first,) = federation.coordinator.list_runs(limit=2)
        begin = {"rounds": 2, "initial_model": f"run:{of_first.run_id}@{ROUNDS}"}
        found = []
        for name, hyper in (("plain", {}), ("average", AVERAGE)):
            document = {**a_document("fedavg", run=begin), "method": hyper}
            run = federation.run_to_end(federation.coordinator.create_run(name, document).run_id)
            found.append(federation.coordinator.list_rounds(run.run_id))
    plain, average = found
    assert first[ROUNDS].model == plain[0].model == average[0].model, "the result is what a run begins with"
    assert plain[1].model == average[1].model
    assert plain[2].model != average[2].model


def test_a_decay_of_zero_is_no_average(tmp_path: Path) -> None:
    with Kept.small(tmp_path / "plain") as plain, Kept.small(tmp_path / "zero") as zero:
        expected = ended(plain, "fedplcc", {})
        found = ended(zero, "fedplcc", {"global_average": "ema", "average_decay": 0.0})
    assert [each.model for each in found] == [each.model for each in expected]
    assert not any(each.start for each in found)


def test_an_average_of_what_is_not_shared_or_is_a_mean_already_is_refused_by_its_key() -> None:
    with pytest.raises(InvalidConfig, match=r"method\.global_average averages the global models of rounds"):
        parse_run_config({**a_document("fedproto"), "method": {"share_model": False, **AVERAGE}})
    stream = {"stages": 2, "rounds_per_stage": 1, "epoch_model": "stage_mean"}
    with pytest.raises(InvalidConfig, match=r"makes a mean of the same models; leave one of the two out"):
        parse_run_config({**a_document("fedavg", run={"rounds": 2}, stream=stream), "method": AVERAGE})
    with pytest.raises(InvalidConfig, match=r"method\.average_decay"):
        parse_run_config({**a_document("fedavg"), "method": {**AVERAGE, "average_decay": 1.0}})
