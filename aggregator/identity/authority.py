"""The federation's authority: its id, its roots, and the aggregator's own certificate, in STATE_DIR/identity.

One file, replaced atomically and in each backup, holds id, roots, their keys and the certificate of EnrolService: a crash
between two files would leave a federation without its root, and a database's backups travel further than the directory. Who
reads the file is the federation. A passphrase would lie beside the backup or be lost. `ca rotate` adds a root that
certifies from then on; the aggregator stays under the older one, which is all that a sleeping member knows, until
`--finish`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from fedplcc.shared.errors import FailedPrecondition, FedplccError, StoreUnavailable
from fedplcc.shared.identity.certificates import (
    AGGREGATOR_DNS,
    DNS_NAMES,
    ROOT_S,
    aggregator_identity,
    certificate_to_pem,
    federation_of,
    issue,
    issuer_of,
    key_from_pem,
    key_to_pem,
    load_certificate,
    make_root,
    new_key,
    serial_of,
)
from fedplcc.shared.identity.credentials import IDENTITY_FILE, PRIVATE_FILE, Credentials
from fedplcc.shared.identity.names import FEDERATION_PATTERN, Identity
from fedplcc.shared.process import disk
from fedplcc.shared.process.disk import why_unusable

FOLDER = "identity"
"""Folder in the aggregator's state directory; only its owner may look into it."""
AUTHORITY_FILE = "authority.json"
OWN_S = 30 * 86400.0
"""Life of the aggregator's certificate; it is renewed when half is left."""
MAX_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate that was issued."""

    serial: str
    chain_pem: bytes
    not_after: float


@dataclass(frozen=True, slots=True)
class _Signer:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return certificate_to_pem(self.certificate)


class Authority:
    """Issuer of a federation's certificates; any thread may call it.

    One file holds the id, the roots and the certificate of EnrolService, so that a crash leaves the authority as it was or
    as it should be. The aggregator's own certificate has a file of its own, which is made anew where it is missing.
    """

    def __init__(
        self,
        folder: Path,
        federation: str,
        roots: tuple[_Signer, ...],
        enrolment: _Signer,
        *,
        clock: Callable[[], float] = time.time,
        own_s: float = OWN_S,
    ) -> None:
        """Use what `open` has read."""
        self.federation = federation
        self._folder, self._roots, self._enrolment = folder, roots, enrolment
        self._clock, self._own_s = clock, own_s
        self._lock = threading.Lock()
        self._own = self._found_own() or self._renewed()

    @classmethod
    def open(cls, state_dir: Path, *, clock: Callable[[], float] = time.time, own_s: float = OWN_S) -> Self:
        """Read the authority below a state directory, or make it at the first start.

        Args:
            state_dir: The aggregator's state directory, which the process has locked.
            clock: Seconds since the epoch.
            own_s: Life of the aggregator's own certificate in seconds.

        Raises:
            StoreUnavailable: The disk refuses, others may read the keys, or the file is damaged.
        """
        folder = state_dir / FOLDER
        try:
            disk.make_folder(folder, "identity", mode=0o700)
            disk.fsync_folder(state_dir, "identity")
            if stat.S_IMODE(folder.stat().st_mode) & 0o077:
                raise StoreUnavailable(f"others may look into {folder}, which holds keys; run: chmod 700 {folder}")
            file = folder / AUTHORITY_FILE
            if not file.exists():
                if (folder / IDENTITY_FILE).exists():
                    raise StoreUnavailable(
                        f"{file} is missing, and with it the federation's roots; put it back from a backup. Without one, "
                        f"remove the folder {folder}: all members must join again"
                    )
                _made(clock(), file)
            federation, roots, enrolment = _read(file)
            return cls(folder, federation, roots, enrolment, clock=clock, own_s=own_s)
        except OSError as error:
            raise StoreUnavailable(why_unusable(folder, error)) from error

    @property
    def roots_pem(self) -> bytes:
        """The roots, newest first: two while the authority is rotated."""
        return b"".join(root.pem for root in self._roots)

    @property
    def roots_sha256(self) -> list[str]:
        """SHA-256 of the roots in DER, newest first, in hexadecimal."""
        return [hashlib.sha256(root.certificate.public_bytes(Encoding.DER)).hexdigest() for root in self._roots]

    @property
    def is_rotating(self) -> bool:
        """Whether there is a second root."""
        return len(self._roots) > 1

    @property
    def own_file(self) -> Path:
        """File with them, which renewals replace."""
        return self._folder / IDENTITY_FILE

    @property
    def own(self) -> Credentials:
        """Key and certificate of the aggregator itself."""
        return self._own

    @property
    def not_after(self) -> float:
        """End of the aggregator's own certificate in seconds since the epoch."""
        return self._own.not_after

    @property
    def enrolment_sha256(self) -> bytes:
        """SHA-256 of the certificate of EnrolService in DER, which invitations name."""
        return hashlib.sha256(self._enrolment.certificate.public_bytes(Encoding.DER)).digest()

    def server_credentials(self) -> tuple[bytes, bytes]:
        """Return key and certificate of the port that demands certificates, in PEM."""
        return self._own.key_pem, self._own.chain_pem

    def enrolment_credentials(self) -> tuple[bytes, bytes]:
        """Return key and certificate of EnrolService, in PEM. It stays the same while invitations are open."""
        return key_to_pem(self._enrolment.key), self._enrolment.pem

    def issue_client(self, identity: Identity, public_key: ec.EllipticCurvePublicKey, valid_s: float) -> Issued:
        """Issue a certificate of a member under the newest root; whoever calls this keeps its row.

        It has the DNS name of its role, so that a gateway serves its own port and nobody passes for another by a name.
        """
        newest = self._roots[0]
        certificate = issue(
            newest.certificate,
            newest.key,
            public_key,
            identity,
            now=self._clock(),
            valid_s=valid_s,
            dns_names=DNS_NAMES[identity.role],
        )
        return Issued(
            serial_of(certificate), certificate_to_pem(certificate), certificate.not_valid_after_utc.timestamp()
        )

    def is_of_oldest_root(self, certificate_pem: bytes) -> bool:
        """Whether the root that a rotation will drop issued a certificate."""
        oldest = self._roots[-1].certificate
        return self.is_rotating and issuer_of(load_certificate(certificate_pem), [oldest]) is not None

    def renew_if_due(self) -> bool:
        """Renew the aggregator's own certificate when half of its life is left, or its root was dropped.

        Returns:
            Whether it was renewed.

        Raises:
            StoreUnavailable: The disk refuses; the old certificate goes on.
        """
        with self._lock:
            if self._is_good(self._own):
                return False
            self._own = self._renewed()
            return True

    def begin_rotation(self) -> list[str]:
        """Add a second root, under which members are certified from now on; returns the roots' SHA-256, newest first.

        The aggregator's own certificate stays one of the older root, which every member knows.

        Raises:
            FailedPrecondition: A rotation has begun already.
            StoreUnavailable: The disk refuses; nothing has changed.
        """
        with self._lock:
            if self.is_rotating:
                raise FailedPrecondition(
                    "the authority has two roots already; finish with `fedplcc ca rotate --finish`"
                )
            roots = (_new_root(self.federation, self._clock()), *self._roots)
            self._save(roots, self._enrolment)
            self._roots = roots
            return self.roots_sha256

    def finish_rotation(self) -> list[str]:
        """Drop the older root; the caller has found that nobody needs it. Returns the SHA-256 of the root that is left.

        Invitations that are open end with it, since the certificate that they name was issued by the older root.

        Raises:
            FailedPrecondition: No rotation has begun.
            StoreUnavailable: The disk refuses; nothing has changed, or the older root is dropped and `renew_if_due`
                makes the aggregator's own certificate later.
        """
        with self._lock:
            if not self.is_rotating:
                raise FailedPrecondition("the authority has one root; begin with `fedplcc ca rotate`")
            roots = self._roots[:1]
            enrolment = _new_enrolment(roots[0], self.federation, self._clock())
            self._save(roots, enrolment)
            self._roots, self._enrolment = roots, enrolment
            self._own = self._renewed()
            return self.roots_sha256

    def _found_own(self) -> Credentials | None:
        """The aggregator's certificate on the disk; None if it is missing, damaged, near its end or of a dropped root."""
        try:
            found = Credentials.load(self._folder / IDENTITY_FILE)
        except FedplccError:
            return None
        return found if found.identity == aggregator_identity(self.federation) and self._is_good(found) else None

    def _is_good(self, own: Credentials) -> bool:
        """Whether the oldest root issued it, and it has begun and not reached half of its life."""
        is_ours = issuer_of(own.certificate, [self._roots[-1].certificate]) is not None
        now = self._clock()
        return is_ours and own.issued_at <= now and own.not_after - now > self._own_s / 2

    def _renewed(self) -> Credentials:
        """Issue the aggregator's own certificate under the oldest root, which every member knows."""
        oldest, key = self._roots[-1], new_key()
        certificate = issue(
            oldest.certificate,
            oldest.key,
            key.public_key(),
            aggregator_identity(self.federation),
            now=self._clock(),
            valid_s=self._own_s,
            dns_names=(AGGREGATOR_DNS,),
        )
        own = Credentials(key_to_pem(key), certificate_to_pem(certificate), self.roots_pem)
        try:
            own.save(self._folder / IDENTITY_FILE)
        except OSError as error:
            raise StoreUnavailable(why_unusable(self._folder, error)) from error
        return own

    def _save(self, roots: tuple[_Signer, ...], enrolment: _Signer) -> None:
        try:
            _write(self._folder / AUTHORITY_FILE, self.federation, roots, enrolment)
        except OSError as error:
            raise StoreUnavailable(why_unusable(self._folder, error)) from error


