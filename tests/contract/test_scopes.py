"""Every call has one place in the tables of scopes and roles."""

from __future__ import annotations

from fedplcc.shared.identity.api_keys import OPEN_CALLS, ROLES_OF_SERVICE, SCOPE_OF_CALL, roles_of
from tests.support.identity.every_call import SERVICES


def calls(*names: str) -> set[str]:
    return {
        f"/{service.full_name}/{method.name}"
        for service in SERVICES
        if service.name in names
        for method in service.methods
    }


def test_every_call_that_takes_a_key_has_one_scope() -> None:
    assert set(SCOPE_OF_CALL).isdisjoint(OPEN_CALLS)
    assert set(SCOPE_OF_CALL) | OPEN_CALLS == calls("RunService", "AdminService")


def test_every_call_at_the_port_with_certificates_has_roles() -> None:
    assert set(ROLES_OF_SERVICE) == {service.full_name for service in SERVICES if service.name != "EnrolService"}
    assert all(roles_of(call) for call in calls("RunService", "AdminService", "RoundService"))


def test_calls_before_a_certificate_have_no_role() -> None:
    assert not any(roles_of(call) for call in calls("EnrolService"))
