"""Admission to the federation: invitations, certificates for them, renewal, recovery and revocation.

Each change is one transaction. A lock makes them follow each other: what is read before a transaction still holds in it.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from fedplcc.aggregator.identity.challenges import Challenges
from fedplcc.aggregator.identity.issuing import Admitted, Authority
from fedplcc.aggregator.store.base import Certificate, Invitation, Store, Transaction
from fedplcc.shared.errors import (
    AlreadyExists,
    CertificateExpired,
    CertificateRevoked,
    ClientNotFound,
    FailedPrecondition,
    InvitationInvalid,
    InvitationUsed,
    MalformedRequest,
    ResourceExhausted,
)
from fedplcc.shared.identity.certificates import (
    is_reserved_name,
    key_of_request,
    load_certificate,
    public_key_sha256,
    serial_of,
)
from fedplcc.shared.identity.names import INVITED_ROLES, Identity, Role
from fedplcc.shared.identity.recovery import require_signature
from fedplcc.shared.identity.standing import Standing
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.tensors import sha256_hex

DAY_S = 86_400.0
CERTIFICATE_S = 30 * DAY_S
"""Life of a certificate."""
RECOVERY_S = 90 * DAY_S
"""Time after the end of a certificate in which its holder can still get another one, and in which its row is kept."""
SERIALS_AT_LEAST = 1000
"""Certificates that are issued before the list of serial numbers is read again without those that ended."""
SECRET_BYTES = 32
SHORTEST_INVITATION_S, LONGEST_INVITATION_S = 60.0, 30 * DAY_S
MOST_HELD = 100
"""Most certificates of one holder that have not ended: who renews in a loop must not fill the disk."""
MOST_INVITATIONS = 10_000
"""Most open invitations."""
MOST_LISTED = 10_000
"""Most certificates of a list."""
log = get_logger("fedplcc.aggregator.identity")
Record = Callable[[Transaction, str, str], None]
"""Adds a call that was done (its method, its target) to the audit, in the call's own transaction."""
HolderListener = Callable[[Role, str], None]
"""Called with role and name of a holder that has lost its certificates."""
IssueListener = Callable[[Certificate], None]
"""Called with a certificate that was issued."""
SerialsListener = Callable[[Collection[str]], None]
"""Called with the serial numbers of certificates that were revoked."""


def _not_recorded(_transaction: Transaction, _method: str, _target: str) -> None:
    """Record nothing."""


