"""The prototype map by REST: what a page needs to draw a round, and every refusal in words."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fedplcc.aggregator.coordinator.prototype_maps import PrototypeMaps
from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.aggregator.servicer import run_service
from fedplcc.shared import documents
from tests.support.federation.served_gateway import ServedGateway

ROUNDS = 5


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedGateway, str]]:
    """A gateway before an aggregator that keeps the prototypes of three rounds, and a run that has ended."""
    with ServedGateway(tmp_path_factory.mktemp("map")) as gateway:
        gateway.stop_aggregator()
        gateway.federation.keep = Keep(models=1, prototypes=3, updates=1)
        gateway.federation.start_again()
        gateway.start_aggregator()
        run_id = gateway.create_and_finish(method="fedplcc", run={"rounds": ROUNDS})
        gateway.federation.coordinator.garbage_collection.collect()
        yield gateway, run_id


def get(gateway: ServedGateway, run_id: str, **query: Any) -> tuple[int, dict[str, Any]]:
    answer = gateway.http.get(f"/v1/runs/{run_id}/prototype-map", params=query)
    return answer.status_code, answer.json()


def test_a_map_names_places_classes_clients_weights_and_the_rounds_that_there_are(
    served: tuple[ServedGateway, str],
) -> None:
    gateway, run_id = served
    status, document = get(gateway, run_id, round=4)
    assert status == 200
    found = documents.PrototypeMap.model_validate(document)
    assert (found.round, found.comparison, found.aligned_from) == (4, "cosine", 5)
    assert [(span.first, span.last) for span in found.rounds] == [(3, 5)]
    assert [(client.client_id, client.domain) for client in found.clients] == [
        ("ann", "ann-domain"),
        ("bob", "bob-domain"),
    ]
    made = [entry for entry in found.prototypes if entry.client is None]
    local = [entry for entry in found.prototypes if entry.client is not None]
    assert found.prototypes == made + local
    assert {entry.class_id for entry in made} == {0, 1, 2}
    assert all(entry.nearest is None for entry in made)
    for entry in local:
        assert entry.nearest is not None
        assert found.prototypes[entry.nearest].client is None
        assert found.prototypes[entry.nearest].class_id == entry.class_id
    assert sum(entry.weight for entry in local) == 2 * (5 + 3 + 4)
    assert get(gateway, run_id)[1]["round"] == ROUNDS
    assert gateway.http.get(f"/v1/runs/{run_id}").json()["links"]["prototype_map"] == f"/v1/runs/{run_id}/prototype-map"


def test_what_there_is_no_map_of_is_told_in_a_sentence_with_what_to_do(served: tuple[ServedGateway, str]) -> None:
    gateway, run_id = served
    plain = gateway.create_and_finish(key="plain", run={"rounds": 1})
    expected = {
        (run_id, 2): (
            404,
            "BLOB_NOT_FOUND",
            "there are those of rounds 3 to 5: an aggregator with a larger keep_prototypes",
        ),
        (run_id, 6): (404, "ROUND_NOT_FOUND", "has not committed round 6"),
        (run_id, 0): (404, "ROUND_NOT_FOUND", "prototypes begin with round 1"),
        (plain, 1): (404, "NO_PROTOTYPES", "trains by fedavg, which has no prototypes"),
        ("nothing", 1): (404, "RUN_NOT_FOUND", "nothing"),
    }
    for (asked, number), (status, code, sentence) in expected.items():
        found, document = get(gateway, asked, round=number)
        assert (found, document["code"]) == (status, code)
        assert sentence in document["detail"]
    assert get(gateway, run_id, round=2)[1]["metadata"]["rounds"] == "3 to 5"


def test_many_who_ask_at_once_are_answered_one_by_one_and_too_many_are_told_to_wait(
    served: tuple[ServedGateway, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, run_id = served
    drawing, most, of = [0], [0], PrototypeMaps.of

    def counted(self: PrototypeMaps, run_id: str, number: int) -> Any:
        drawing[0] += 1
        most[0] = max(most[0], drawing[0])
        try:
            return of(self, run_id, number)
        finally:
            drawing[0] -= 1

    monkeypatch.setattr(PrototypeMaps, "of", counted)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: get(gateway, run_id, round=3 + number % 3)[0], range(16)))
    assert (set(answers), most[0]) == ({200}, 1)
    monkeypatch.setattr(run_service, "MAX_MAPS_ASKED", 0)
    status, document = get(gateway, run_id)
    assert (status, document["code"]) == (429, "OVERLOADED")
    assert "try again" in document["detail"]
