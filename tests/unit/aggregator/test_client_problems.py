"""What a client reports to be wrong stays visible until the client works again."""

from __future__ import annotations

from pathlib import Path

from shared.types import ClientProblem, Heartbeat
from tests.local_federation import LocalFederation
from tests.numpy_client import NumpyClient, a_document


def test_a_problem_outlives_a_new_connection_of_the_same_instance_and_ends_with_work_done(tmp_path: Path) -> None:
    ann = NumpyClient("ann")
    local = LocalFederation(tmp_path, [ann])
    local.join()
    run = local.coordinator.create_run("request", a_document(clients=("ann",)))
    problem = ClientProblem(reason="INVALID_DATA", detail="no", is_fatal=True)
    local.coordinator.heartbeat(Heartbeat(client_id="ann", problem=problem), ann.token)
    local.join()
    assert [client.problem for client in local.coordinator.list_clients()] == [problem]
    local.run_to_end(run.run_id)
    assert [client.problem for client in local.coordinator.list_clients()] == [None]
    local.store.close()
