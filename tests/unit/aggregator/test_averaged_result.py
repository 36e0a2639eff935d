"""Results that are an exponential average of the rounds' models, in whole runs: training is that of runs without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.coordinator.garbage import Keep
from fedplcc.state.replay import replay
from shared.config.run import parse_run_config
from shared.errors import InvalidConfig
from shared.tensors import from_bytes
from shared.types import BlobRef, Round, Run, RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import a_document

ROUNDS = 5
AVERAGE = {"global_average": "ema", "average_decay": 0.75}
Model = dict[str, np.ndarray]


class Kept(LocalFederation):
    """Keeps every model."""

    keep = Keep(models=ROUNDS + 1, prototypes=0, updates=ROUNDS + 1)


class Sparse(LocalFederation):
    """Keeps as little as can be."""

    keep = Keep(models=1, prototypes=0, updates=0)


def begun(federation: LocalFederation, method: str, hyper: dict[str, Any]) -> Run:
    federation.join()
    document = {**a_document(method, run={"rounds": ROUNDS}), "method": hyper}
    return federation.coordinator.create_run("the run", document)


def ended(federation: LocalFederation, method: str, hyper: dict[str, Any]) -> list[Round]:
    run = federation.run_to_end(begun(federation, method, hyper).run_id)
    assert run.status is RunStatus.COMPLETED
    return federation.coordinator.list_rounds(run.run_id)


def model_of(folder: Path, blob: BlobRef | None) -> Model:
    assert blob is not None
    return from_bytes((folder / "blobs" / blob.sha256[:2] / blob.sha256).read_bytes())


@pytest.mark.parametrize("method", ["fedavg", "feddyn", "fedopt", "fedplcc"])
def test_a_result_is_the_average_of_the_models_so_far_and_training_goes_on_from_the_newest(
    tmp_path: Path, method: str
) -> None:
    with Kept.small(tmp_path / "plain") as plain, Kept.small(tmp_path / "average") as average:
        newest, found = ended(plain, method, {}), ended(average, method, AVERAGE)
    assert found[1].model == newest[1].model, "the average begins with the first round's model"
    expected = model_of(tmp_path / "plain", newest[1].model)
    for number in range(2, ROUNDS + 1):
        latest = model_of(tmp_path / "plain", newest[number].model)
        result = model_of(tmp_path / "average", found[number].model)
        for name, value in latest.items():
            if value.dtype == np.float32:
                expected[name] = np.asarray(
                    0.75 * expected[name].astype(np.float64) + 0.25 * value.astype(np.float64), np.float32
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
