"""docs/algorithms.md, rule 1.9: how long the last prototypes of a client that gives no update stay in the pool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedplcc.aggregator.computation.parts.prototypes import earlier_updates
from fedplcc.aggregator.garbage.rules import Keep, kept_rounds, needed_blobs, rounds_of
from fedplcc.aggregator.rounds.selection import select_cohort
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.prototypes import PrototypeConfig
from fedplcc.shared.tensors import prototypes_from_bytes
from fedplcc.shared.types import LOCAL_CLUSTER, PrototypeSet, Run, Task
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import FEATURE_DIM, NumpyClient, a_document

NAMES = ("ann", "bob", "zoe")


class OneOfEach(NumpyClient):
    """Sends one prototype of one class: all its samples, in a direction that only it has, as long as the round's number."""

    def prototypes(self, task: Task, kind: str | None = LOCAL_CLUSTER) -> PrototypeSet:
        class_id = NAMES.index(self.client_id)
        vector = np.zeros(FEATURE_DIM)
        vector[class_id] = task.round
        return PrototypeSet.of([vector], [class_id], [sum(self.counts)])


def one_of_each() -> list[NumpyClient]:
    """Three clients that each have a class of their own."""
    return [
        OneOfEach(name, counts=tuple(4 if index == NAMES.index(name) else 0 for index in range(3))) for name in NAMES
    ]


JOINED = one_of_each()


def the_document(staleness: int, *, rounds: int = 8, method: str = "fedplcc") -> dict[str, Any]:
    """A run that draws one of the three clients for each round."""
    document = a_document(method, NAMES, run={"rounds": rounds, "cohort_size": 1, "seed": 4})
    return {**document, "method": {"proto_staleness": staleness}}


def run_of(federation: LocalFederation, staleness: int, *, rounds: int = 8) -> Run:
    run = federation.coordinator.create_run("the run", the_document(staleness, rounds=rounds))
    return federation.run_to_end(run.run_id)


def pooled(federation: LocalFederation, run: Run, number: int) -> dict[str, int]:
    """From which round the global prototypes of a round are, by client: each client has a class, a length says the round."""
    _blob, path = federation.coordinator.artifact(run.run_id, number, "prototypes")
    found = prototypes_from_bytes(path.read_bytes())
    lengths = np.linalg.norm(found.vectors, axis=1)
    return {NAMES[class_id]: round(float(length)) for class_id, length in zip(found.class_ids, lengths, strict=True)}


def by_hand(run: Run, number: int, staleness: int) -> dict[str, int]:
    """For each client its last round in [t - staleness, t] in which it was drawn."""
    drawn = {t: select_cohort(NAMES, seed=4, round_number=t, cohort_size=1)[0] for t in range(1, number + 1)}
    return {drawn[t]: t for t in range(max(1, number - staleness), number + 1)}


@pytest.mark.parametrize("staleness", [0, 1, 3, 100])
def test_the_pool_has_each_clients_last_prototypes_of_so_many_past_rounds(
    federation: LocalFederation, staleness: int
) -> None:
    run = run_of(federation, staleness)
    found = [pooled(federation, run, number) for number in range(1, 9)]
    assert found == [by_hand(run, number, staleness) for number in range(1, 9)]
    if staleness == 3:  # written out: ann's turn is round 4, bob's was round 1, which is too old in round 5
        assert found[3:5] == [{"bob": 1, "zoe": 3, "ann": 4}, {"zoe": 3, "ann": 5}]
        assert found[7] == {"ann": 5, "zoe": 8}


def test_a_quarantined_client_leaves_the_pool_at_once(federation: LocalFederation) -> None:
    run = run_of(federation, 100, rounds=7)
    assert run.current_round is not None
    assert [update.client_id for update in earlier_updates(run, federation.store)] == ["ann", "bob"]
    without = replace(run, quarantined={"bob": "poison"})
    assert [update.client_id for update in earlier_updates(without, federation.store)] == ["ann"]


def test_collection_keeps_the_prototypes_that_a_later_round_may_pool_but_not_their_models(
    federation: LocalFederation,
) -> None:
    run, keep = run_of(federation, 3), Keep(models=1, updates=1)
    assert kept_rounds(run, keep).pooled_from == kept_rounds(run, keep).updates_from - 3 == 5
    needed = needed_blobs(run, rounds_of(federation.store, run, keep), keep)
    for number in range(1, 9):
        current = federation.whole_round(run.run_id, number)
        for update in current.updates.values():
            models = {blob.sha256 for blob in update.payload.tensor_groups}
            prototypes = {blob.sha256 for blob in update.payload.prototype_sets}
            assert (models <= needed) is (number >= 7), "round 8 starts from round 7's, which is its one client's"
            assert (prototypes <= needed) is (number >= 5)


def test_it_is_part_of_the_hash_and_a_method_without_prototypes_does_not_have_it() -> None:
    document = the_document(0)
    plain = parse_run_config({name: section for name, section in document.items() if name != "method"})
    assert parse_run_config(document).hash == plain.hash
    other = parse_run_config(the_document(2))
    assert other.hash != plain.hash
    assert '"proto_staleness":2' in other.canonical_json
    with pytest.raises(InvalidConfig, match=r"unknown key 'method\.proto_staleness'"):
        parse_run_config(the_document(2, method="fedavg"))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_every_method_with_prototypes_can_keep_them_and_no_other(method: Method) -> None:
    assert issubclass(method.config, PrototypeConfig) is method.has_prototypes
