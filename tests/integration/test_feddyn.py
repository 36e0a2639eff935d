"""FedDyn in real federations: after every round the server's h is the mean of its clients' h_k, whoever dies meanwhile."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.documents import Event
from fedplcc.shared.tensors import from_bytes
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.task.client_state import ClientStates
from tests.integration.test_methods_everywhere import (
    ASKS_BETWEEN_INTERRUPTIONS,
    MOST_INTERRUPTIONS,
    document,
    simulated,
)
from tests.support.federation import tiny_federation

pytestmark = pytest.mark.slow


def servers_h(folder: Path) -> tuple[int, dict[str, Any]]:
    """The last round that was aggregated, and the slot as it committed it."""
    with closing(sqlite3.connect(folder / "aggregator.sqlite")) as connection:
        query = "SELECT number, server_state FROM rounds WHERE server_state IS NOT NULL ORDER BY number DESC"
        found = connection.execute(query).fetchone()
    if found is None:
        return 0, {}
    sha256 = json.loads(found[1])["h"]["sha256"]
    return found[0], from_bytes((folder / "blobs" / sha256[:2] / sha256).read_bytes())


def clients_h(folder: Path, run_id: str, number: int) -> list[dict[str, Any]]:
    """The states that clients have kept of their updates of a round; of later ones none."""
    found = []
    for client in tiny_federation.CLIENTS:
        states = ClientStates(folder / "trainers" / client)
        promoted = states.manifest.promoted.get(run_id)
        if promoted is not None and promoted.update.round == number:
            found.append(dict(states.state(run_id) or {}))
    return found


def test_the_servers_h_is_the_mean_of_the_clients_after_every_round_through_interruptions(
    data: Path, folder: Path
) -> None:
    """Looked at with every event, when no client has trained on."""
    asked, checked = 0, set()

    def stop_now() -> bool:
        nonlocal asked
        asked += 1
        return asked > ASKS_BETWEEN_INTERRUPTIONS

    def look(event: Event) -> None:
        number, h = servers_h(folder)
        own = [] if event.run_id is None else clients_h(folder, event.run_id, number)
        if not number or len(own) < len(tiny_federation.CLIENTS):
            return
        assert h.keys() == own[0].keys() == own[1].keys()
        for name, value in h.items():
            np.testing.assert_allclose(sum(state[name] for state in own) / len(own), value, rtol=0, atol=1e-6)
        assert max(np.abs(value).max() for value in h.values()) > 1e-4
        checked.add(number)

    num_interruptions = 0
    while True:
        asked = 0
        try:
            simulated(document(data, "feddyn", {}), folder, stop_now, look)
            break
        except Cancelled:
            num_interruptions += 1
            assert num_interruptions < MOST_INTERRUPTIONS
    assert checked == {1, 2, 3}
    assert num_interruptions > 3
