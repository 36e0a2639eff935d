"""A real aggregator and real trainers over mutual TLS: a run ends in the simulation's bytes, strangers get nowhere."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import grpc
import pytest

from aggregator.identity.authority import Authority
from fedplcc.remote.health import first_serving
from shared import errors
from shared.gen.fedplcc.v1 import enrol_service_pb2, enrol_service_pb2_grpc, round_service_pb2, round_service_pb2_grpc
from shared.identity.certificates import key_to_pem, new_key
from shared.identity.credentials import IDENTITY_FILE, Credentials
from shared.identity.names import Identity, Role
from shared.wire.channels import open_channel
from shared.wire.statuses import translated
from shared.wire.tls import ClientTls
from tests.support.federation import tiny_federation
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.processes import Federation, Process, eventually

WAIT_S = 300.0


def issued(authority: Authority, role: Role, name: str) -> Credentials:
    key = new_key()
    certificate = authority.issue_client(Identity(authority.federation, role, name), key.public_key(), 3600.0)
    return Credentials(key_to_pem(key), certificate.chain_pem, authority.roots_pem)


def start(federation: Federation, tls: ClientTls | None) -> Process:
    """Start the aggregator on the same state, over TLS or in plain text."""
    federation.tls = tls
    federation.processes.pop("aggregator", None)
    return federation.start_aggregator("--enrol-port", "0", "--health-port", "0")


def endpoint(federation: Federation) -> dict[str, int]:
    found: dict[str, int] = json.loads((federation.folder / "aggregator" / "endpoint.json").read_text())
    return found


def has_completed(federation: Federation) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{federation.metrics_port}/metrics", timeout=20) as answer:
        return 'fedplcc_runs_ended_total{status="completed"} 1.0' in answer.read().decode()


def test_a_run_over_mutual_tls_ends_in_the_simulations_bytes(data: Path, tmp_path: Path) -> None:
    values = tiny_federation.document(data, run={"rounds": 2})
    expected = tiny_federation.simulated(tmp_path / "reference", values)
    with Federation(tmp_path) as federation:
        aggregator = start(federation, None)
        control = RunControl(federation.address)
        run_id = control.create(tiny_federation.run_document(values)).run_id
        control.close()
        aggregator.end()
        authority = Authority.open(tmp_path / "aggregator")
        aggregator = start(federation, ClientTls(lambda: issued(authority, Role.MONITOR, "watch")))
        for name in tiny_federation.CLIENTS:
            (tmp_path / f"trainer-{name}").mkdir(mode=0o700)
            issued(authority, Role.CLIENT, name).save(tmp_path / f"trainer-{name}" / IDENTITY_FILE)
            federation.start_trainer(name, f"npz:{data}/{name}.npz")
        eventually(lambda: has_completed(federation), "the run completes", WAIT_S)
        aggregator.end()
        start(federation, None)
        control = RunControl(federation.address)
        last = json.loads(control.metrics_lines(run_id)[-1])
        control.close()
        assert last["model_sha256"] == expected[-1]["model_sha256"]


@pytest.fixture
def served(tmp_path: Path) -> Federation:
    return Federation(tmp_path)


def test_without_a_certificate_only_admission_is_open_and_health_on_loopback(served: Federation) -> None:
    for name in ("aggregator", "other"):
        (served.folder / name).mkdir(mode=0o700)
    authority = Authority.open(served.folder / "aggregator")
    with served:
        start(served, ClientTls(lambda: issued(authority, Role.MONITOR, "watch")))
        found = endpoint(served)
        nobody = Credentials(None, None, authority.roots_pem)  # type: ignore[arg-type]
        with open_channel(served.address, tls=ClientTls(lambda: nobody)) as channel:
            stub = round_service_pb2_grpc.RoundServiceStub(channel)
            with pytest.raises(errors.AggregatorUnavailable), translated():
                stub.Heartbeat(round_service_pb2.HeartbeatRequest(client_id="ann"), timeout=20)
        with open_channel(f"127.0.0.1:{found['enrol_port']}", tls=ClientTls(lambda: nobody)) as channel:
            enrolment = enrol_service_pb2_grpc.EnrolServiceStub(channel)
            assert enrolment.GetTime(enrol_service_pb2.GetTimeRequest(), timeout=20).federation == authority.federation
            huge = enrol_service_pb2.EnrolRequest(certificate_request=bytes(17 << 10))
            with pytest.raises(errors.ResourceExhausted), translated():
                enrolment.Enrol(huge, timeout=20)
            strange = round_service_pb2_grpc.RoundServiceStub(channel)
            with pytest.raises(grpc.RpcError) as raised:
                strange.Join(round_service_pb2.JoinRequest(client_id="ann"), timeout=20)
            assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert first_serving([f"127.0.0.1:{found['health_port']}"])
        with pytest.raises(errors.TlsFailed, match="speaks TLS: give --identity"):
            first_serving([served.address])
        member = served.folder / IDENTITY_FILE
        issued(authority, Role.CLIENT, "ann").save(member)
        assert first_serving([served.address], identity=member)
        stranger = Authority.open(served.folder / "other")
        issued(stranger, Role.CLIENT, "ann").save(member)
        with pytest.raises(errors.TlsFailed, match="TLS is intercepted by"):
            first_serving([served.address], identity=member)


def test_a_trainer_with_another_clients_certificate_says_so_and_ends(served: Federation) -> None:
    (served.folder / "aggregator").mkdir(mode=0o700)
    authority = Authority.open(served.folder / "aggregator")
    with served:
        start(served, ClientTls(lambda: issued(authority, Role.MONITOR, "watch")))
        (served.folder / "trainer-left").mkdir(mode=0o700)
        issued(authority, Role.CLIENT, "right").save(served.folder / "trainer-left" / IDENTITY_FILE)
        trainer = served.start_trainer("left", "digits:synth")
        eventually(lambda: trainer.exit_code is not None, "it ends", WAIT_S)
        assert trainer.exit_code == 2
        assert "has the identity of client right" in trainer.log()
