"""Passes that come to the mean of their stage models, in whole runs: training is that of runs without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.shared.config.tables.stream import StreamSection
from fedplcc.shared.tensors import from_bytes
from fedplcc.shared.types import Round, Run, RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import a_document

STREAM = {"stages": 3, "rounds_per_stage": 2, "passes": 2}
MEAN = {**STREAM, "epoch_model": "stage_mean"}
ROUNDS = 12
ENDS = {6: (2, 4, 6), 12: (8, 10, 12)}
"""Last round of each pass, and the last rounds of its stages."""
Model = dict[str, np.ndarray]


class Kept(LocalFederation):
    """Keeps every model."""

    keep = Keep(models=ROUNDS + 1, prototypes=0, updates=ROUNDS + 1)


def begun(federation: LocalFederation, method: str, **stream: object) -> Run:
    federation.join()
    return federation.create(method, run={"rounds": ROUNDS}, stream=stream)


def ended(federation: LocalFederation, method: str, **stream: object) -> list[Round]:
    run = federation.run_to_end(begun(federation, method, **stream).run_id)
    assert run.status is RunStatus.COMPLETED
    return federation.coordinator.list_rounds(run.run_id)


def model_of(folder: Path, current: Round) -> Model:
    assert current.model is not None
    return from_bytes((folder / "blobs" / current.model.sha256[:2] / current.model.sha256).read_bytes())


@pytest.mark.parametrize("method", ["fedavg", "feddyn", "fedplcc"])
def test_a_pass_comes_to_the_mean_and_training_goes_on_from_the_newest_model(tmp_path: Path, method: str) -> None:
    with Kept.small(tmp_path / "plain") as plain, Kept.small(tmp_path / "mean") as mean:
        newest, found = ended(plain, method, **STREAM), ended(mean, method, **MEAN)
    for number in range(1, ROUNDS + 1):
        if number not in ENDS:
            assert found[number].model == newest[number].model
            continue
        stages = [model_of(tmp_path / "plain", newest[end]) for end in ENDS[number]]
        result = model_of(tmp_path / "mean", found[number])
        for name, value in result.items():
            if value.dtype == np.float32:
                expected = np.mean([stage[name] for stage in stages], axis=0, dtype=np.float64)
                np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6)
            else:
                assert (value == np.max([stage[name] for stage in stages], axis=0)).all()
        begins, model = found[number].start, newest[number].start or newest[number].model
        assert begins is not None
        assert model is not None
        assert begins.sha256 == model.sha256
        assert "stage_mean" not in found[number].server_state, "the next pass begins anew"


def test_where_clients_keep_their_models_there_is_nothing_to_average(tmp_path: Path) -> None:
    with Kept.small(tmp_path) as federation:
        federation.join()
        document = {**a_document("fedproto", run={"rounds": ROUNDS}, stream=MEAN), "method": {"share_model": False}}
        run = federation.coordinator.create_run("the run", document)
        federation.run_to_end(run.run_id)
        rounds = federation.coordinator.list_rounds(run.run_id)
    assert {current.model for current in rounds} == {rounds[0].model}
    assert not any(current.server_state or current.start for current in rounds)


def test_a_person_who_ends_stages_gets_no_mean() -> None:
    with pytest.raises(ValidationError, match=r'a mean of stage models needs rounds_per_stage, not advance = "manual"'):
        StreamSection.model_validate({"stages": 2, "advance": "manual", "epoch_model": "stage_mean"})
