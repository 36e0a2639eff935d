"""The authority's key alone makes no member: a certificate counts where the aggregator's list has it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fedplcc.shared import errors
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2 as admin_pb2
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2_grpc as admin_grpc
from fedplcc.shared.identity.certificates import new_key
from fedplcc.shared.identity.credentials import Credentials
from fedplcc.shared.identity.names import Role
from fedplcc.shared.wire.channels import open_channel
from fedplcc.shared.wire.enrolling.enrolment import recover
from fedplcc.shared.wire.statuses import translated
from fedplcc.shared.wire.tls import ClientTls
from tests.support.federation.processes import Federation
from tests.support.identity.enrolled import enlist
from tests.support.identity.issued import issued

NO_RECORD = "has no record of the certificate .* of ann"


def caller(federation: Federation, held: Credentials) -> str:
    with open_channel(federation.address, tls=ClientTls(lambda: held)) as channel, translated():
        return str(admin_grpc.AdminServiceStub(channel).GetCaller(admin_pb2.GetCallerRequest(), timeout=20).caller)


def test_a_certificate_that_is_on_no_list_is_refused_until_it_is(federation: Federation) -> None:
    federation.start_aggregator()
    stolen = issued(federation.authority, Role.CLIENT, "ann")
    with pytest.raises(errors.CertificateRevoked, match=NO_RECORD):
        caller(federation, stolen)
    for role in (Role.GATEWAY, Role.MONITOR):
        with pytest.raises(errors.CertificateRevoked, match=NO_RECORD):
            caller(federation, issued(federation.authority, role, "ann"))
    with pytest.raises(errors.CertificateExpired, match="no such certificate"):
        recover(replace(stolen, enrolment=f"127.0.0.1:{federation.enrol_port}"), new_key())
    assert caller(federation, federation.credentials(Role.CLIENT, "ann")) == "client:ann"
    federation.processes["aggregator"].kill()
    enlist(federation.state, [stolen])
    federation.start_aggregator()
    assert caller(federation, stolen) == "client:ann"


def test_who_joined_after_the_backup_that_was_restored_is_invited_again(federation: Federation, tmp_path: Path) -> None:
    federation.start_aggregator()
    federation.processes["aggregator"].end()
    shutil.copytree(federation.state, tmp_path / "backup")
    federation.start_aggregator()
    joined = federation.credentials(Role.CLIENT, "ann")
    assert caller(federation, joined) == "client:ann"
    federation.processes["aggregator"].end()
    shutil.rmtree(federation.state)
    shutil.copytree(tmp_path / "backup", federation.state)
    federation.start_aggregator()
    with pytest.raises(errors.CertificateRevoked, match="ask for another invitation"):
        caller(federation, joined)