class Admissions:
    """Use cases of invitations and certificates, for any number of threads."""

    def __init__(
        self,
        store: Store,
        authority: Authority,
        *,
        clock: Callable[[], float] = time.time,
        certificate_s: float = CERTIFICATE_S,
        record: Record = _not_recorded,
    ) -> None:
        """Load the serial numbers.

        Args:
            store: Where invitations and certificates are kept.
            clock: The time in seconds since the epoch.
            certificate_s: Life of a certificate in seconds.
            record: Adds a change to the audit.

        Raises:
            StoreUnavailable: The store cannot be read.
        """
        self._store, self._authority, self._clock = store, authority, clock
        self._certificate_s, self._record = certificate_s, record
        self._lock = threading.Lock()
        self._challenges = Challenges(clock)
        self._serials = store.list_serials()
        """Serial number of each certificate on the list, and whether it was revoked."""
        self._read_again_at = 2 * len(self._serials) + SERIALS_AT_LEAST
        self._on_revoked: list[SerialsListener] = []
        self._on_holder_ended: list[HolderListener] = []
        self._on_issued: list[IssueListener] = []

    # Who listens, who asks

    def on_issued(self, listener: IssueListener) -> None:
        """Call this function, from any thread, after a certificate was issued; it is quick and raises nothing."""
        self._on_issued.append(listener)

    def on_revoked(self, listener: SerialsListener) -> None:
        """Call this function, from any thread, after certificates were revoked."""
        self._on_revoked.append(listener)

    def on_holder_ended(self, listener: HolderListener) -> None:
        """Call this function, from any thread, after a holder lost its certificates, to another or for good."""
        self._on_holder_ended.append(listener)

    def standing(self, serial: str) -> Standing:
        """Return what the list says of a certificate; reads memory only."""
        is_revoked = self._serials.get(serial)
        if is_revoked is None:
            return Standing.UNKNOWN
        return Standing.REVOKED if is_revoked else Standing.LISTED

    def has_gateway(self) -> bool:
        """Whether a gateway has a certificate that was not revoked.

        Raises:
            StoreUnavailable: The store cannot be read.
        """
        return self._store.has_holder(Role.GATEWAY)

    def open_invitations(self) -> int:
        """Return the number of invitations that admit somebody."""
        return self._store.count_open_invitations(self._clock())

    def list_recoverable(self) -> list[Certificate]:
        """Return the certificates that hold or can be recovered, newest first for each holder; at most `MOST_LISTED`."""
        return self._store.list_certificates(ending_after=self._clock() - RECOVERY_S, limit=MOST_LISTED)

    def list_certificates(self) -> list[Certificate]:
        """Return the certificates that have not ended, newest first for each holder; at most `MOST_LISTED`."""
        return self._store.list_certificates(ending_after=self._clock(), limit=MOST_LISTED)

    # Invitations

    def invite(
        self, role: Role, name: str, *, domain: str = "", valid_s: float = DAY_S, replaces: bool = False
    ) -> tuple[Invitation, bytes]:
        """Make an invitation; it takes the place of an open one for the same holder.

        Args:
            role: client, gateway or monitor.
            domain: Domain of a client's data; may be empty.
            valid_s: For how many seconds it is good.
            replaces: Whether it takes the name from its holder.

        Returns:
            The invitation and its secret, of which only the SHA-256 is kept.

        Raises:
            AlreadyExists: The name has a holder, and `replaces` is not set.
            MalformedRequest: `role` or `valid_s` is out of range, or the name means somebody else.
            ResourceExhausted: Too many invitations are open.
            StoreUnavailable: The store refuses; nothing has changed.
        """
        if role not in INVITED_ROLES:
            raise MalformedRequest(f"role: {', '.join(sorted(INVITED_ROLES))}")
        if is_reserved_name(name):
            raise MalformedRequest(f"name: {name[:64]!r} means another part of the federation; choose another")
        if not SHORTEST_INVITATION_S <= valid_s <= LONGEST_INVITATION_S:
            raise MalformedRequest(f"valid_s: {SHORTEST_INVITATION_S:.0f} to {LONGEST_INVITATION_S:.0f} seconds")
        secret, now = secrets.token_bytes(SECRET_BYTES), self._clock()
        invitation = Invitation(
            invitation_id=secrets.token_hex(8),
            secret_sha256=sha256_hex(secret),
            role=role.value,
            name=name,
            domain=domain,
            replaces=replaces,
            created_at=now,
            expires_at=now + valid_s,
        )
        with self._lock:
            if not replaces and any(held.revoked_at is None for held in self._store.certificates_of(role.value, name)):
                raise AlreadyExists(
                    f"{role.value} {name} has a certificate; to give the name to another, add --replace"
                )
            if self._store.count_open_invitations(now) >= MOST_INVITATIONS:
                raise ResourceExhausted(f"{MOST_INVITATIONS:,} invitations are open; wait until some end")
            with self._store.transaction() as transaction:
                transaction.forget_open_invitations(role.value, name)
                transaction.save_invitation(invitation)
                self._record(transaction, "CreateInvitation", f"{role.value}:{name}")
        return invitation, secret

    def enrol(self, invitation_id: str, secret: bytes, request: bytes) -> Admitted:
        """Issue the certificate of an invitation, for a request in DER; the same key again gets the same certificate.

        Raises:
            InvitationInvalid: There is no such invitation, or it has ended.
            InvitationUsed: Another key has a certificate for it.
            CertificateRevoked: This key's certificate for it was revoked.
            MalformedRequest: The request is none, or for a key of another kind.
            StoreUnavailable: The store refuses; the same call again gives one certificate.
        """
        public_key = key_of_request(request)
        with self._lock:
            invitation = self._invitation(invitation_id, secret)
            if invitation.serial is not None:
                return self._admitted_again(invitation, invitation.serial, public_key)
            now = self._clock()
            if invitation.expires_at <= now:
                raise _no_such_invitation()
            identity = Identity(self._authority.federation, Role(invitation.role), invitation.name)
            replaced: Sequence[Certificate] = ()
            if invitation.replaces:
                held = self._store.certificates_of(invitation.role, invitation.name)
                replaced = [other for other in held if other.revoked_at is None]
            certificate = self._issue(identity, public_key, now)
            with self._store.transaction() as transaction:
                self._save(transaction, certificate)
                transaction.save_invitation(replace(invitation, spent_at=now, serial=certificate.serial))
                self._revoke(transaction, replaced, now)
                self._record(transaction, "Enrol", f"{invitation.role}:{invitation.name}")
            self._remember(replaced)
        self._tell(identity.role, identity.name, replaced)
        self._tell_issued(certificate)
        log.info("admitted", role=invitation.role, name=invitation.name, serial=certificate.serial)
        return self._admitted(identity, certificate, invitation.domain)

    def _invitation(self, invitation_id: str, secret: bytes) -> Invitation:
        found = self._store.find_invitation(invitation_id)
        if found is None or not hmac.compare_digest(found.secret_sha256, sha256_hex(secret)):
            raise _no_such_invitation()
        return found

    def _admitted_again(self, invitation: Invitation, serial: str, public_key: ec.EllipticCurvePublicKey) -> Admitted:
        issued = self._store.find_certificate(serial)
        if issued is None:
            raise _no_such_invitation()
        if issued.public_key_sha256 != public_key_sha256(public_key):
            log.warning("invitation_used_again", role=invitation.role, name=invitation.name, serial=serial)
            raise InvitationUsed(
                f"another key was certified with this invitation as {invitation.role} {invitation.name}; if that was not "
                f"you, the line was stolen: run 'fedplcc client revoke {invitation.name}' and invite again"
            )
        self._require_not_revoked(serial)
        identity = Identity(self._authority.federation, Role(invitation.role), invitation.name)
        return replace(self._admitted(identity, issued, invitation.domain), is_again=True)

    # Renewal and recovery

    def renew(self, role: Role, name: str, serial: str, request: bytes) -> Admitted:
        """Issue a holder a certificate for a new key, for a request in DER; the same key again gets the same certificate.

        Raises:
            CertificateRevoked: The certificate was revoked.
            MalformedRequest: The request is none, or for the key of the present certificate.
            ResourceExhausted: The holder has too many certificates that have not ended.
            StoreUnavailable: The store refuses; the same call again gives one certificate.
        """
        return self._renew(role, name, serial, key_of_request(request), "RenewCertificate")

    def begin_recovery(self, certificate: bytes) -> bytes:
        """Return a challenge for the holder of a certificate in DER that has ended.

        Raises:
            CertificateExpired: There is no such certificate, or it ended too long ago.
            CertificateRevoked: It was revoked.
            MalformedRequest: It is no certificate.
        """
        return self._challenges.make(self._recoverable(load_certificate(certificate)).serial)

    def finish_recovery(self, certificate: bytes, challenge: bytes, signature: bytes, request: bytes) -> Admitted:
        """Issue a new certificate to who signs the challenge with the old key.

        Args:
            certificate: The certificate that has ended, in DER.
            challenge: An answer of `begin_recovery`.
            request: Request for a certificate in DER, for a new key.

        Raises:
            CertificateExpired, CertificateRevoked, MalformedRequest: As `begin_recovery`.
            FailedPrecondition: The challenge is over a minute old, or of another process.
            Unauthenticated: The signature is not by the certificate's key.
            ResourceExhausted, StoreUnavailable: As `renew`.
        """
        given = load_certificate(certificate)
        held = self._recoverable(given)
        if not self._challenges.is_good(held.serial, challenge):
            raise FailedPrecondition("the challenge is over a minute old or of another certificate; begin again")
        require_signature(given, challenge, request, signature)
        return self._renew(Role(held.role), held.name, held.serial, key_of_request(request), "FinishRecovery")

    def _recoverable(self, given: x509.Certificate) -> Certificate:
        held = self._store.find_certificate(serial_of(given))
        if held is None or load_certificate(held.pem.encode()) != given or held.not_after + RECOVERY_S < self._clock():
            raise CertificateExpired(
                f"no such certificate, or it ended more than {RECOVERY_S / DAY_S:.0f} days ago; ask for another invitation"
            )
        self._require_not_revoked(held.serial)
        return held

    def _renew(
        self, role: Role, name: str, serial: str, public_key: ec.EllipticCurvePublicKey, method: str
    ) -> Admitted:
        identity, digest = Identity(self._authority.federation, role, name), public_key_sha256(public_key)
        with self._lock:
            now = self._clock()
            self._require_not_revoked(serial)
            holding = [held for held in self._store.certificates_of(role.value, name) if held.not_after > now]
            for held in holding:
                if held.public_key_sha256 == digest:
                    if held.serial == serial:
                        raise MalformedRequest("certificate_request: a renewal takes a new key")
                    self._require_not_revoked(held.serial)
                    return self._admitted(identity, held)
            if len(holding) >= MOST_HELD:
                raise ResourceExhausted(f"{role.value} {name} has {MOST_HELD} certificates; wait until one ends")
            certificate = self._issue(identity, public_key, now)
            with self._store.transaction() as transaction:
                self._save(transaction, certificate)
                self._record(transaction, method, f"{role.value}:{name}")
            self._tell_issued(certificate)  # before a revocation tells of its end
        log.info("certificate_renewed", role=role.value, name=name, serial=certificate.serial)
        return self._admitted(identity, certificate)

    # Revocation

    def revoke(self, role: Role, name: str) -> int:
        """Revoke every certificate of a holder, and end the invitations for it; again changes nothing.

        Returns:
            How many certificates were revoked now.

        Raises:
            ClientNotFound: Nobody of this role and name has or had a certificate.
            StoreUnavailable: The store refuses; nothing has changed.
        """
        with self._lock:
            held = self._store.certificates_of(role.value, name)
            if not held:
                raise ClientNotFound(
                    f"no {role.value} {name[:64]!r} has a certificate; 'fedplcc client list' names all"
                )
            revoked = [certificate for certificate in held if certificate.revoked_at is None]
            with self._store.transaction() as transaction:
                transaction.forget_open_invitations(role.value, name)
                self._revoke(transaction, revoked, self._clock())
                self._record(transaction, "RevokeHolder", f"{role.value}:{name}")
            self._remember(revoked)
        self._tell(role, name, revoked)
        log.info("holder_revoked", role=role.value, name=name, certificates=len(revoked))
        return len(revoked)

    # The authority's roots

    def begin_rotation(self) -> list[str]:
        """Add a second root, which travels with every renewal; returns the SHA-256 of all roots, newest first."""
        with self._lock:
            roots = self._authority.begin_rotation()
            self._record_rotation("begin")
            return roots

    def finish_rotation(self) -> list[str]:
        """Drop the older root; returns the SHA-256 of those left.

        Raises:
            FailedPrecondition: Holders need it: all their certificates are of that root, and one has not ended too long ago
                to recover. The metadata's "holders" names them.
        """
        with self._lock:
            holding = [certificate for certificate in self.list_recoverable() if certificate.revoked_at is None]
            is_old = self._authority.is_of_oldest_root
            renewed = {_holder(certificate) for certificate in holding if not is_old(certificate.pem.encode())}
            holders = sorted({_holder(certificate) for certificate in holding} - renewed)
            if holders:
                raise FailedPrecondition(
                    f"the older root can be dropped once these have renewed or are revoked: {', '.join(holders[:5])}"
                    + (f" and {len(holders) - 5} others" if len(holders) > 5 else ""),
                    holders=", ".join(holders),
                )
            roots = self._authority.finish_rotation()
            self._record_rotation("finish")
            return roots

    def _record_rotation(self, target: str) -> None:
        with self._store.transaction() as transaction:
            self._record(transaction, "RotateAuthority", target)

    # Parts of them

    def _require_not_revoked(self, serial: str) -> None:
        if self.standing(serial) is Standing.REVOKED:
            raise CertificateRevoked("this certificate was revoked; only another invitation admits its holder again")

    def _issue(self, identity: Identity, public_key: ec.EllipticCurvePublicKey, now: float) -> Certificate:
        issued = self._authority.issue_client(identity, public_key, self._certificate_s)
        return Certificate(
            serial=issued.serial,
            role=identity.role.value,
            name=identity.name,
            public_key_sha256=public_key_sha256(public_key),
            issued_at=now,
            not_after=issued.not_after,
            pem=_text(issued.chain_pem),
        )

    def _save(self, transaction: Transaction, certificate: Certificate) -> None:
        if len(self._serials) >= self._read_again_at:  # those that ended have left the store's list
            self._serials = self._store.list_serials()
            self._read_again_at = 2 * len(self._serials) + SERIALS_AT_LEAST
        transaction.forget_ended(certificate.issued_at - RECOVERY_S)
        transaction.save_certificate(certificate)

    @staticmethod
    def _revoke(transaction: Transaction, certificates: Sequence[Certificate], now: float) -> None:
        for certificate in certificates:
            transaction.save_certificate(replace(certificate, revoked_at=now))

    def _remember(self, certificates: Sequence[Certificate]) -> None:
        self._serials |= {certificate.serial: True for certificate in certificates}

    def _tell_issued(self, certificate: Certificate) -> None:
        for listener in self._on_issued:
            listener(certificate)

    def _tell(self, role: Role, name: str, certificates: Sequence[Certificate]) -> None:
        if not certificates:
            return
        serials = frozenset(certificate.serial for certificate in certificates)
        for listener in self._on_revoked:
            try:
                listener(serials)
            except Exception:
                log.exception("revocation_listener_crashed")
        for ended in self._on_holder_ended:
            try:
                ended(role, name)
            except Exception:
                log.exception("revocation_listener_crashed")

    def _admitted(self, identity: Identity, certificate: Certificate, domain: str = "") -> Admitted:
        self._serials.setdefault(certificate.serial, False)
        return Admitted(identity, certificate.pem, _text(self._authority.roots_pem), domain)


def _holder(certificate: Certificate) -> str:
    return f"{certificate.role} {certificate.name}"


def _text(pem: bytes) -> str:
    return pem.decode("ascii")


def _no_such_invitation() -> InvitationInvalid:
    return InvitationInvalid("no such invitation: it is unknown, or it has ended; ask for another")
