"""FedRep through SIGKILL: heads survive their trainers, and the run ends in the undisturbed bytes whoever was killed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from fedplcc.trainer.task.client_state import ClientStates
from tests.chaos import membership
from tests.chaos.armed_federation import ArmedFederation, Order
from tests.chaos.scenarios import Operator, Outcome
from tests.integration.test_methods_everywhere import document
from tests.support.federation import tiny_federation

OWN = {"head_epochs": 1, "upload_head": False}
ORDERS = {
    "aggregator": [Order("transition.update_committed.after", 4), Order("transition.round_evaluating.before", 2)],
    "left": [Order("trainer.rpc.CommitUpdate.before", 3), Order("trainer.rpc.ReportEvaluation.before")],
    "right": [Order("trainer.rpc.ReportEvaluation.after"), Order("trainer.rpc.CommitUpdate.after")],
}
"""The aggregator dies with an update committed that it has not acknowledged, and within a later commit of a round; clients
before they have sent an update, as they have heard of its acknowledgement, and between two rounds."""


def trained(folder: Path, orders: Mapping[str, Sequence[Order]]) -> tuple[Outcome, dict[str, str]]:
    """What a run comes to and the SHA-256 of each client's head, though processes die where they are told."""
    folder.mkdir()
    with ArmedFederation(folder) as federation, ExitStack() as stack:
        victims = {"aggregator": federation.aggregator, **federation.trainers}
        key = membership.new_key(federation.aggregator.state)
        operator = stack.enter_context(closing(Operator(federation.url, "operator", key)))
        deaths = [stack.enter_context(federation.killing(victims[name], each)) for name, each in orders.items()]
        outcome = operator.train(tiny_federation.run_document(document(folder, "fedrep", OWN)))
        assert [death.trouble for death in deaths] == [""] * len(orders)
        heads = {}
        for name, trainer in federation.trainers.items():
            states = ClientStates(trainer.state / "client-state" / name)
            (promoted,) = states.manifest.promoted.values()
            (run_id,) = states.manifest.promoted
            assert promoted.update.round == 3
            assert promoted.state is not None
            assert states.state(run_id)
            heads[name] = promoted.state.sha256
    return outcome, heads


@pytest.mark.timeout(400)
def test_heads_survive_their_trainers_and_the_run_ends_in_the_undisturbed_bytes(tmp_path: Path) -> None:
    whole, heads = trained(tmp_path / "whole", {})
    assert len(set(heads.values())) == len(heads)
    assert trained(tmp_path / "killed", ORDERS) == (whole, heads)
