"""Weights of clients in the fold where every domain weighs alike, in a whole run and by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.config import fold_weights
from fedplcc.shared.tensors import from_bytes
from fedplcc.shared.types import MODEL, RoundPhase
from fedplcc.state.replay import replay
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document

CONFIG = METHODS["fedavg"].config.model_validate({"averaging": "domain"})


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 2**20)), min_size=1, max_size=12))
def test_every_domain_weighs_one_and_shares_it_by_samples(clients: list[tuple[str, int]]) -> None:
    domains, counts = [domain for domain, _ in clients], [count for _, count in clients]
    weights = fold_weights(counts, CONFIG, domains)
    for domain in set(domains):
        own = [(weight, count) for weight, count, of in zip(weights, counts, domains, strict=True) if of == domain]
        assert sum(weight for weight, _ in own) == pytest.approx(1.0)
        assert all(weight / own[0][0] == pytest.approx(count / own[0][1]) for weight, count in own)


def test_a_round_folds_the_mean_of_the_domains_means_and_replay_does_so_too(tmp_path: Path) -> None:
    clients = [
        NumpyClient("ann", domain="north", counts=(5, 3, 4)),
        NumpyClient("bob", domain="north", counts=(1, 1, 2)),
        NumpyClient("zoe", domain="south", counts=(90, 2, 1)),
    ]
    with LocalFederation(tmp_path, clients) as federation:
        federation.join()
        document = {**a_document(clients=("ann", "bob", "zoe"), run={"rounds": 1}), "method": {"averaging": "domain"}}
        run = federation.run_to_end(federation.coordinator.create_run("the run", document).run_id)
        current = federation.whole_round(run.run_id, 1)
        blobs = BlobStore(tmp_path)
        sent = {name: update.payload.tensor_group(MODEL) for name, update in current.updates.items()}
        stored = {
            name: from_bytes(blobs.verified_path(blob.sha256).read_bytes())
            for name, blob in sent.items()
            if blob is not None
        }
        assert current.model is not None
        result = from_bytes(blobs.verified_path(current.model.sha256).read_bytes())
    for name, value in result.items():
        if value.dtype == np.float32:
            ann, bob, zoe = (stored[client][name].astype(np.float64) for client in ("ann", "bob", "zoe"))
            np.testing.assert_allclose(value, (12 * ann + 4 * bob) / 16 / 2 + zoe / 2, rtol=1e-6, atol=1e-7)
    assert replay(tmp_path, run.run_id, 1).is_equal


class Kept(LocalFederation):
    """Keeps every update."""

    keep = Keep(models=None, updates=9)


def three(folder: Path) -> Kept:
    folder.mkdir()
    return Kept(folder, [NumpyClient("ann", domain="north"), NumpyClient("bob", domain="north"), NumpyClient("zoe")])


def begun(federation: LocalFederation) -> str:
    federation.join()
    document = {**a_document(clients=("ann", "bob", "zoe"), run={"rounds": 3}), "method": {"averaging": "domain"}}
    return federation.coordinator.create_run("the run", document).run_id


def move(federation: LocalFederation, client_id: str, domain: str) -> None:
    """Let a client join again, its data being of another domain now."""
    client = federation.clients[client_id]
    client.domain = domain
    federation.coordinator.join(client.record, client.token)


def test_a_client_that_comes_to_another_domain_weighs_in_it_from_the_next_fold_on_and_replay_does_so_too(
    tmp_path: Path,
) -> None:
    """It moves when round 1 has all its updates, before they are folded; a killed aggregator knows it as well."""
    with three(tmp_path / "stay") as federation:
        run = federation.run_to_end(begun(federation))
        stay = [each.model for each in federation.coordinator.list_rounds(run.run_id)]
    with three(tmp_path / "move") as federation:
        run_id = begun(federation)
        federation.step()
        for client in federation.clients.values():
            federation.perform(client, federation.task(client))
        current = federation.coordinator.get_run(run_id).current_round
        assert current is not None
        assert (current.number, current.phase) == (1, RoundPhase.AGGREGATING)
        move(federation, "bob", "south")
        federation.restart()
        run = federation.run_to_end(run_id)
        moved = [each.model for each in federation.coordinator.list_rounds(run_id)]
        events = federation.events(run_id, "round_aggregating")
        assert [event.data["domains"]["bob"] for event in events if event.round] == ["north", "south", "south"]
    assert moved[1] == stay[1]
    assert moved[2] != stay[2]
    for number in (1, 2, 3):
        assert replay(tmp_path / "move", run.run_id, number).is_equal
