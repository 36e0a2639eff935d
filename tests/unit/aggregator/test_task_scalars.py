"""Numbers beside a task: made of the samples that clients had when they were admitted, and of nothing that comes later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fedplcc.shared.steering import QuarantineClient
from fedplcc.shared.types import TaskKind
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document


def scalars_of(federation: LocalFederation, name: str) -> Mapping[str, float]:
    """The numbers of a client's task to train."""
    task = federation.task(federation.clients[name])
    assert task.kind is TaskKind.TRAIN
    return task.payload.scalars


def test_a_client_gets_the_mean_number_of_samples_over_its_own(folder: Path) -> None:
    with LocalFederation.small(folder) as federation:
        federation.join()
        run = federation.create("feddyn")
        federation.step(["ann"])
        assert federation.coordinator.get_run(run.run_id).admitted_examples == {"ann": 12, "bob": 9}
        assert scalars_of(federation, "ann") == {"alpha": pytest.approx(0.01 * 10.5 / 12)}
        assert scalars_of(federation, "bob") == {"alpha": pytest.approx(0.01 * 10.5 / 9)}


def test_what_a_client_says_later_and_a_restart_change_nothing(folder: Path) -> None:
    with LocalFederation.small(folder) as federation:
        federation.join()
        federation.create("feddyn")
        federation.step()
        before = scalars_of(federation, "ann")
        federation.clients["bob"] = replace(federation.clients["bob"], counts=(900, 0, 900))
        federation.restart()
        assert scalars_of(federation, "ann") == before


def test_a_client_that_comes_later_counts_from_then_on_and_one_in_quarantine_does_not(folder: Path) -> None:
    document = a_document("feddyn", run={"min_clients": 2, "rounds": 5})
    del document["run"]["clients"]
    with LocalFederation.small(folder) as federation:
        federation.join()
        run = federation.coordinator.create_run("the run", document)
        federation.step()
        late = federation.clients["zoe"] = NumpyClient("zoe", size=3, counts=(1, 1, 1))
        federation.coordinator.join(late.record, late.token)
        while federation.coordinator.get_run(run.run_id).round_number < 2:
            federation.step(["ann", "bob"])
        assert scalars_of(federation, "ann") == {"alpha": pytest.approx(0.01 * (12 + 9 + 3) / 3 / 12)}
        federation.coordinator.steer(run.run_id, QuarantineClient("zoe", reason="a test"))
        assert scalars_of(federation, "ann") == {"alpha": pytest.approx(0.01 * 10.5 / 12)}
