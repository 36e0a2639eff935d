"""An audit that was emptied or cut, found without a site's witness: the aggregator's own rows know what it must tell."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedplcc.aggregator.coordinator.service import Coordinator
from fedplcc.aggregator.identity.admissions import Admissions
from fedplcc.aggregator.identity.audit import Audit
from fedplcc.aggregator.identity.authority import Authority
from fedplcc.aggregator.identity.keys import Keys
from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.store.base import Transaction
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.command.all_commands import app
from fedplcc.shared.identity.api_keys import Scope
from fedplcc.shared.identity.certificates import new_key, request_for
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.principals import OWNER, current_principal
from fedplcc.shared.process.metrics import new_registry
from tests.support.federation.numpy_client import a_document


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state with an invited and renewed client, a key and a session."""
    with closing(SqlStore.in_folder(tmp_path)) as store:
        audit = Audit(store)
        token = current_principal.set(OWNER)

        def record(transaction: Transaction, method: str, target: str) -> None:
            audit.change(method, target)(transaction)

        admissions = Admissions(store, Authority.open(tmp_path), record=record)
        invitation, secret = admissions.invite(Role.CLIENT, "north")
        admissions.enrol(invitation.invitation_id, secret, request_for(new_key()))
        (held,) = admissions.list_certificates()
        serial = held.serial
        admissions.renew(Role.CLIENT, "north", serial, request_for(new_key()))
        keys = Keys(store, record=record)
        keys.create("dashboard", [Scope.READ])
        keys.redeem_console_code(keys.create_console_code(OWNER))
        current_principal.reset(token)
    return tmp_path


def verified(state: Path) -> Result:
    return CliRunner().invoke(app, ["state", "audit", str(state), "--verify"])


def cut(state: Path, after: int) -> None:
    with closing(sqlite3.connect(state / "aggregator.sqlite")) as connection, connection:
        connection.execute("DELETE FROM audit WHERE number > ?", (after,))


def test_a_whole_audit_is_whole(state: Path) -> None:
    answer = verified(state)
    assert (answer.exit_code, "5 entries, whole by their hashes" in answer.stdout) == (0, True), answer.output


def test_an_emptied_audit_is_not_whole(state: Path) -> None:
    cut(state, 0)
    answer = verified(state)
    assert answer.exit_code == 1
    assert "the audit lacks entries about client:north: 2 certificates or keys were made, 0 entries" in answer.stdout
    assert len(answer.stdout.splitlines()) == 3
    assert "the audit lacks entries about client:north" in CliRunner().invoke(app, ["doctor", str(state)]).output


@pytest.mark.parametrize("after", range(5))
def test_wherever_it_is_cut_something_that_was_made_is_missed(state: Path, after: int) -> None:
    cut(state, after)
    assert verified(state).exit_code == 1


def test_a_cut_that_loses_the_entry_of_a_run_is_found(state: Path) -> None:
    with closing(SqlStore.in_folder(state)) as store:
        coordinator = Coordinator(
            store, BlobStore(state), AggregatorMetrics(new_registry("aggregator")), audit=Audit(store)
        )
        run = coordinator.create_run("a request", a_document())
    assert verified(state).exit_code == 0
    cut(state, 5)
    answer = verified(state)
    assert answer.exit_code == 1
    assert f"the audit lacks the entry about the run {run.run_id}, which was created" in answer.stdout
