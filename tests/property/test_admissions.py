"""Any order of invitations, enrolments, renewals, revocations and restarts."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fedplcc.aggregator.identity.admissions import CERTIFICATE_S, Admissions
from fedplcc.aggregator.identity.issuing import Admitted
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.errors import FedplccError, InvitationUsed
from fedplcc.shared.identity.certificates import load_certificate, new_key, public_key_sha256, request_for, serial_of
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.standing import Standing
from tests.support.hosts.memory_folder import memory_folder
from tests.support.identity.memory_authority import MemoryAuthority

KEYS = tuple(new_key() for _ in range(4))
REQUESTS = tuple(map(request_for, KEYS))
NAMES = ("north", "south")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("invite", "replace", "enrol", "renew", "revoke", "restart", "wait")),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=30,
)


class Federation:
    """A small federation, and what must hold in it after every step."""

    def __init__(self, store: SqlStore) -> None:
        self.now = 1_800_000_000.0
        self.store, self.authority = store, MemoryAuthority(lambda: self.now)
        self.codes: list[tuple[str, bytes, str]] = []
        self.key_of: dict[str, int] = {}
        self.held: list[Admitted] = []
        self.revoked: set[str] = set()
        self.restart()

    def restart(self) -> None:
        self.admissions = Admissions(self.store, self.authority, clock=lambda: self.now)
        self.admissions.on_revoked(self.revoked.update)

    def step(self, what: str, which: int, key: int) -> None:
        name = NAMES[which % 2]
        if what in ("invite", "replace"):
            invitation, secret = self.admissions.invite(Role.CLIENT, name, replaces=what == "replace")
            self.codes.append((invitation.invitation_id, secret, name))
        elif what == "enrol" and self.codes:
            invitation_id, secret, name = self.codes[-1 - which % len(self.codes)]
            self.enrol(invitation_id, secret, name, key)
        elif what == "renew" and self.held:
            old = self.held[-1 - which % len(self.held)]
            serial = serial_of(load_certificate(old.chain_pem.encode()))
            assert serial not in self.revoked or not self.renews(old, serial, key)
            if serial not in self.revoked:
                self.renews(old, serial, key)
        elif what == "revoke":
            self.admissions.revoke(Role.CLIENT, name)
        elif what == "restart":
            self.restart()
        elif what == "wait":
            self.now += CERTIFICATE_S / 3

    def enrol(self, invitation_id: str, secret: bytes, name: str, key: int) -> None:
        try:
            admitted = self.admissions.enrol(invitation_id, secret, REQUESTS[key])
        except InvitationUsed:
            assert self.key_of[invitation_id] != key
            raise
        assert self.key_of.setdefault(invitation_id, key) == key, "an invitation admits one key"
        assert admitted.identity.name == name
        self.held.append(admitted)

    def renews(self, old: Admitted, serial: str, key: int) -> bool:
        try:
            renewed = self.admissions.renew(old.identity.role, old.identity.name, serial, REQUESTS[key])
        except FedplccError:
            return False
        assert renewed.identity == old.identity
        self.held.append(renewed)
        return True

    def check(self) -> None:
        for name in NAMES:
            for certificate in self.store.certificates_of("client", name):
                is_revoked = certificate.revoked_at is not None
                assert (
                    is_revoked
                    == (self.admissions.standing(certificate.serial) is Standing.REVOKED)
                    == (certificate.serial in self.revoked)
                )
        for admitted in self.held:
            leaf = load_certificate(admitted.chain_pem.encode())
            row = self.store.find_certificate(serial_of(leaf))
            assert row is None or row.public_key_sha256 == public_key_sha256(leaf.public_key())  # type: ignore[arg-type]


@settings(max_examples=60)
@given(STEPS)
def test_an_invitation_admits_one_key_and_who_is_revoked_gets_nothing(steps: list[tuple[str, int, int]]) -> None:
    with memory_folder() as folder, closing(SqlStore.in_folder(Path(folder))) as store:
        federation = Federation(store)
        for step in steps:
            with suppress(FedplccError):
                federation.step(*step)
            federation.check()
