"""Members whose certificates are renewed and recovered over TLS."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from fedplcc.aggregator.identity.admissions import CERTIFICATE_S, Admissions
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.remote.joining import renew_identity
from fedplcc.shared.errors import CertificateRevoked
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.names import Role
from fedplcc.shared.process import failpoints
from fedplcc.shared.wire.enrolling.enrolment import join
from fedplcc.shared.wire.enrolling.renewal import ENDED_S, LOOK_S, NEXT_KEY_FILE, Renewal, keep, next_key
from tests.support.hosts.failing_disk import Killed
from tests.support.identity.enrol_port import EnrolPort
from tests.support.identity.member_port import MemberPort
from tests.support.identity.memory_authority import MemoryAuthority

HALF = CERTIFICATE_S / 2


class Site:
    """A member with a clock of its own, and an aggregator that it reaches."""

    def __init__(self, folder: Path, members: MemberPort, admissions: Admissions) -> None:
        self.folder, self.members, self.admissions = folder, members, admissions
        self.ahead_s = 0.0
        self.told = list[Credentials]()

    def renewal(self, address: str = "") -> Renewal:
        return Renewal(
            self.folder,
            address or self.members.address,
            self.told.append,
            clock=lambda: time.time() + self.ahead_s,
            rng=random.Random(7),
        )

    @property
    def held(self) -> Credentials:
        return Credentials.load(self.folder / IDENTITY_FILE)


@pytest.fixture
def site(folder: Path) -> Iterator[Site]:
    authority = MemoryAuthority(time.time)
    (folder / "site").mkdir()
    with closing(SqlStore.in_folder(folder)) as store:
        admissions = Admissions(store, authority)
        with (
            EnrolPort(admissions, authority) as enrol,
            MemberPort(admissions, authority, enrol, folder) as members,
        ):
            keep(join(enrol.invite(), next_key(folder / "site")), folder / "site")
            yield Site(folder / "site", members, admissions)


def test_a_certificate_is_left_alone_until_half_of_its_life_is_left(site: Site) -> None:
    renewal = site.renewal()
    wait_s = renewal.step()
    assert wait_s is not None
    assert 0.7 * LOOK_S < wait_s <= LOOK_S
    assert renewal.held == site.held
    assert not site.told


def test_it_is_renewed_with_a_new_key_when_half_is_left(site: Site) -> None:
    old, renewal = site.held, site.renewal()
    site.ahead_s = HALF + 60
    assert renewal.step() is not None
    assert site.told == [site.held] == [renewal.held]
    assert site.held.serial != old.serial
    assert site.held.key_pem != old.key_pem
    assert (site.held.identity, site.held.domain, site.held.address) == (old.identity, old.domain, old.address)
    assert not (site.folder / NEXT_KEY_FILE).exists()


def test_one_that_has_ended_is_recovered_from_the_other_port(site: Site) -> None:
    old, renewal = site.held, site.renewal("127.0.0.1:1")
    site.ahead_s = CERTIFICATE_S + 60
    assert renewal.step() is not None
    assert site.held.serial != old.serial


def test_who_is_revoked_stops(site: Site) -> None:
    renewal = site.renewal()
    site.admissions.revoke(Role.CLIENT, "north")
    site.ahead_s = HALF + 60
    assert renewal.step() is None
    assert not site.told


def test_who_reaches_nobody_tries_again_soon_once_the_certificate_has_ended(site: Site, folder: Path) -> None:
    alone = folder / "alone"
    alone.mkdir()
    held = site.held
    Credentials(held.key_pem, held.chain_pem, held.roots_pem, enrolment="127.0.0.1:1").save(alone / IDENTITY_FILE)
    renewal = Renewal(alone, "127.0.0.1:1", clock=lambda: time.time() + site.ahead_s, rng=random.Random(7))
    site.ahead_s = HALF + 60
    first = renewal.step()
    site.ahead_s = CERTIFICATE_S + 60
    second = renewal.step()
    assert first is not None
    assert second is not None
    assert second <= ENDED_S < first <= LOOK_S


@pytest.fixture
def killed_at() -> Iterator[Callable[[int], None]]:
    """Kills this thread at the N-th failpoint from now; 0 lets it live."""
    left = 0

    def hook(name: str) -> None:
        nonlocal left
        if threading.current_thread() is threading.main_thread() and left:
            left -= 1
            if not left:
                raise Killed(name)

    def arm(step: int) -> None:
        nonlocal left
        left = step

    failpoints.install(hook)
    yield arm
    failpoints.install(None)


def test_a_member_killed_at_any_step_of_a_renewal_gets_one_certificate(
    site: Site, killed_at: Callable[[int], None]
) -> None:
    site.ahead_s = HALF + 60
    old = site.held
    for step in itertools.count(1):
        (site.folder / NEXT_KEY_FILE).unlink(missing_ok=True)
        old.save(site.folder / IDENTITY_FILE)
        before = len(site.admissions.list_certificates())
        killed_at(step)
        try:
            site.renewal().step()
        except Killed:
            is_done = False
        else:
            is_done = True
        killed_at(0)
        if is_done:
            break
        was_kept = site.held != old
        again = site.renewal()
        again.step()
        assert again.held == site.held != old, f"killed at step {step}"
        # By this clock what was kept is due again at once: the aggregator's clock is behind.
        assert len(site.admissions.list_certificates()) - before == 1 + was_kept, f"killed at step {step}"
    assert step > 10


def test_a_member_without_a_process_renews_and_recovers_by_a_command(site: Site) -> None:
    keep(replace(site.held, address=site.members.address), site.folder)
    first = site.held
    assert renew_identity(site.folder) == (first, False)
    renewed, is_new = renew_identity(site.folder, clock=lambda: time.time() + HALF + 60)
    assert is_new
    assert site.held == renewed
    assert (renewed.identity, renewed.serial != first.serial) == (first.identity, True)
    recovered, is_new = renew_identity(site.folder, clock=lambda: time.time() + CERTIFICATE_S + 60)
    assert is_new
    assert site.held == recovered
    site.admissions.revoke(Role.CLIENT, "north")
    with pytest.raises(CertificateRevoked):
        renew_identity(site.folder, clock=lambda: time.time() + HALF + 60)


def test_the_thread_ends_when_it_is_closed(site: Site) -> None:
    renewal = site.renewal()
    renewal.start()
    renewal.close()
    renewal._thread.join(20)
    assert not renewal._thread.is_alive()
