"""Prototype maps of real runs: which rounds there are, what a picture says, how pictures hang together, what is refused."""

from __future__ import annotations

import asyncio
import queue
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedplcc.aggregator.coordinator import prototype_maps
from fedplcc.aggregator.coordinator.prototype_maps import PrototypeMaps
from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.aggregator.servicer.run_service import RunServicer
from fedplcc.shared.errors import BlobNotFound, FedplccError, NoPrototypes, PayloadCorrupt, RoundNotFound, RunNotFound
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.prototype_map import NO_OWNER, RoundMap
from fedplcc.shared.types import LOCAL_CLUSTER, BlobRef, PrototypeSet, Run, Task, Update
from tests.support.federation.grpc_client import DEADLINE_S
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import FEATURE_DIM, NumpyClient, a_document


class Looking(LocalFederation):
    """A federation whose aggregator keeps the prototypes of six rounds."""

    keep = Keep(models=1, prototypes=6, updates=0)


FEDERATION = Looking
JOINED = (NumpyClient("ann", "photos"), NumpyClient("bob", "sketches", counts=(2, 0, 7)))


def a_run(federation: LocalFederation, rounds: int = 3, method: str = "fedplcc") -> Run:
    run = federation.coordinator.create_run(f"{method} {rounds}", a_document(method, run={"rounds": rounds}))
    return federation.run_to_end(run.run_id)


def the_map(federation: LocalFederation, run: Run, number: int = -1) -> RoundMap:
    return federation.coordinator.prototype_maps.of(run.run_id, number)


def test_a_picture_shows_the_rounds_global_prototypes_and_every_client_s(federation: Looking) -> None:
    run = a_run(federation)
    found = the_map(federation, run, 2)
    drawn, record = found.drawn, federation.store.find_round(run.run_id, 2)
    assert record is not None
    assert [(client.client_id, client.domain, client.is_kept) for client in found.clients] == [
        ("ann", "photos", True),
        ("bob", "sketches", True),
    ]
    of_owner = [int((drawn.owners_N == owner).sum()) for owner in (0, 1)]
    assert of_owner == [record.updates[name].num_prototypes for name in ("ann", "bob")]
    assert drawn.weights_N[drawn.owners_N == 1].sum() == 9
    is_global = drawn.owners_N == NO_OWNER
    assert sorted(np.unique(drawn.class_ids_N[is_global])) == [0, 1, 2]
    assert [float(drawn.weights_N[is_global & (drawn.class_ids_N == c)].sum()) for c in range(3)] == pytest.approx(
        [1] * 3
    )
    assert (found.number, found.comparison, found.rounds, found.aligned_from) == (2, "cosine", ((1, 3),), 1)
    assert 0.3 < drawn.explained <= 1
    assert set(drawn.nearest_N[~is_global]) <= set(np.flatnonzero(is_global))


def test_the_last_committed_round_is_shown_without_a_number_and_while_another_is_open(federation: Looking) -> None:
    run = federation.create("fedplcc", run={"rounds": 9})
    while federation.coordinator.get_run(run.run_id).round_number < 3:
        federation.step()
    assert the_map(federation, run).number == 2
    assert the_map(federation, run).rounds == ((1, 2),)


@pytest.mark.parametrize("method", ["fedplcc", "fedproto", "fpl", "fedplvm", "fedccl"])
def test_every_method_with_prototypes_has_a_map_and_compares_as_it_does(federation: Looking, method: str) -> None:
    found = the_map(federation, a_run(federation, method=method))
    assert found.comparison == ("distance" if method == "fedproto" else "cosine")
    is_global = found.drawn.owners_N == NO_OWNER
    assert 0 < is_global.sum() < len(found.drawn)


def test_rounds_beyond_those_that_are_kept_are_named_and_the_kept_ones_too(federation: Looking) -> None:
    run = a_run(federation, rounds=9)
    assert the_map(federation, run).rounds == ((4, 9),), "also what no collection has taken yet may go at any moment"
    federation.coordinator.garbage_collection.collect()
    with pytest.raises(
        BlobNotFound, match=r"round 3 .* collected; there are those of rounds 4 to 9: .* keep_proto"
    ) as gone:
        the_map(federation, run, 3)
    assert gone.value.metadata["rounds"] == "4 to 9"
    for number in range(4, 10):
        assert the_map(federation, run, number).number == number


def test_what_an_aggregator_that_kept_less_has_left_is_all_that_there_is(federation: Looking) -> None:
    federation.keep = Keep(models=2, prototypes=0, updates=1)
    federation.restart()
    run = a_run(federation, rounds=4)
    federation.coordinator.garbage_collection.collect()
    federation.keep = Keep(models=2, prototypes=100, updates=1)
    federation.restart()
    found = the_map(federation, run)
    assert found.rounds == ((3, 4),)
    assert all(client.is_kept for client in found.clients)
    before = the_map(federation, run, 3)
    assert [client.is_kept for client in before.clients] == [False, False], "only its global prototypes are there"
    assert set(before.drawn.owners_N) == {NO_OWNER}
    with pytest.raises(BlobNotFound, match="there are those of rounds 3 to 4"):
        the_map(federation, run, 2)


def refusal(federation: LocalFederation, run_id: str, number: int, kind: type[FedplccError]) -> str:
    with pytest.raises(kind) as refused:
        federation.coordinator.prototype_maps.of(run_id, number)
    assert type(refused.value) is kind
    return refused.value.detail