def _made(now: float, file: Path) -> None:
    """Make a new federation."""
    federation = f"f{secrets.token_hex(8)[1:]}"
    root = _new_root(federation, now)
    _write(file, federation, (root,), _new_enrolment(root, federation, now))


def _new_root(federation: str, now: float) -> _Signer:
    key = new_key()
    return _Signer(make_root(key, federation, now), key)


def _new_enrolment(root: _Signer, federation: str, now: float) -> _Signer:
    """Certify EnrolService for as long as its root, so that open invitations outlive renewals."""
    key = new_key()
    identity = aggregator_identity(federation)
    # It ends before its issuer does.
    left_s = min(ROOT_S, root.certificate.not_valid_after_utc.timestamp() - now) - 1
    certificate = issue(
        root.certificate, root.key, key.public_key(), identity, now=now, valid_s=left_s, dns_names=(AGGREGATOR_DNS,)
    )
    return _Signer(certificate, key)


def _write(file: Path, federation: str, roots: tuple[_Signer, ...], enrolment: _Signer) -> None:
    document = {
        "federation": federation,
        "roots": [_to_texts(root) for root in roots],
        "enrolment": _to_texts(enrolment),
    }
    disk.replace_file(file, json.dumps(document, indent=1).encode(), "authority", mode=PRIVATE_FILE)


