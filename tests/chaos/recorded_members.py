"""Who belongs to a federation, over power cuts: the authority, its roots, and one member from invitation to revocation."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from fedplcc.aggregator.identity.admissions import Admissions
from fedplcc.aggregator.identity.authority import AUTHORITY_FILE, FOLDER, Authority
from fedplcc.aggregator.identity.gateway_invitation import GATEWAY_FILE, GatewayInvitation
from fedplcc.aggregator.identity.issuing import Admitted
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.identity.certificates import issuer_of, key_to_pem, load_certificate, request_for
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.standing import Standing
from fedplcc.shared.process import disk
from fedplcc.shared.wire.enrolling.renewal import keep, next_key

HERE = "127.0.0.1:1"


class Members:
    """The work, with the invitation on a paper that no power cut takes away."""

    def __init__(self) -> None:
        """Begin without an invitation."""
        self._paper: tuple[str, bytes] | None = None

    def work(self, folder: Path, answered: Callable[[Any], None]) -> Any:
        """Invite, join, renew, rotate the roots, and revoke; returns what is the same after every power cut."""
        try:
            return self._work(folder, answered)
        finally:
            self._paper = None

    def _work(self, folder: Path, answered: Callable[[Any], None]) -> Any:
        state, site = folder / "state", folder / "site"
        disk.make_state_folder(state, "state")
        authority = Authority.open(state)
        with closing(SqlStore.in_folder(state)) as store:
            admissions = Admissions(store, authority)
            sha256 = authority.enrolment_sha256
            GatewayInvitation(state / GATEWAY_FILE, admissions, lambda: HERE, lambda: sha256, time.time).look()
            if self._paper is None:
                invitation, secret = admissions.invite(Role.CLIENT, "north", replaces=True)
                self._paper = (invitation.invitation_id, secret)
                answered(("invited", *self._paper))
            joined = self._joined(admissions, site, answered)
            enrolled = store.find_invitation(self._paper[0])
            assert enrolled is not None
            assert enrolled.serial is not None
            first = store.find_certificate(enrolled.serial)
            assert first is not None
            if joined.serial == enrolled.serial:
                joined = _renewed(admissions, site, joined, answered)
            self._rotate(authority, admissions, site, joined, load_certificate(first.pem.encode()), answered)
            admissions.revoke(Role.CLIENT, "north")
            answered(("revoked",))
            held = store.certificates_of("client", "north")
            return {
                "certificates": len(held),
                "revoked": sum(certificate.revoked_at is not None for certificate in held),
                "roots": len(authority.roots_sha256),
                "gateway is invited": (state / GATEWAY_FILE).exists(),
            }

    def check(self, folder: Path, answers: Sequence[Any]) -> None:
        """See `Program.check`; the work then goes on with the invitation that was answered."""
        self._paper = None
        for answer in answers:
            match answer:
                case ("invited", str(invitation_id), bytes(secret)):
                    self._paper = (invitation_id, secret)
                case ("holds",):
                    Credentials.load(folder / "site" / IDENTITY_FILE)
                case ("roots", str(newest), bool(is_finished)):
                    roots = _roots(folder / "state")
                    assert newest in roots, "a root that was made is gone"
                    assert not is_finished or roots == [newest], "a root that was dropped is back"

    def _joined(self, admissions: Admissions, site: Path, answered: Callable[[Any], None]) -> Credentials:
        if (site / IDENTITY_FILE).exists():
            return Credentials.load(site / IDENTITY_FILE)
        assert self._paper is not None
        disk.make_state_folder(site, "identity")
        key = next_key(site)
        admitted = admissions.enrol(*self._paper, request_for(key))
        return _kept(admitted, key_to_pem(key), site, answered)

    def _rotate(
        self,
        authority: Authority,
        admissions: Admissions,
        site: Path,
        held: Credentials,
        first: Any,
        answered: Callable[[Any], None],
    ) -> None:
        has_old = issuer_of(first, _loaded(authority)) is not None
        if has_old and not authority.is_rotating:
            answered(("roots", admissions.begin_rotation()[0], False))
        if authority.is_rotating:
            if admissions.standing(held.serial) is Standing.LISTED and authority.is_of_oldest_root(held.chain_pem):
                _renewed(admissions, site, held, answered)
            answered(("roots", admissions.finish_rotation()[0], True))


def _renewed(admissions: Admissions, site: Path, held: Credentials, answered: Callable[[Any], None]) -> Credentials:
    key = next_key(site, held)
    admitted = admissions.renew(Role.CLIENT, "north", held.serial, request_for(key))
    return _kept(admitted, key_to_pem(key), site, answered)


def _kept(admitted: Admitted, key_pem: bytes, site: Path, answered: Callable[[Any], None]) -> Credentials:
    credentials = Credentials(key_pem, admitted.chain_pem.encode(), admitted.roots_pem.encode())
    keep(credentials, site)
    answered(("holds",))
    return credentials


def _loaded(authority: Authority) -> list[Any]:
    parts = authority.roots_pem.split(b"-----END CERTIFICATE-----\n")
    return [load_certificate(part + b"-----END CERTIFICATE-----\n") for part in parts if part.strip()]


def _roots(state: Path) -> list[str]:
    """SHA-256 of the roots on the disk, newest first."""
    document = json.loads((state / FOLDER / AUTHORITY_FILE).read_text())
    certificates = [load_certificate(root["certificate"].encode()) for root in document["roots"]]
    return [hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest() for certificate in certificates]
