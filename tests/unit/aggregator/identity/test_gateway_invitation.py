"""The invitation of the gateway in the aggregator's state directory."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from fedplcc.aggregator.identity.admissions import DAY_S, Admissions
from fedplcc.aggregator.identity.gateway_invitation import GATEWAY_FILE, VALID_S, GatewayInvitation
from fedplcc.shared.errors import InvitationInvalid, StoreUnavailable
from fedplcc.shared.identity.certificates import new_key, request_for
from fedplcc.shared.identity.invitation_codes import InvitationCode
from fedplcc.shared.identity.names import Role
from tests.support.clock import Clock
from tests.support.hosts.failing_disk import Disk

REQUEST = request_for(new_key())


@pytest.fixture
def invitation(folder: Path, admissions: Admissions, clock: Clock) -> GatewayInvitation:
    return started(folder, admissions, clock)


def started(folder: Path, admissions: Admissions, clock: Clock) -> GatewayInvitation:
    return GatewayInvitation(folder / GATEWAY_FILE, admissions, lambda: "127.0.0.1:50053", lambda: bytes(32), clock)


def code_in(folder: Path) -> InvitationCode:
    return InvitationCode.parse((folder / GATEWAY_FILE).read_text())


def test_it_lies_there_privately_until_a_gateway_has_joined(
    folder: Path, admissions: Admissions, invitation: GatewayInvitation
) -> None:
    invitation.look()
    assert stat.S_IMODE((folder / GATEWAY_FILE).stat().st_mode) == 0o600
    code = code_in(folder)
    assert admissions.enrol(code.invitation_id, code.secret, REQUEST).identity.role is Role.GATEWAY
    invitation.look()
    assert not (folder / GATEWAY_FILE).exists()
    invitation.look()
    assert admissions.open_invitations() == 0


def test_it_comes_back_when_the_gateway_was_revoked(
    folder: Path, admissions: Admissions, invitation: GatewayInvitation
) -> None:
    invitation.look()
    code = code_in(folder)
    admissions.enrol(code.invitation_id, code.secret, REQUEST)
    invitation.look()
    admissions.revoke(Role.GATEWAY, "gateway")
    invitation.look()
    assert code_in(folder).invitation_id != code.invitation_id


def test_a_look_changes_nothing_while_it_holds_and_makes_another_before_it_ends(
    folder: Path, admissions: Admissions, invitation: GatewayInvitation, clock: Clock
) -> None:
    invitation.look()
    first = code_in(folder)
    clock.now += VALID_S - 2 * DAY_S
    invitation.look()
    assert code_in(folder) == first
    clock.now += 1.5 * DAY_S
    invitation.look()
    second = code_in(folder)
    assert second != first
    with pytest.raises(InvitationInvalid):
        admissions.enrol(first.invitation_id, first.secret, REQUEST)


def test_it_names_the_certificate_of_the_moment(folder: Path, admissions: Admissions, clock: Clock) -> None:
    served = [bytes(32)]
    invitation = GatewayInvitation(
        folder / GATEWAY_FILE, admissions, lambda: "127.0.0.1:50053", lambda: served[-1], clock
    )
    invitation.look()
    served.append(b"\1" * 32)  # a rotation was finished
    invitation.look()
    assert code_in(folder).certificate_sha256 == served[-1]


def test_a_full_disk_is_met_again_at_the_next_look(
    folder: Path, admissions: Admissions, invitation: GatewayInvitation, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    disk.fail_at(3)  # after the transaction
    with pytest.raises(StoreUnavailable):
        invitation.look()
    disk.revive()
    invitation.look()
    code = code_in(folder)
    assert admissions.enrol(code.invitation_id, code.secret, REQUEST)
