"""What a gateway may write into the audit about requests that it refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fedplcc.aggregator.identity.audit import Audit
from fedplcc.aggregator.servicer.audit_calls import AuditServicer
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.gateway.refused_requests import RefusedRequests
from fedplcc.shared.bounds import MAX_REFUSALS
from fedplcc.shared.errors import MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2 as admin_pb2
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.principals import Principal, current_principal

REASON = "TOO_MANY_REQUESTS"


def refused(address: str = "192.0.2.7", count: int = 1, limit: str = "key", reason: str = REASON) -> Any:
    return admin_pb2.RefusedRequests(reason=reason, limit=limit, address=address, count=count)


def reported(audit: Audit, *refusals: Any) -> None:
    token = current_principal.set(Principal(role=Role.GATEWAY, name="gate"))
    request = admin_pb2.ReportRefusalsRequest(refusals=refusals)
    try:
        asyncio.run(AuditServicer(audit).ReportRefusals(request, None))  # type: ignore[arg-type]
    finally:
        current_principal.reset(token)


@pytest.fixture
def audit(tmp_path: Any) -> Any:
    store = SqlStore.in_folder(tmp_path)
    yield Audit(store)
    store.close()


@pytest.mark.parametrize(
    "bad",
    [
        refused("an address that I made up"),
        refused(""),
        refused("192.0.2.7\n192.0.2.8"),
        refused("fe80::1%eth0 and more"),
        refused("2001:db8::1/64"),
        refused(count=MAX_REFUSALS + 1),
        refused(count=0),
        refused(count=-1),
        refused(limit="any text"),
        refused(limit="k" * 33),
        refused(reason="MADE_UP"),
    ],
    ids=lambda bad: f"{bad.reason} {bad.limit} {bad.address!r} {bad.count}",
)
def test_what_no_gateway_of_ours_reports_is_refused_whole(audit: Audit, bad: Any) -> None:
    with pytest.raises(MalformedRequest, match="refusals"):
        reported(audit, refused(), bad)
    audit.close()
    assert audit.entries(after=0, limit=10) == []


def test_many_kinds_together_are_bounded_as_one_is(audit: Audit) -> None:
    many = [refused(f"192.0.2.{number}", MAX_REFUSALS) for number in range(256)]
    with pytest.raises(MalformedRequest, match="1,000,000 requests are the most of a report"):
        reported(audit, *many)
    audit.close()
    assert audit.entries(after=0, limit=10) == []


def test_many_reports_are_bounded_as_one_is(audit: Audit) -> None:
    for _ in range(10):
        reported(audit, refused(count=MAX_REFUSALS))
    audit.close()
    assert [entry.count for entry in audit.entries(after=0, limit=10)] == [MAX_REFUSALS]


def test_whatever_a_gateway_counts_can_be_reported(audit: Audit) -> None:
    waiting = RefusedRequests()
    for address in ("192.0.2.7", "2001:db8:1:2::/64", "", "unix:", "a host", "fe80::1%eth0", *map(str, range(300))):
        waiting.add(REASON, "failed_keys", address, 100_000)
    waiting.put_back(waiting.take())
    taken = waiting.take()
    assert sum(each.count for each in taken) == MAX_REFUSALS
    reported(audit, *(refused(each.address, each.count, each.limit, each.reason) for each in taken))
    audit.close()
    entries = audit.entries(after=0, limit=1000)
    assert [each.address for each in taken] == ["192.0.2.7", "2001:db8:1:2::/64", "others"]
    assert sum(entry.count for entry in entries) == MAX_REFUSALS
    waiting.add(REASON, "key", "192.0.2.7")
    assert [each.count for each in waiting.take()] == [1]
