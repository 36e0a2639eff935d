"""FedDyn through SIGKILL: the server's h and the h_k of its clients agree, though each process was killed."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.tensors import from_bytes
from fedplcc.trainer.task.client_state import ClientStates
from tests.chaos import membership
from tests.chaos.armed_federation import ArmedFederation, Order
from tests.chaos.scenarios import Operator
from tests.integration.test_feddyn import servers_h
from tests.integration.test_methods_everywhere import document
from tests.support.federation import tiny_federation

ORDERS = {
    "aggregator": [Order("transition.update_committed.after", 4), Order("transition.round_evaluating.before", 2)],
    "left": [Order("trainer.rpc.CommitUpdate.before", 3)],
    "right": [Order("trainer.rpc.CommitUpdate.after", 2)],
}
"""The aggregator dies with an update committed that it has not acknowledged, and within a later commit of a round; a client
before it has sent an update, the other as it has heard of the acknowledgement."""


def h_of(folder: Path, number: int) -> dict[str, Any]:
    """A client's h_k after its update of a round, which it knows to be committed or asks about before it trains again."""
    manifest = ClientStates(folder).manifest
    known = {promoted.update.round: promoted.state for promoted in manifest.promoted.values()}
    if manifest.staged is not None:
        known[manifest.staged.round] = manifest.staged.state
    state = known[number]
    assert state is not None
    return dict(from_bytes((folder / state.sha256).read_bytes()))


@pytest.mark.timeout(300)
def test_the_servers_h_is_the_mean_of_its_clients_though_each_process_was_killed(tmp_path: Path) -> None:
    with ArmedFederation(tmp_path) as federation, ExitStack() as stack:
        victims = {"aggregator": federation.aggregator, **federation.trainers}
        key = membership.new_key(federation.aggregator.state)
        operator = stack.enter_context(closing(Operator(federation.url, "operator", key)))
        deaths = [stack.enter_context(federation.killing(victims[name], orders)) for name, orders in ORDERS.items()]
        operator.train(tiny_federation.run_document(document(tmp_path, "feddyn", {})))
        assert [death.trouble for death in deaths] == ["", "", ""]
        number, h = servers_h(federation.aggregator.state)
        assert number == 3
        own = [h_of(trainer.state / "client-state" / name, number) for name, trainer in federation.trainers.items()]
    for name, value in h.items():
        np.testing.assert_allclose(sum(state[name] for state in own) / len(own), value, rtol=0, atol=1e-6)
