"""Weights of clients in the fold where every domain weighs alike, in a whole run and by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.store.blobs.blob_store import BlobStore
from fedplcc.state.replay import replay
from shared.methods import METHODS
from shared.methods.base import fold_weights
from shared.tensors import from_bytes
from shared.types import MODEL
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
        current = federation.store.find_round(run.run_id, 1)
        assert current is not None
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