def test_what_there_is_no_picture_of_is_a_sentence(federation: Looking) -> None:
    run = a_run(federation)
    plain = a_run(federation, method="fedavg")
    young = federation.create("fedplcc")
    assert "trains by fedavg, which has no prototypes" in refusal(federation, plain.run_id, 1, NoPrototypes)
    assert "has not committed round 4" in refusal(federation, run.run_id, 4, RoundNotFound)
    assert "prototypes begin with round 1" in refusal(federation, run.run_id, 0, RoundNotFound)
    for number in (-1, 0, 1):
        assert "has not committed a round with prototypes yet" in refusal(
            federation, young.run_id, number, RoundNotFound
        )
    refusal(federation, "no-such-run", 1, RunNotFound)


def test_prototypes_that_are_damaged_on_the_disk_are_told_and_not_drawn(federation: Looking, folder: Path) -> None:
    run = a_run(federation)
    record = federation.whole_round(run.run_id, 3)
    blob = record.updates["ann"].payload.prototype_set(LOCAL_CLUSTER)
    assert blob is not None
    path = folder / "blobs" / blob.sha256[:2] / blob.sha256
    path.write_bytes(b"x" * blob.size_bytes)
    federation.restart()
    refusal(federation, run.run_id, 3, PayloadCorrupt)
    assert the_map(federation, run, 2).number == 2


def test_a_run_in_which_nobody_sent_a_prototype_has_empty_maps(folder: Path) -> None:
    class Silent(NumpyClient):
        """All of its samples are excluded."""

        def prototypes(self, task: Task, kind: str | None = None) -> PrototypeSet:
            return PrototypeSet.empty(FEATURE_DIM)

        def work(self, task: Task, model: bytes | None) -> tuple[Update, dict[BlobRef, bytes]]:
            update, blobs = super().work(task, model)
            return replace(update, num_excluded=update.num_examples), blobs

    with LocalFederation(folder, [Silent("ann")]) as federation:
        federation.join()
        run = federation.create("fedplcc")
        federation.run_to_end(run.run_id)
        found = the_map(federation, run)
        assert (len(found.drawn), found.drawn.explained, found.clients[0].is_kept) == (0, 1, True)


def test_a_picture_is_drawn_from_its_round_and_key_rounds_alone_and_once(
    federation: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation.keep = Keep(models=1, prototypes=None, updates=0)
    federation.restart()
    run = a_run(federation, rounds=30)
    asked: list[int] = []
    drawn = PrototypeMaps._drawn

    def noted(self: PrototypeMaps, run: Run, config: object, number: int, *rest: object) -> RoundMap:
        asked.append(number)
        return drawn(self, run, config, number, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(PrototypeMaps, "_drawn", noted)
    the_map(federation, run, 30)
    assert asked == [1, 5, 9, 13, 17, 21, 25, 29, 30]
    the_map(federation, run, 30)
    the_map(federation, run, 28)
    the_map(federation, run, 9)
    assert asked[9:] == [28, 9], "key rounds are remembered by their centres"


def test_few_pictures_of_few_runs_are_remembered(federation: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prototype_maps, "MAX_RUNS", 2)
    monkeypatch.setattr(prototype_maps, "MAX_PICTURES", 2)
    maps = federation.coordinator.prototype_maps
    runs = [a_run(federation, rounds=rounds) for rounds in (3, 4, 5)]
    for run in runs:
        for number in (1, 2, 3):
            the_map(federation, run, number)
    assert list(maps._runs) == [run.run_id for run in runs[1:]]
    assert all(list(known.pictures) == [2, 3] for known in maps._runs.values())


def test_who_gives_up_leaves_no_second_thread_drawing(federation: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(federation)
    servicer = RunServicer(federation.coordinator, None)  # type: ignore[arg-type]
    begun: queue.SimpleQueue[int] = queue.SimpleQueue()
    may_end, drawing, most, of = threading.Event(), [0], [0], PrototypeMaps.of

    def slow(self: PrototypeMaps, run_id: str, number: int) -> RoundMap:
        drawing[0] += 1
        most[0] = max(most[0], drawing[0])
        begun.put(number)
        assert may_end.wait(DEADLINE_S)
        drawing[0] -= 1
        return of(self, run_id, number)

    monkeypatch.setattr(PrototypeMaps, "of", slow)

    async def give_up_and_ask_again() -> int:
        def ask(number: int) -> asyncio.Task[run_pb2.GetPrototypeMapResponse]:
            request = run_pb2.GetPrototypeMapRequest(run_id=run.run_id, round=number)
            return asyncio.create_task(servicer.GetPrototypeMap(request, None))  # type: ignore[arg-type]

        first, waiting, last = ask(1), ask(2), ask(3)
        assert await asyncio.to_thread(begun.get, timeout=DEADLINE_S) == 1
        first.cancel()
        waiting.cancel()
        await asyncio.wait((first, waiting))
        assert await asyncio.to_thread(begun.empty), "the first one is still being drawn"
        may_end.set()
        return (await last).round

    assert asyncio.run(give_up_and_ask_again()) == 3
    assert most[0] == 1
    assert begun.get(timeout=DEADLINE_S) == 3, "what nobody waits for any more is not drawn"
