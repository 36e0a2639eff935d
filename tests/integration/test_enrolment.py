"""Sites that join over TLS, and who stands in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from fedplcc.aggregator.identity.admissions import Admissions
from fedplcc.aggregator.servicer.call_rate import CallRate
from fedplcc.aggregator.servicer.enrol_service import CALLS, EnrolServicer
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.errors import (
    AggregatorUnavailable,
    InvitationInvalid,
    PinMismatch,
    TooManyCalls,
)
from fedplcc.shared.gen.fedplcc.v1 import enrol_service_pb2 as enrol_pb2
from fedplcc.shared.gen.fedplcc.v1 import enrol_service_pb2_grpc as enrol_grpc
from fedplcc.shared.identity.certificates import AGGREGATOR_DNS, new_key, request_for
from fedplcc.shared.identity.names import Identity, Role
from fedplcc.shared.wire.enrolling.enrolment import join, recover, served_certificate
from fedplcc.shared.wire.statuses import translated
from tests.support.identity.enrol_port import EnrolPort, TlsEndingProxy, company_certificate
from tests.support.identity.memory_authority import FEDERATION, MemoryAuthority
from tests.unit.shared.wire.test_http_proxy import proxy

_REQUEST = request_for(new_key())
NORTH = Identity(FEDERATION, Role.CLIENT, "north")


@pytest.fixture
def authority() -> MemoryAuthority:
    return MemoryAuthority(time.time)


@pytest.fixture
def admissions(folder: Path, authority: MemoryAuthority) -> Iterator[Admissions]:
    with closing(SqlStore.in_folder(folder)) as store:
        yield Admissions(store, authority)


@pytest.fixture
def port(admissions: Admissions, authority: MemoryAuthority) -> Iterator[EnrolPort]:
    with EnrolPort(admissions, authority) as served:
        yield served


def test_a_site_joins_and_knows_address_name_and_domain(port: EnrolPort) -> None:
    credentials = join(port.invite(), new_key())
    assert credentials.identity == NORTH
    assert (credentials.domain, credentials.address) == ("hospital", "127.0.0.1:50051")
    assert credentials.enrolment == port.address


def test_a_proxy_that_ends_tls_learns_no_secret_and_is_named(port: EnrolPort, folder: Path) -> None:
    with TlsEndingProxy(port.address, folder, company_certificate) as proxy:
        code = port.invite(through=proxy.address)
        with pytest.raises(PinMismatch, match=r"inspection\.example") as refused:
            join(code, new_key())
        assert not proxy.learned
        assert "inspection.example" in refused.value.metadata["issuer"]
    assert join(replace(code, address=port.address), new_key()).identity == NORTH, "the invitation is unspent"


def test_a_proxy_whose_certificate_is_trusted_would_learn_the_secret(port: EnrolPort, folder: Path) -> None:
    with TlsEndingProxy(port.address, folder, company_certificate) as proxy:
        code = port.invite(through=proxy.address)
        trusting = replace(code, certificate_sha256=proxy.certificate_sha256)
        assert join(trusting, new_key(), timeout_s=10.0).identity == NORTH
        assert code.secret in proxy.learned, "so the tests above would see it"


def test_a_proxy_that_steps_in_after_the_first_look_learns_no_secret(
    port: EnrolPort, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = served_certificate(port.address)
    monkeypatch.setattr("fedplcc.shared.wire.enrolling.enrolment.served_certificate", lambda *_args, **_named: genuine)
    with TlsEndingProxy(port.address, folder, company_certificate) as proxy:
        with pytest.raises(AggregatorUnavailable):
            join(port.invite(through=proxy.address), new_key(), timeout_s=5.0)
        assert not proxy.learned


async def test_a_site_joins_and_recovers_through_an_http_proxy(port: EnrolPort) -> None:
    async with proxy() as (http_proxy, asked):
        joined = await asyncio.to_thread(join, port.invite(), new_key(), http_proxy=http_proxy)
        assert joined.identity == NORTH
        assert set(asked) == {port.address}
        asked.clear()
        recovered = await asyncio.to_thread(recover, joined, new_key(), http_proxy=http_proxy)
        assert recovered.identity == NORTH
        assert set(asked) == {port.address}


def raw_call(port: EnrolPort, request: enrol_pb2.EnrolRequest) -> None:
    trusted = served_certificate(port.address).public_bytes(Encoding.PEM)
    options = (("grpc.ssl_target_name_override", AGGREGATOR_DNS),)
    credentials = grpc.ssl_channel_credentials(trusted)
    with grpc.secure_channel(port.address, credentials, options=options) as channel, translated():
        enrol_grpc.EnrolServiceStub(channel).Enrol(request, timeout=20)


def test_sites_behind_one_address_join_one_after_the_other_without_waiting(
    admissions: Admissions, authority: MemoryAuthority
) -> None:
    servicer = EnrolServicer(admissions, authority.federation, rate=CallRate(CALLS, 60.0, lambda: 0.0))
    with EnrolPort(admissions, authority, servicer) as port:
        for number in range(CALLS + 2):
            name = f"site-{number}"
            assert join(port.invite(name), new_key()).identity.name == name
        for _ in range(CALLS):
            with pytest.raises(InvitationInvalid):
                raw_call(port, enrol_pb2.EnrolRequest(secret=bytes(32), certificate_request=_REQUEST))
        with pytest.raises(TooManyCalls):
            join(port.invite("late"), new_key())
