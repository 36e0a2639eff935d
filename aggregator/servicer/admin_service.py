"""AdminService: certificates, invitations, keys and the audit. Keys and the audit are classes of their own, mixed in."""

from __future__ import annotations

from shared.gen.fedplcc.v1 import admin_service_pb2_grpc as admin_grpc


class AdminServicer(admin_grpc.AdminServiceServicer):
    """Servicer of the RPCs of administrators and of holders of certificates.

    Each part is a mixin that takes its use cases from an attribute, which `__init__` sets.
    """
