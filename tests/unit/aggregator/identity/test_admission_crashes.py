"""An aggregator that dies, or whose disk is full, at any step of an admission: one key gets one certificate."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fedplcc.aggregator.identity.admissions import Admissions
from fedplcc.aggregator.identity.issuing import Admitted
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.identity.certificates import load_certificate, new_key, request_for, serial_of
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.standing import Standing
from tests.support.clock import Clock
from tests.support.hosts.failing_disk import Disk, Killed
from tests.support.identity.memory_authority import MemoryAuthority

REQUEST, NEXT_REQUEST = request_for(new_key()), request_for(new_key())


class Site:
    """A site that tries again until it is admitted, and renews once."""

    def __init__(self, admissions: Admissions) -> None:
        self.invitation, self.secret = admissions.invite(Role.CLIENT, "north", replaces=True)

    def enrols(self, admissions: Admissions) -> Admitted:
        return admissions.enrol(self.invitation.invitation_id, self.secret, REQUEST)

    def enrols_and_renews(self, admissions: Admissions) -> Admitted:
        joined = self.enrols(admissions)
        serial = serial_of(load_certificate(joined.chain_pem.encode()))
        return admissions.renew(Role.CLIENT, "north", serial, NEXT_REQUEST)


def a_federation_with_a_holder(store: SqlStore, authority: MemoryAuthority, clock: Clock) -> Site:
    admissions = Admissions(store, authority, clock=clock)
    invitation, secret = admissions.invite(Role.CLIENT, "north")
    admissions.enrol(invitation.invitation_id, secret, request_for(new_key()))
    return Site(admissions)


def require_one_of_each(store: SqlStore, admissions: Admissions, renewed: Admitted) -> None:
    held = store.certificates_of("client", "north")
    of_site = [certificate for certificate in held if admissions.standing(certificate.serial) is Standing.LISTED]
    assert len(of_site) == 2, "one for the invitation, one for the renewal"
    assert renewed.chain_pem in {certificate.pem for certificate in of_site}
    assert [certificate.revoked_at is not None for certificate in held].count(True) == 1, "who was replaced"


def test_an_aggregator_killed_before_any_step_admits_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, authority: MemoryAuthority
) -> None:
    disk = Disk(monkeypatch)

    def attempt(where: Path, step: int) -> list[str]:
        where.mkdir()
        with closing(SqlStore.in_folder(where)) as store:
            site = a_federation_with_a_holder(store, authority, clock)
            admissions = Admissions(store, authority, clock=clock)
            disk.kill_before(step)
            if step:
                with pytest.raises(Killed):
                    site.enrols_and_renews(admissions)
            else:
                site.enrols_and_renews(admissions)
        steps = disk.steps
        disk.revive()
        with closing(SqlStore.in_folder(where)) as store:
            admissions = Admissions(store, authority, clock=clock)
            require_one_of_each(store, admissions, site.enrols_and_renews(admissions))
        return steps

    steps = attempt(folder / "undisturbed", 0)
    assert steps.count("committed") == 2
    for step in range(1, len(steps) + 1):
        attempt(folder / str(step), step)


@pytest.mark.parametrize("lost", ["Enrol", "RenewCertificate"])
def test_a_lost_answer_gives_the_same_certificate(
    store: SqlStore, authority: MemoryAuthority, clock: Clock, lost: str
) -> None:
    site = a_federation_with_a_holder(store, authority, clock)
    admissions = Admissions(store, authority, clock=clock)
    call: Callable[[Admissions], Admitted] = site.enrols if lost == "Enrol" else site.enrols_and_renews
    assert call(admissions) == call(Admissions(store, authority, clock=clock))
    require_one_of_each(store, admissions, site.enrols_and_renews(admissions))


def test_a_full_disk_refuses_and_changes_nothing(
    store: SqlStore, authority: MemoryAuthority, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, disk = a_federation_with_a_holder(store, authority, clock), Disk(monkeypatch)
    admissions = Admissions(store, authority, clock=clock)
    ended = list[str]()
    admissions.on_holder_ended(lambda _role, name: ended.append(name))
    before = store.certificates_of("client", "north")
    disk.fail_at(1)
    with pytest.raises(StoreUnavailable):
        site.enrols(admissions)
    assert (store.certificates_of("client", "north"), ended) == (before, [])
    assert not any(admissions.standing(certificate.serial) is Standing.REVOKED for certificate in before)
    site.enrols(admissions)
    assert ended == ["north"]
