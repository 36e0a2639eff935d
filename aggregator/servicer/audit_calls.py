"""Calls of AdminService about the audit, and the refusals of calls that go into it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from fedplcc.aggregator.identity.audit import Audit
from fedplcc.aggregator.servicer.calls import Context
from fedplcc.aggregator.servicer.calls import control_call as call
from fedplcc.aggregator.servicer.pages import MAX_PAGE, page_size
from fedplcc.shared.bounds import MAX_REFUSALS
from fedplcc.shared.convert.audit import audit_entry_to_proto
from fedplcc.shared.convert.reading.fields import limited
from fedplcc.shared.errors import BY_REASON, FedplccError, MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2 as admin_pb2
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2_grpc as admin_grpc
from fedplcc.shared.identity.principals import Principal, current_principal
from fedplcc.shared.steering import VERBS
from fedplcc.shared.wire.addresses import is_network
from fedplcc.shared.wire.call_logs import Call

MAX_REPORTED = 256
"""Most kinds of refusals in a report."""
LIMIT = re.compile(r"[a-z_]{1,32}")
"""Form of the name of a gateway's limit."""
OTHERS = "others"
"""Address of the refusals that a gateway does not tell apart."""
REQUESTS = "requests"
"""Method, in the audit, of requests that a gateway refused before it made a call."""


class AuditCalls(admin_grpc.AdminServiceServicer):
    """The calls; mixed into the servicer of AdminService, which sets `_audit`."""

    _audit: Audit

    async def ListAudit(self, request: admin_pb2.ListAuditRequest, context: Context) -> admin_pb2.ListAuditResponse:
        if request.after < 0:
            raise MalformedRequest("after: a number from 0")
        limit = page_size(request.page_size, default=MAX_PAGE, most=MAX_PAGE)
        entries = await call(self._audit.entries, after=request.after, limit=limit)
        return admin_pb2.ListAuditResponse(entries=[audit_entry_to_proto(entry) for entry in entries])

    async def ReportRefusals(
        self, request: admin_pb2.ReportRefusalsRequest, context: Context
    ) -> admin_pb2.ReportRefusalsResponse:
        gateway = current_principal.get()
        refusals = limited("refusals", request.refusals, MAX_REPORTED)
        for refused in refusals:  # all of them before one is counted
            _require_plain(refused)
        if sum(refused.count for refused in refusals) > MAX_REFUSALS:
            raise MalformedRequest(f"refusals: {MAX_REFUSALS:,} requests are the most of a report", field="refusals")
        for refused in refusals:
            caller = replace(gateway, address=refused.address)
            self._audit.refused(caller, REQUESTS, refused.limit, refused.reason, count=refused.count)
        return admin_pb2.ReportRefusalsResponse()


def _require_plain(refused: admin_pb2.RefusedRequests) -> None:
    if refused.reason not in BY_REASON or refused.count < 1:
        raise MalformedRequest("refusals: an unknown reason, or a count below 1", field="refusals")
    if not LIMIT.fullmatch(refused.limit):
        raise MalformedRequest("refusals: a limit's name has 1 to 32 small letters and '_'", field="refusals")
    if refused.address != OTHERS and not is_network(refused.address):
        raise MalformedRequest("refusals: an address is none of IPv4 or IPv6, and no network", field="refusals")


class AuditServicer(AuditCalls):
    """Servicer of AdminService where nobody is asked who they are: the audit alone."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit


def into_audit(audit: Audit) -> Callable[[Principal, Call, FedplccError], None]:
    """Return what notes in the audit that a call was refused for what its caller is or may."""

    def refused(caller: Principal, call: Call, error: FedplccError) -> None:
        facts = {name: str(call.facts.get(name, "")) for name in ("run_id", "client_id", "request_id")}
        target = "/".join(facts[name] for name in ("run_id", "client_id") if facts[name])
        verb = VERBS.get(str(call.facts.get("verb", "")))
        method = call.method.rpartition("/")[2] if verb is None else verb.__name__
        audit.refused(caller, method, target, error.reason, facts["request_id"])

    return refused
