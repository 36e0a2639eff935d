"""What a member holds: its key, its certificate and the roots of its federation, in one file that only its owner reads."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from cryptography import x509

from fedplcc.shared.errors import FedplccError, InvalidConfig
from fedplcc.shared.identity.certificates import (
    BEGUN_S,
    federation_of,
    identity_of,
    issuer_of,
    key_from_pem,
    load_certificate,
    public_key_sha256,
    serial_of,
)
from fedplcc.shared.identity.names import Identity, Role
from fedplcc.shared.process import disk
from fedplcc.shared.process.certificate_metrics import CertificateSpan

IDENTITY_FILE = "identity.pem"
"""File in a member's state directory."""
PRIVATE_FILE = 0o600
"""Permissions of a file with a key."""
MAX_BYTES = 64 << 10
"""Largest file."""
_FIRST = "# fedplcc identity "
_ROOTS = "# roots of the federation"


@dataclass(frozen=True)
class Credentials:
    """A member's key and certificate, and what it was told with them."""

    key_pem: bytes
    chain_pem: bytes
    roots_pem: bytes
    domain: str = ""
    """Domain of a client's data, if the invitation said one."""
    address: str = ""
    """HOST:PORT of the aggregator."""
    enrolment: str = ""
    """HOST:PORT of its EnrolService."""

    @cached_property
    def certificate(self) -> x509.Certificate:
        """The certificate."""
        return load_certificate(self.chain_pem)

    @cached_property
    def identity(self) -> Identity:
        """Whom it names."""
        return identity_of(self.certificate)

    @property
    def serial(self) -> str:
        """Its serial number in hexadecimal."""
        return serial_of(self.certificate)

    @property
    def issued_at(self) -> float:
        """Its beginning in seconds since the epoch, two hours before it was issued."""
        return self.certificate.not_valid_before_utc.timestamp()

    @property
    def not_after(self) -> float:
        """Its end in seconds since the epoch."""
        return self.certificate.not_valid_after_utc.timestamp()

    @property
    def life_s(self) -> float:
        """Seconds from its issue to its end."""
        return self.not_after - self.issued_at - BEGUN_S

    @property
    def span(self) -> CertificateSpan:
        """The certificate as metrics show it."""
        role, name = self.identity.role, self.identity.name
        return CertificateSpan(role, name if role is Role.CLIENT else "", self.not_after, self.life_s)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file.

        Raises:
            InvalidConfig: There is none, others may read it, or it does not hold a key with its certificate and roots.
        """
        try:
            with disk.open_regular(path) as file:
                others = stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise InvalidConfig(f"cannot read the identity {path}: {error.strerror or error}") from error
        if others:
            raise InvalidConfig(f"others may read the key in {path}; make it private: chmod 600 {path}")
        try:
            return cls._parsed(data)
        except (ValueError, KeyError, TypeError, FedplccError) as error:
            said = error.detail if isinstance(error, FedplccError) else "it is cut or was changed"
            raise InvalidConfig(f"{path} is no identity of a federation: {said}; join again with --replace") from error

    def save(self, path: Path, step: str = "identity") -> None:
        """Replace the file atomically and durably; only its owner may read it.

        Raises:
            OSError: The disk refuses; the file is unchanged.
        """
        told = json.dumps({"domain": self.domain, "address": self.address, "enrolment": self.enrolment})
        first, roots = f"{_FIRST}{told}\n".encode(), f"{_ROOTS}\n".encode()
        data = first + _lines(self.key_pem) + _lines(self.chain_pem) + roots + _lines(self.roots_pem)
        disk.replace_file(path, data, step, mode=PRIVATE_FILE)

    @classmethod
    def _parsed(cls, data: bytes) -> Self:
        if len(data) > MAX_BYTES:
            raise ValueError("too large")
        first, _, rest = data.partition(b"\n")
        told = json.loads(first.decode().removeprefix(_FIRST))
        own, mark, roots = rest.partition(f"{_ROOTS}\n".encode())
        key, begin, chain = own.partition(b"-----BEGIN CERTIFICATE-----")
        if not mark:
            raise ValueError("no roots")
        texts = {name: str(told[name]) for name in ("domain", "address", "enrolment")}
        found = cls(key, begin + chain, roots, **texts)
        private = key_from_pem(found.key_pem)
        certified = found.certificate.public_key()
        if public_key_sha256(private.public_key()) != public_key_sha256(certified):  # type: ignore[arg-type]
            raise ValueError("the key is another one than the certificate's")
        root = issuer_of(found.certificate, x509.load_pem_x509_certificates(roots))
        if root is None or federation_of(root) != found.identity.federation:
            raise ValueError("the roots are those of another federation")
        return found


def _lines(pem: bytes) -> bytes:
    return pem if pem.endswith(b"\n") else pem + b"\n"
