"""A real aggregator and real trainers over mutual TLS: a run ends in the simulation's bytes, strangers get nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from fedplcc.aggregator.identity.authority import Authority
from fedplcc.command.all_commands import app
from fedplcc.remote.health import first_serving
from fedplcc.shared import errors
from fedplcc.shared.gen.fedplcc.v1 import (
    enrol_service_pb2,
    enrol_service_pb2_grpc,
    round_service_pb2,
    round_service_pb2_grpc,
)
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.names import Role
from fedplcc.shared.wire.channels import open_channel
from fedplcc.shared.wire.statuses import translated
from fedplcc.shared.wire.tls import ClientTls
from tests.support.federation.processes import Federation, eventually
from tests.support.identity.issued import issued

WAIT_S = 300.0


def endpoint(federation: Federation) -> dict[str, int]:
    found: dict[str, int] = json.loads((federation.folder / "aggregator" / "endpoint.json").read_text())
    return found


def doctor(federation: Federation) -> str:
    """What `fedplcc doctor --aggregator` says of the aggregator."""
    checked = CliRunner().invoke(app, ["doctor", "--aggregator", federation.address])
    return "\n".join(line for line in checked.stdout.splitlines() if federation.address in line)


def test_without_a_certificate_only_admission_is_open_and_health_on_loopback(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, authority = federation, federation.authority
    (served.folder / "other").mkdir(mode=0o700)
    served.start_aggregator("--health-port", "0")
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
    monkeypatch.chdir(served.folder)
    with pytest.raises(errors.TlsFailed, match="speaks TLS: give --identity FILE"):
        first_serving([served.address])
    assert "speaks TLS: join the federation with 'fedplcc join'" in doctor(served)
    own = served.identity_file(Role.CLIENT, "ann", Path("fedplcc-state") / "trainer")
    with pytest.raises(errors.TlsFailed, match=f"give --identity {own}"):
        first_serving([served.address])
    assert f"{served.address} serves with fedplcc" in doctor(served)
    member = served.folder / IDENTITY_FILE
    issued(authority, Role.CLIENT, "ann").save(member)
    assert first_serving([served.address], identity=member)
    stranger = Authority.open(served.folder / "other")
    issued(stranger, Role.CLIENT, "ann").save(member)
    with pytest.raises(errors.TlsFailed, match="TLS is intercepted by"):
        first_serving([served.address], identity=member)


def test_a_trainer_with_another_clients_certificate_says_so_and_ends(federation: Federation) -> None:
    served = federation
    served.start_aggregator()
    served.identity_file(Role.CLIENT, "right", served.folder / "trainer-left")
    trainer = served.start_trainer("left", "digits:synth")
    eventually(lambda: trainer.exit_code is not None, "it ends", WAIT_S)
    assert trainer.exit_code == 2
    assert "has the identity of client right" in trainer.log()
