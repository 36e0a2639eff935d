"""Renewal of a member's certificate, in a thread, for as long as the process lives.

A certificate is renewed for a new key when half of its life is left. One that has ended, because the aggregator or this
process was away, is recovered. The new key is on the disk before it is sent: after a crash the same key is sent again, and
gets the same certificate.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from fedplcc.shared.errors import AggregatorUnavailable, CertificateRevoked, FedplccError, MalformedRequest
from fedplcc.shared.identity.certificates import key_from_pem, key_to_pem, new_key
from fedplcc.shared.identity.credentials import IDENTITY_FILE, PRIVATE_FILE, Credentials
from fedplcc.shared.process import disk
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.wire.enrolling.enrolment import recover, renew
from fedplcc.shared.wire.trouble.connection_trouble import ConnectionTrouble

NEXT_KEY_FILE = "identity-next.pem"
"""File in a member's state directory: a key for which a certificate was or will be asked."""
LOOK_S = 3600.0
"""Longest time between two looks at the certificate, and between two attempts."""
LOOKS = 16
"""Looks in the life of a short certificate."""
ENDED_S = 30.0
"""Longest time between two attempts of who has no certificate that holds."""
JITTER = 0.25
"""Part of each wait that is random, so that a thousand members do not call at the same moment."""

log = get_logger("fedplcc.shared.wire.enrolling.renewal")


def next_key(folder: Path, held: Credentials | None = None) -> ec.EllipticCurvePrivateKey:
    """Return the key of the next request: the one on the disk if there is one, else a new one that is on the disk now.

    Args:
        folder: A member's state directory.
        held: What the member has; its key is no next one.

    Raises:
        OSError: The disk refuses.
    """
    path = folder / NEXT_KEY_FILE
    try:
        data = disk.read_regular(path)
        key = key_from_pem(data)
    except (FileNotFoundError, MalformedRequest):
        data = b""
    if not data or (held is not None and data == held.key_pem):
        key = new_key()
        disk.replace_file(path, key_to_pem(key), "identity.next_key", mode=PRIVATE_FILE)
    return key


def keep(credentials: Credentials, folder: Path) -> None:
    """Save credentials as a member's identity, and forget the key as the next one.

    Raises:
        OSError: The disk refuses; the same key can be sent again.
    """
    credentials.save(folder / IDENTITY_FILE)
    disk.remove(folder / NEXT_KEY_FILE, "identity.next_key")


def renewed_in(folder: Path, held: Credentials, address: str, *, has_ended: bool, http_proxy: str = "") -> Credentials:
    """Return credentials for a new key in place of those in a folder, by renewal or, where they have ended, by recovery.

    Args:
        folder: A member's state directory; the new key is kept there before it is sent.
        address: HOST:PORT of the services that demand certificates.
        has_ended: Whether this clock says that the certificate has ended.
        http_proxy: HOST:PORT of an HTTP proxy that is asked to CONNECT; none if empty.

    Raises:
        CertificateRevoked: Only another invitation helps.
        FedplccError: As `renew` and `recover`; try again.
        OSError: The disk refuses.
    """
    key = next_key(folder, held)
    if not has_ended:
        try:
            return renew(held, key, address, http_proxy=http_proxy)
        except CertificateRevoked:
            raise
        except FedplccError as error:
            # A refused handshake tells nothing: this clock may be behind, and the certificate past its end.
            log.debug("not_renewed", reason=error.reason, detail=error.detail)
    return recover(held, key, http_proxy=http_proxy)


class Renewal:
    """The credentials of a member, renewed in time."""

    def __init__(
        self,
        folder: Path,
        address: str,
        on_renewed: Callable[[Credentials], None] = lambda _credentials: None,
        *,
        http_proxy: str = "",
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        """Read the credentials; the thread starts with `start`.

        Args:
            folder: The member's state directory.
            address: HOST:PORT of the aggregator; the one in the credentials if empty.
            on_renewed: Called from the thread with the new credentials, which are on the disk then.
            http_proxy: HOST:PORT of an HTTP proxy that is asked to CONNECT; none if empty.
            clock: Seconds since the epoch.

        Raises:
            InvalidConfig: There are no credentials.
        """
        self.held = Credentials.load(folder / IDENTITY_FILE)
        """Those of the moment."""
        self._folder, self._address, self._http_proxy = folder, address or self.held.address, http_proxy
        self._trouble = ConnectionTrouble(self._address, lambda: self.held, http_proxy=http_proxy)
        self._on_renewed, self._clock, self._rng = on_renewed, clock, rng or random.Random()  # nosec B311 # no secret
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="renewal", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, after the call that it may wait for."""
        self._ending.set()

    def step(self) -> float | None:
        """Renew the certificate if it is due; returns the seconds until the next look, None if it was revoked."""
        left, life = self.held.not_after - self._clock(), self.held.life_s
        if left > life / 2:
            return self._jittered(min(left - life / 2, LOOK_S))
        try:
            renewed = renewed_in(
                self._folder, self.held, self._address, has_ended=left <= 0, http_proxy=self._http_proxy
            )
            keep(renewed, self._folder)
        except CertificateRevoked as error:
            log.error("certificate_revoked", detail=error.detail)
            return None
        except FedplccError as error:
            why = self._trouble.explained(error) if isinstance(error, AggregatorUnavailable) else error
            log.warning("not_renewed", reason=why.reason, detail=why.detail, seconds_left=round(left))
        except OSError as error:
            log.error("not_renewed", detail=disk.why_unusable(self._folder, error), seconds_left=round(left))
        else:
            self.held = renewed
            log.info("certificate_renewed", serial=renewed.serial, not_after=renewed.not_after)
            self._on_renewed(renewed)
            return self._jittered(min(self.held.life_s / LOOKS, LOOK_S))
        return self._jittered(min(life / LOOKS, LOOK_S if left > 0 else ENDED_S))

    def _jittered(self, seconds: float) -> float:
        return seconds * (1 - JITTER * self._rng.random())

    def _run(self) -> None:
        wait_s: float | None = 0.0
        while wait_s is not None and not self._ending.wait(wait_s):
            try:
                wait_s = self.step()
            except Exception:
                log.exception("renewal_crashed")
                wait_s = ENDED_S
