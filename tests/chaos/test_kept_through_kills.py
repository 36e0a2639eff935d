"""What both sides keep through SIGKILL of each process: FedDyn's h, FedRep's heads, and what int8 left out of an update."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.tensors import from_bytes, sha256_hex
from fedplcc.trainer.task.client_state import ClientStates
from tests.chaos import membership
from tests.chaos.armed_federation import ArmedFederation, Order
from tests.chaos.scenarios import Operator, Outcome
from tests.integration.test_methods_everywhere import document, simulated
from tests.support.federation import tiny_federation

IN_COMMITS = [Order("transition.update_committed.after", 4), Order("transition.round_evaluating.before", 2)]
"""The aggregator dies with an update committed that it has not acknowledged, and within a later commit of a round."""
DYN = {
    "aggregator": IN_COMMITS,
    "left": [Order("trainer.rpc.CommitUpdate.before", 3)],
    "right": [Order("trainer.rpc.CommitUpdate.after", 2)],
}
"""A client dies before it has sent an update, the other as it has heard of the acknowledgement."""
REP = {
    "aggregator": IN_COMMITS,
    "left": [Order("trainer.rpc.CommitUpdate.before", 3), Order("trainer.rpc.ReportEvaluation.before")],
    "right": [Order("trainer.rpc.ReportEvaluation.after"), Order("trainer.rpc.CommitUpdate.after")],
}
"""Clients die before they have sent an update, as they have heard of its acknowledgement, and between two rounds."""
INT8 = {
    "aggregator": IN_COMMITS,
    "left": [Order("trainer.rpc.CommitUpdate.before", 3), Order("trainer.state.manifest.rename.before", 2)],
    "right": [Order("trainer.state.blob.rename.after", 5), Order("trainer.rpc.CommitUpdate.after", 1)],
}
"""The aggregator dies with a decoded update that it has not acknowledged, and before a result that it encoded is known; a
client before it has sent an update and before it keeps that as committed, the other while it keeps the
error of its second update and as it hears of the acknowledgement."""


@contextmanager
def trained(
    folder: Path, values: Mapping[str, Any], orders: Mapping[str, Sequence[Order]]
) -> Iterator[tuple[ArmedFederation, Outcome]]:
    """A federation that has trained a run on the data in a folder, and what that came to, though processes died as told."""
    with ArmedFederation(folder) as federation, ExitStack() as stack:
        victims = {"aggregator": federation.aggregator, **federation.trainers}
        key = membership.new_key(federation.aggregator.state)
        operator = stack.enter_context(closing(Operator(federation.url, "operator", key)))
        deaths = [stack.enter_context(federation.killing(victims[name], each)) for name, each in orders.items()]
        outcome = operator.train(tiny_federation.run_document(dict(values)))
        assert [death.trouble for death in deaths] == [""] * len(orders)
        yield federation, outcome


def servers_h(folder: Path) -> tuple[int, dict[str, Any]]:
    """The last round that was aggregated, and the slot as it committed it."""
    with closing(sqlite3.connect(folder / "aggregator.sqlite")) as connection:
        query = "SELECT number, server_state FROM rounds WHERE server_state IS NOT NULL ORDER BY number DESC"
        number, state = connection.execute(query).fetchone()
    sha256 = json.loads(state)["h"]["sha256"]
    return number, from_bytes((folder / "blobs" / sha256[:2] / sha256).read_bytes())


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
def test_feddyns_h_is_the_mean_of_its_clients_though_each_process_was_killed(tmp_path: Path) -> None:
    """Of the last round: an h that was another after any round before it would still be another."""
    with trained(tmp_path, document(tmp_path, "feddyn", {}), DYN) as (federation, _):
        number, h = servers_h(federation.aggregator.state)
        assert number == 3
        own = [h_of(trainer.state / "client-state" / name, number) for name, trainer in federation.trainers.items()]
    assert h.keys() == own[0].keys() == own[1].keys()
    for name, value in h.items():
        np.testing.assert_allclose(sum(state[name] for state in own) / len(own), value, rtol=0, atol=1e-6)
    assert max(np.abs(value).max() for value in h.values()) > 1e-4


def heads_of(folder: Path, orders: Mapping[str, Sequence[Order]]) -> tuple[Outcome, dict[str, str]]:
    """What a run of FedRep comes to, and the SHA-256 of each client's head."""
    folder.mkdir()
    values = document(folder, "fedrep", {"head_epochs": 1, "upload_head": False})
    with trained(folder, values, orders) as (federation, outcome):
        heads = {}
        for name, trainer in federation.trainers.items():
            states = ClientStates(trainer.state / "client-state" / name)
            ((run_id, promoted),) = states.manifest.promoted.items()
            assert promoted.update.round == 3
            assert promoted.state is not None
            assert states.state(run_id)
            heads[name] = promoted.state.sha256
    return outcome, heads


@pytest.mark.timeout(400)
def test_fedreps_heads_survive_their_trainers_and_the_run_ends_in_the_undisturbed_bytes(tmp_path: Path) -> None:
    whole, heads = heads_of(tmp_path / "whole", {})
    assert len(set(heads.values())) == len(heads)
    assert heads_of(tmp_path / "killed", REP) == (whole, heads)


@pytest.mark.timeout(300)
def test_each_error_of_int8_is_fed_back_once_though_each_process_was_killed(tmp_path: Path) -> None:
    values = {**document(tmp_path, "fedplcc", {}), "wire": {"precision": "int8"}}
    with trained(tmp_path, values, INT8) as (_, ending):
        (tmp_path / "undisturbed").mkdir()
        undisturbed = simulated(values, tmp_path / "undisturbed")
    assert ending["metrics.jsonl"] == sha256_hex("".join(f"{line}\n" for line in undisturbed.lines).encode())
    assert ending["model"] == sha256_hex(undisturbed.model)
