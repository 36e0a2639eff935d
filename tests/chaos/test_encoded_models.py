"""int8 through SIGKILL: what rounding left out of an update is fed back once, though each process was killed."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from fedplcc.shared.tensors import sha256_hex
from tests.chaos import membership
from tests.chaos.armed_federation import ArmedFederation, Order
from tests.chaos.scenarios import Operator
from tests.integration.test_methods_everywhere import document, simulated
from tests.support.federation import tiny_federation

ORDERS = {
    "aggregator": [Order("transition.update_committed.after", 4), Order("transition.round_evaluating.before", 2)],
    "left": [Order("trainer.rpc.CommitUpdate.before", 3), Order("trainer.state.manifest.rename.before", 2)],
    "right": [Order("trainer.state.blob.rename.after", 5), Order("trainer.rpc.CommitUpdate.after", 1)],
}
"""The aggregator dies with a decoded update that it has not acknowledged, and before a result that it encoded is known; a
client before it has sent an update and before it keeps that as committed, the other while it keeps the
error of its second update and as it hears of the acknowledgement."""


@pytest.mark.timeout(300)
def test_each_error_is_fed_back_once_though_each_process_was_killed(tmp_path: Path) -> None:
    with ArmedFederation(tmp_path) as federation, ExitStack() as stack:
        values = {**document(tmp_path, "fedplcc", {}), "wire": {"precision": "int8"}}
        (tmp_path / "undisturbed").mkdir()
        undisturbed = simulated(values, tmp_path / "undisturbed")
        victims = {"aggregator": federation.aggregator, **federation.trainers}
        key = membership.new_key(federation.aggregator.state)
        operator = stack.enter_context(closing(Operator(federation.url, "operator", key)))
        deaths = [stack.enter_context(federation.killing(victims[name], orders)) for name, orders in ORDERS.items()]
        ending = operator.train(tiny_federation.run_document(values))
        assert [death.trouble for death in deaths] == ["", "", ""]
    assert ending["metrics.jsonl"] == sha256_hex("".join(f"{line}\n" for line in undisturbed.lines).encode())
    assert ending["model"] == sha256_hex(undisturbed.model)