def _to_texts(signer: _Signer) -> dict[str, str]:
    return {"certificate": signer.pem.decode(), "key": key_to_pem(signer.key).decode()}


def _read(file: Path) -> tuple[str, tuple[_Signer, ...], _Signer]:
    with disk.open_regular(file) as opened:
        others = stat.S_IMODE(os.fstat(opened.fileno()).st_mode) & 0o077
        data = opened.read(MAX_BYTES + 1)
    if others:
        raise StoreUnavailable(f"others may read the keys in {file}; run: chmod 600 {file}")
    try:
        document = json.loads(data)
        federation, roots = document["federation"], tuple(_from_texts(root) for root in document["roots"])
        enrolment = _from_texts(document["enrolment"])
        if not re.fullmatch(FEDERATION_PATTERN, federation) or not 1 <= len(roots) <= 2:
            raise ValueError
        if any(federation_of(root.certificate) != federation for root in roots):
            raise ValueError
        if issuer_of(enrolment.certificate, [root.certificate for root in roots]) is None:
            raise ValueError
        return federation, roots, enrolment
    except (ValueError, KeyError, TypeError, FedplccError) as error:
        raise StoreUnavailable(
            f"{file} is damaged: the federation's keys cannot be read; put it back from a backup. Without one, remove the "
            f"folder {file.parent}: all members must join again"
        ) from error


def _from_texts(texts: dict[str, str]) -> _Signer:
    key, certificate = key_from_pem(texts["key"].encode()), load_certificate(texts["certificate"].encode())
    if certificate.public_key() != key.public_key():
        raise ValueError
    return _Signer(certificate, key)
