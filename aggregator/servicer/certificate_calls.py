"""Calls of AdminService about invitations and certificates."""

from __future__ import annotations

import math
from collections.abc import Callable

from fedplcc.aggregator.identity.admissions import Admissions
from fedplcc.aggregator.servicer.calls import Context
from fedplcc.aggregator.servicer.calls import control_call as call
from fedplcc.aggregator.servicer.enrol_service import issued_to_proto
from fedplcc.shared.convert.reading.fields import plain_name
from fedplcc.shared.errors import FailedPrecondition, MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2 as admin_pb2
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2_grpc as admin_grpc
from fedplcc.shared.identity.names import INVITED_ROLES, Role
from fedplcc.shared.identity.principals import current_principal


class CertificateCalls(admin_grpc.AdminServiceServicer):
    """Mixin of AdminServicer; it needs the attributes below."""

    _admissions: Admissions
    _enrolment_sha256: Callable[[], bytes]
    """Returns the SHA-256 of the certificate at the port of EnrolService."""

    async def RenewCertificate(
        self, request: admin_pb2.RenewCertificateRequest, context: Context
    ) -> admin_pb2.RenewCertificateResponse:
        caller = current_principal.get()
        if caller.role is None or not caller.serial:
            raise FailedPrecondition("only who calls with a certificate has one to renew")
        renew = self._admissions.renew
        admitted = await call(renew, caller.role, caller.name, caller.serial, request.certificate_request)
        return admin_pb2.RenewCertificateResponse(issued=issued_to_proto(admitted, 0))

    async def CreateInvitation(
        self, request: admin_pb2.CreateInvitationRequest, context: Context
    ) -> admin_pb2.CreateInvitationResponse:
        role, name = _invited(request.role), plain_name("name", request.name)
        domain = plain_name("domain", request.domain) if request.domain else ""
        if domain and role is not Role.CLIENT:
            raise MalformedRequest("domain: only clients have data, and so a domain")
        if not math.isfinite(request.valid_s):
            raise MalformedRequest("valid_s: it is no number of seconds")
        invitation, secret = await call(
            self._admissions.invite, role, name, domain=domain, valid_s=request.valid_s, replaces=request.replaces
        )
        return admin_pb2.CreateInvitationResponse(
            invitation_id=invitation.invitation_id,
            secret=secret,
            certificate_sha256=self._enrolment_sha256(),
            expires_at=invitation.expires_at,
        )

    async def ListCertificates(
        self, request: admin_pb2.ListCertificatesRequest, context: Context
    ) -> admin_pb2.ListCertificatesResponse:
        held = await call(self._admissions.list_certificates)
        return admin_pb2.ListCertificatesResponse(
            certificates=[
                admin_pb2.HeldCertificate(
                    serial=certificate.serial,
                    role=certificate.role,
                    name=certificate.name,
                    issued_at=certificate.issued_at,
                    not_after=certificate.not_after,
                    revoked_at=certificate.revoked_at or 0.0,
                )
                for certificate in held
            ]
        )

    async def RevokeHolder(
        self, request: admin_pb2.RevokeHolderRequest, context: Context
    ) -> admin_pb2.RevokeHolderResponse:
        role, name = _invited(request.role), plain_name("name", request.name)
        return admin_pb2.RevokeHolderResponse(revoked=await call(self._admissions.revoke, role, name))

    async def RotateAuthority(
        self, request: admin_pb2.RotateAuthorityRequest, context: Context
    ) -> admin_pb2.RotateAuthorityResponse:
        rotate = self._admissions.finish_rotation if request.is_finish else self._admissions.begin_rotation
        return admin_pb2.RotateAuthorityResponse(roots_sha256=await call(rotate))


def _invited(role: str) -> Role:
    try:
        found = Role(role)
    except ValueError:
        found = Role.AGGREGATOR
    if found not in INVITED_ROLES:
        raise MalformedRequest(f"role: {', '.join(sorted(INVITED_ROLES))}")
    return found
