"""docs/algorithms.md, rule 1.9: the local prototypes of several rounds in one pool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.computation.aggregation import earlier_updates
from aggregator.coordinator.garbage import Keep, kept_rounds
from aggregator.rounds.selection import select_cohort
from fedplcc.state.replay import replay
from shared.config.run import parse_run_config
from shared.errors import InvalidConfig
from shared.methods.prototypes import global_clusters
from shared.tensors import prototypes_from_bytes, prototypes_to_bytes
from shared.types import LOCAL_CLUSTER, PrototypeSet, Run, Task
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import FEATURE_DIM, NumpyClient, a_document

NAMES = ("ann", "bob", "zoe")
ROUNDS = 6


class OneEachRound(NumpyClient):
    """Sends a prototype of its own for each round."""

    def prototypes(self, task: Task, kind: str | None = LOCAL_CLUSTER) -> PrototypeSet:
        return a_set(self.client_id, task.round, sum(self.counts))


def a_set(client_id: str, number: int, weight: int) -> PrototypeSet:
    vector = np.zeros(FEATURE_DIM, np.float32)
    vector[NAMES.index(client_id)], vector[-1] = number, 1.0
    return PrototypeSet.of([vector], [0], [weight])


class KeepsAll(LocalFederation):
    keep = Keep(models=ROUNDS + 1, prototypes=0, updates=ROUNDS + 1)


@pytest.fixture
def federation(folder: Path) -> Iterator[LocalFederation]:
    clients = [OneEachRound(name, counts=(4 + index, 0, 0)) for index, name in enumerate(NAMES)]
    with KeepsAll(folder, clients) as federation:
        federation.join()
        yield federation


def the_document(window: int, method: str = "fedplcc", **more: int) -> dict[str, Any]:
    settings = {"rounds": ROUNDS, "cohort_size": 2, "seed": 4}
    return {**a_document(method, NAMES, run=settings), "method": {"proto_window": window, **more}}


def run_of(federation: LocalFederation, window: int) -> Run:
    return federation.run_to_end(federation.coordinator.create_run("the run", the_document(window)).run_id)


@pytest.mark.parametrize("window", [1, 2, 4, 100])
def test_a_round_clusters_what_all_clients_sent_in_the_window(federation: LocalFederation, window: int) -> None:
    run = run_of(federation, window)
    for number in range(1, ROUNDS + 1):
        rounds = range(max(1, number - window + 1), number + 1)
        drawn = {of: select_cohort(NAMES, seed=4, round_number=of, cohort_size=2) for of in rounds}
        sets = [a_set(name, of, 4 + index) for index, name in enumerate(NAMES) for of in rounds if name in drawn[of]]
        _blob, path = federation.coordinator.artifact(run.run_id, number, "prototypes")
        assert path.read_bytes() == prototypes_to_bytes(global_clusters(sets, 3))
        assert replay(federation.folder, run.run_id, number).is_equal


def test_a_restart_in_every_round_and_the_order_of_updates_change_nothing(
    federation: LocalFederation, tmp_path: Path
) -> None:
    right = run_of(federation, 3)
    with LocalFederation(tmp_path, reversed(list(federation.clients.values()))) as other:
        other.join()
        run = other.coordinator.create_run("again", the_document(3))
        while not other.coordinator.get_run(run.run_id).status.is_final:
            assert other.step(reversed(NAMES))
            other.restart()
        assert other.metrics_lines(run.run_id) == federation.metrics_lines(right.run_id)


def test_the_store_keeps_the_prototypes_of_the_window(federation: LocalFederation) -> None:
    run, keep = run_of(federation, 3), Keep(models=1, updates=1)
    assert kept_rounds(run, keep).pooled_from == kept_rounds(run, keep).updates_from - 2
    _blob, path = federation.coordinator.artifact(run.run_id, ROUNDS, "prototypes")
    assert len(prototypes_from_bytes(path.read_bytes())) >= 1
    assert len(earlier_updates(run, federation.store)) == 4


def test_the_window_counts_in_the_limit_on_the_work_of_a_clustering_and_excludes_the_other_rule() -> None:
    plain, window = parse_run_config(the_document(1)), parse_run_config(the_document(3))
    assert window.num_pooled_clients == 3 * plain.num_pooled_clients
    assert "proto_window" not in plain.canonical_json
    with pytest.raises(InvalidConfig, match=r"leave one of the two out"):
        parse_run_config(the_document(3, proto_staleness=1))
    with pytest.raises(InvalidConfig, match=r"unknown key 'method\.proto_window'"):
        parse_run_config(the_document(3, "fedavg"))
