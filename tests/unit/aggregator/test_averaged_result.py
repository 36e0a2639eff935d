"""Results that are an exponential average of the rounds' models, in whole runs: training is that of runs without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.tensors import from_bytes
from fedplcc.shared.types import BlobRef, Round, Run, RunStatus
from fedplcc.state.replay import replay
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import a_document

ROUNDS = 5
AVERAGE = {"global_average": "ema", "average_decay": 0.9}
Model = dict[str, np.ndarray]


class Kept(LocalFederation):
    """Keeps every model."""

    keep = Keep(models=ROUNDS + 1, prototypes=0, updates=ROUNDS + 1)


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
