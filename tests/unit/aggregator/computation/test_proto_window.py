"""docs/algorithms.md, rule 1.9: the local prototypes of several rounds in one pool."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.aggregator.computation.parts.prototypes import earlier_updates, pooled_updates
from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.aggregator.rounds.selection import select_cohort
from fedplcc.aggregator.store.base import Store
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods.prototypes import global_clusters
from fedplcc.shared.reasons import BlobDamaged
from fedplcc.shared.steering import RetireClient
from fedplcc.shared.tensors import prototypes_from_bytes, prototypes_to_bytes
from fedplcc.shared.types import LOCAL_CLUSTER, Payload, PrototypeSet, Retired, Run, RunStatus, Task, Update
from fedplcc.state.replay import replay
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


FEDERATION = KeepsAll
JOINED = [OneEachRound(name, counts=(4 + index, 0, 0)) for index, name in enumerate(NAMES)]


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


class History:
    """The updates of a run, as a store gives them."""

    def __init__(self, sent: set[tuple[int, str]]) -> None:
        self._sent = sorted(sent)

    def list_updates(
        self, run_id: str, *, after: tuple[int, str] = (-1, ""), limit: int | None = None
    ) -> list[tuple[int, Update]]:
        found = [(of, name) for of, name in self._sent if (of, name) > after][:limit]
        return [(of, Update(client_id=name, payload=Payload(), num_examples=of)) for of, name in found]


@given(
    st.sets(st.tuples(st.integers(1, 9), st.sampled_from(NAMES))),
    st.integers(2, 6),
    st.integers(1, 9),
    st.sets(st.sampled_from(NAMES)),
    st.dictionaries(
        st.sampled_from(NAMES),
        st.builds(Retired, round=st.integers(0, 9), is_forgotten=st.booleans(), is_back=st.booleans()),
    ),
)
def test_the_pool_is_that_of_a_second_implementation(
    sent: set[tuple[int, str]], window: int, number: int, quarantined: set[str], retired: dict[str, Retired]
) -> None:
    run = the_run(window, quarantined=dict.fromkeys(quarantined, "a test"), retired=retired)
    found = pooled_updates(run, cast(Store, History(sent)), number, {name for of, name in sent if of == number})
    expected = []
    for name in NAMES:
        first = number - window + 1
        if name in quarantined:
            continue
        if name in retired:
            if not retired[name].is_back:
                continue
            if retired[name].is_forgotten:
                first = max(first, retired[name].round + 1)
        expected += [(name, of) for of in range(first, number) if (of, name) in sent]
    assert [(update.client_id, update.num_examples) for update in found] == expected


def the_run(window: int, **facts: Any) -> Run:
    config = parse_run_config(the_document(window))
    facts = {"roster": NAMES, "run_id": "a run", "config_json": config.canonical_json, **facts}
    return cast(Run, SimpleNamespace(**facts))


def test_what_a_run_was_told_to_forget_is_in_no_later_pool(federation: LocalFederation) -> None:
    run_id = federation.coordinator.create_run("the run", the_document(100)).run_id
    while federation.coordinator.get_run(run_id).round_number < 4:
        federation.step()
    pool = earlier_updates(federation.coordinator.get_run(run_id), federation.store)
    assert {update.client_id for update in pool} == set(NAMES)
    federation.coordinator.steer(run_id, RetireClient("bob", forgets=True))
    pool = earlier_updates(federation.coordinator.get_run(run_id), federation.store)
    assert {update.client_id for update in pool} == {"ann", "zoe"}
    federation.join()
    run = federation.run_to_end(run_id)
    _blob, path = federation.coordinator.artifact(run_id, ROUNDS, "prototypes")
    assert not prototypes_from_bytes(path.read_bytes()).vectors[:, NAMES.index("bob")].any()
    assert all(replay(federation.folder, run.run_id, number).is_equal for number in range(1, ROUNDS + 1))


@pytest.mark.parametrize("is_new", [True, False], ids=["started again", "running"])
def test_damaged_prototypes_of_an_earlier_round_are_named_though_its_models_are_collected(
    federation: LocalFederation, is_new: bool
) -> None:
    federation.keep = Keep(models=1, prototypes=0, updates=0)
    federation.restart()
    run_id = federation.coordinator.create_run("the run", the_document(3)).run_id
    while federation.coordinator.get_run(run_id).round_number < 4:
        federation.step()
        federation.coordinator.garbage_collection.collect()
    earlier = earlier_updates(federation.coordinator.get_run(run_id), federation.store)
    assert not any(path_of(federation, update.payload.tensor_groups[0].sha256).exists() for update in earlier)
    (blob,) = earlier[-1].payload.prototype_sets
    if is_new:
        federation.start_again()
    whole = path_of(federation, blob.sha256).read_bytes()
    path_of(federation, blob.sha256).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    federation.join()
    run = federation.run_to_end(run_id)
    assert run.status is RunStatus.PAUSED
    assert run.reason == BlobDamaged(
        round_number=4, role=blob.role, sha256=blob.sha256, client_id=earlier[-1].client_id
    )


def path_of(federation: LocalFederation, sha256: str) -> Path:
    return federation.folder / "blobs" / sha256[:2] / sha256


def test_a_window_that_could_not_be_clustered_in_time_is_refused_by_its_key() -> None:
    document = the_document(100)
    document["run"] = {**document["run"], "clients": [f"client-{number}" for number in range(400)]}
    del document["run"]["cohort_size"]
    with pytest.raises(InvalidConfig) as refused:
        parse_run_config(document)
    assert refused.value.detail == (
        "method.proto_window = 100: with 400 clients and 3 classes a round could compare more than 4294967296 pairs of "
        "prototypes, though each client had one of each class; at most 94 can be allowed"
    )
    document["method"] = {"proto_window": 94}
    assert parse_run_config(document).max_prototypes_per_class == 1
    document["admission"] = {"max_prototypes_per_class": 2}
    with pytest.raises(
        InvalidConfig,
        match=r"with 400 clients in 94 rounds \(method.proto_window\) and 3 classes a round could compare",
    ):
        parse_run_config(document)
    document["method"] = {"proto_window": 1}
    assert parse_run_config(document).max_prototypes_per_class == 2


def test_the_window_counts_in_the_limit_on_the_work_of_a_clustering_and_excludes_the_other_rule() -> None:
    plain, window = parse_run_config(the_document(1)), parse_run_config(the_document(3))
    assert window.num_pooled_clients == 3 * plain.num_pooled_clients
    with pytest.raises(InvalidConfig, match=r"leave one of the two out"):
        parse_run_config(the_document(3, proto_staleness=1))
    with pytest.raises(InvalidConfig, match=r"unknown key 'method\.proto_window'"):
        parse_run_config(the_document(3, "fedavg"))
