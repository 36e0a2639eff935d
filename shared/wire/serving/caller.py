"""The caller of each call, by certificate, key or the owner's socket, and whether it may make the call.

TLS looks at a certificate in the handshake only. So chain, end and revocation are looked at again at every call, and a
stream ends, with the reason, once its caller could not open it any more.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from fedplcc.shared.errors import (
    CertificateExpired,
    FedplccError,
    Forbidden,
    IdentityMismatch,
    InvitationUsed,
    KeyInvalid,
    Overloaded,
    ResourceExhausted,
    RoleForbidden,
    ScopeMissing,
    TooManyCalls,
    Unauthenticated,
)
from fedplcc.shared.identity.api_keys import ROLES_OF_SERVICE, SCOPE_OF_CALL, Scope, key_invalid, roles_of
from fedplcc.shared.identity.certificates import check_chain, identity_of, serial_of
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.principals import ANYONE, NOBODY, OWNER, Principal, current_principal
from fedplcc.shared.identity.standing import Standing, require_listed
from fedplcc.shared.wire.call_logs import Call
from fedplcc.shared.wire.serving.token_buckets import TokenBuckets

KEY_METADATA = "fedplcc-key"
"""Metadata key of a person's or a program's key, which a gateway passes on."""
MAX_KNOWN = 4096
"""Most certificates whose checks are kept; another one displaces the one that was used longest ago."""
LOOK_S = 1.0
"""Time between two looks at the roots and at the callers of open streams; a revocation is looked at at once."""
BURST_S = 10.0
"""Calls that may come at once, in seconds of the rate."""
MOST_CALLS_PER_S = 1e6
"""A rate that nobody reaches."""
RATES_OF_THEIR_OWN = {"/fedplcc.v1.RoundService/Heartbeat": 50.0, "/fedplcc.v1.AdminService/RenewCertificate": 0.5}
"""Calls a second of the methods by which a member stays one: answered whatever else it does. An honest member makes one
heartbeat a second and a few renewals a day."""
MOST_STREAMS: dict[Role | None, int] = {Role.CLIENT: 32}
"""Streams of one certificate that are open at once: a trainer has its task stream and a few transfers."""
MOST_OTHER_STREAMS = 128
"""The same of a key, and of certificates of other roles."""

NOTED = (Unauthenticated, Forbidden, InvitationUsed, ResourceExhausted)
"""Refusals for what a caller is, may, or has used up."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Certificates:
    """What the authority knows of certificates."""

    roots_pem: Callable[[], bytes]
    """Returns the roots that callers are checked against."""
    standing: Callable[[str], Standing]
    """Returns what its list says of a certificate, by the serial number; quick."""


class Keys(Protocol):
    """Keys of people and programs; quick, and callable on the event loop."""

    def principal_of(self, text: str) -> Principal:
        """Return a principal with the key's id and scopes. Raises KeyInvalid."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A certificate whose chain was checked against these roots; it ends at a time of the steady clock."""

    principal: Principal
    roots_pem: bytes
    ends_at: float


@dataclass(slots=True, eq=False)
class OpenCall:
    """A stream that is open, and why it is ended if it is not by itself."""

    principal: Principal
    task: asyncio.Task[Any]
    certificate: _Known | None
    key: str
    method: str
    refusal: FedplccError | None = None

    def end(self, why: FedplccError) -> None:
        """Cancel the stream's handler; the interceptor answers with the reason."""
        if self.refusal is None:
            self.refusal = why
            self.task.cancel()


def ignore(_principal: Principal, _call: Call, _error: FedplccError) -> None:
    """Note nothing of a refusal."""


class Callers:
    """The principal of each call of a server; all methods but `look_again` run on the event loop's thread."""

    def __init__(
        self,
        certificates: Certificates | None,
        keys: Keys | None = None,
        *,
        calls_per_s: float = MOST_CALLS_PER_S,
        refused: Callable[[Principal, Call, FedplccError], None] = ignore,
        steady: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin without an open stream.

        Args:
            certificates: Roots and revocations; None where plain text is served and anyone may call anything.
            keys: Keys that gateways pass on; none is valid if None.
            calls_per_s: Calls a second of one certificate or key; ten times as many may come at once.
            refused: Told of each call that is refused for what its caller is, may or has used up; quick.
            steady: The steady clock, in seconds.
            clock: The wall clock, in seconds since the epoch.
        """
        self._certificates, self._keys, self._refused = certificates, keys, refused
        self._steady, self._clock = steady, clock
        self._calls_per_s, self._buckets = calls_per_s, TokenBuckets(calls_per_s, BURST_S * calls_per_s, steady)
        self._own_buckets = {
            method: TokenBuckets(per_s, BURST_S * per_s, steady) for method, per_s in RATES_OF_THEIR_OWN.items()
        }
        self._num_streams: Counter[str] = Counter()
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._latest: OrderedDict[tuple[Role | None, str], float] = OrderedDict()
        self._roots_pem = b""
        self._open: set[OpenCall] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look at open streams."""
        self._loop = asyncio.get_running_loop()
        self._looking = self._loop.create_task(self._look_at_times())

    def stop(self) -> None:
        """End looking at open streams."""
        if self._looking is not None:
            self._looking.cancel()

    def look_again(self, _changed: Iterable[str] = ()) -> None:
        """End the streams of callers that are not admitted any more; called, by any thread, after a revocation."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._look)

    def admit(self, call: Call, context: Any) -> OpenCall | None:
        """Make the caller the call's principal; returns the call if it is a stream, for `closed`.

        Raises:
            CertificateExpired, CertificateRevoked, RoleForbidden, KeyInvalid, ScopeMissing: The caller may not make it.
            TooManyCalls: It has made too many.
            Overloaded: It has as many streams open as it may.
        """
        address = call.peer.rpartition(":")[0]
        is_open = call.method[1:].rpartition("/")[0] not in ROLES_OF_SERVICE
        certificate, key = None, ""
        if context.peer().startswith("unix:"):
            principal = OWNER
        elif self._certificates is None:
            principal = replace(ANYONE, address=address)
        elif is_open:
            principal = replace(NOBODY, address=address)
        else:
            certificate = self._certificate(context)
            principal = replace(certificate.principal, address=address)
            current_principal.set(principal)
            self._require_holds(certificate)
            given = call.metadata.get(KEY_METADATA)
            if given is not None:
                key = given if isinstance(given, str) else ""
                try:
                    held = self._held(key)
                except KeyInvalid:
                    self._count(principal, call.method)
                    raise
                principal = replace(principal, key_id=held.key_id, person=held.person, scopes=held.scopes)
        current_principal.set(principal)
        if certificate is not None:
            self._count(principal, call.method)  # before it is refused for what it may not
        if not is_open:
            _require_allowed(principal, call.method)
        if not (call.is_request_stream or call.is_response_stream) or (certificate is None and not key):
            return None
        most = MOST_OTHER_STREAMS if key else MOST_STREAMS.get(principal.role, MOST_OTHER_STREAMS)
        if self._num_streams[principal.caller] >= most:
            raise Overloaded(f"{principal.caller} has {most} streams open; try again when one has ended")
        task = asyncio.current_task()
        assert task is not None
        opened = OpenCall(principal, task, certificate, key, call.method)
        self._open.add(opened)
        self._num_streams[principal.caller] += 1
        return opened

    def require_still(self, call: Call, context: Any) -> None:
        """Refuse an admitted call that has waited, and whose certificate or key has ended or may less meanwhile.

        Raises:
            CertificateExpired, CertificateRevoked, KeyInvalid, ScopeMissing: The caller could not make it any more.
        """
        if self._certificates is None or current_principal.get().role is None:
            return
        self._require_holds(self._certificate(context), is_open=True)
        key = call.metadata.get(KEY_METADATA)
        if isinstance(key, str):
            _require_scope(self._held(key), call.method)

    def closed(self, opened: OpenCall | None) -> None:
        """Forget a stream whose handler has ended."""
        if opened is not None:
            self._open.discard(opened)
            caller = opened.principal.caller
            self._num_streams[caller] -= 1
            if not self._num_streams[caller]:
                del self._num_streams[caller]

    def note(self, call: Call, error: FedplccError | None) -> None:
        """Note the end of a call, of which a refusal of its caller is told on."""
        if isinstance(error, NOTED):
            self._refused(current_principal.get(), call, error)

    def _count(self, principal: Principal, method: str) -> None:
        wait_s = self._own_buckets.get(method, self._buckets).take(principal.caller)
        if wait_s:
            wait, most = max(1, math.ceil(wait_s)), RATES_OF_THEIR_OWN.get(method, self._calls_per_s)
            raise TooManyCalls(
                f"{principal.caller} makes more than {most:g} calls a second; try again in {wait} s",
                retry_after_s=wait,
            )

    def _certificate(self, context: Any) -> _Known:
        """Return the checked certificate of the connection."""
        found = context.auth_context().get("x509_pem_cert")
        if not found:
            raise Unauthenticated("the connection has no certificate")
        pem = found[0]
        known = self._known.get(pem)
        if known is None or known.roots_pem is not self._roots_pem:
            self._read_roots()
            known = self._checked(pem, self._roots_pem)
            _keep(self._known, pem, known)
            holder = (known.principal.role, known.principal.name)
            _keep(self._latest, holder, max(known.ends_at, self._latest.get(holder, known.ends_at)))
        self._known.move_to_end(pem)
        return known

    def _checked(self, pem: bytes, roots: bytes) -> _Known:
        now = self._clock()
        certificate = check_chain(pem, roots, now)
        identity = identity_of(certificate)
        ends_at = certificate.not_valid_after_utc.timestamp()
        principal = Principal(role=identity.role, name=identity.name, serial=serial_of(certificate), ends_at=ends_at)
        return _Known(principal, roots, self._steady() + ends_at - now)

    def _require_holds(self, certificate: _Known, *, is_open: bool = False) -> None:
        """Refuse an ended or revoked certificate.

        An open stream may go on when its caller has shown a newer certificate: a renewal cuts no transfer.
        """
        principal, ends_at = certificate.principal, certificate.ends_at
        assert self._certificates is not None
        require_listed(self._certificates.standing(principal.serial), principal)
        if is_open:
            ends_at = max(ends_at, self._latest.get((principal.role, principal.name), ends_at))
        if self._steady() >= ends_at:
            raise CertificateExpired(f"the certificate {principal.serial} of {principal.name} has ended; renew it")

    def _held(self, key: str) -> Principal:
        if self._keys is None:
            raise key_invalid()
        return self._keys.principal_of(key)

    async def _look_at_times(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._look()

    def _read_roots(self) -> None:
        assert self._certificates is not None
        roots = self._certificates.roots_pem()
        if roots != self._roots_pem:
            self._roots_pem = roots

    def _look(self) -> None:
        if self._certificates is not None:
            self._read_roots()
        for opened in list(self._open):
            try:
                if opened.certificate is not None:
                    self._require_holds(opened.certificate, is_open=True)
                if opened.key:
                    _require_scope(self._held(opened.key), opened.method)
            except FedplccError as error:
                opened.end(error)


def require_client(client_id: str) -> None:
    """Refuse a call that names another client than its caller.

    Raises:
        IdentityMismatch: The certificate is of another client.
    """
    principal = current_principal.get()
    if principal.is_anyone:
        return
    if principal.role is not Role.CLIENT or principal.name != client_id:
        raise IdentityMismatch(f"the call names the client {client_id[:100]!r}, its certificate is of {principal.name}")


def _require_allowed(principal: Principal, method: str) -> None:
    """Refuse a call that the caller's role or key does not cover."""
    roles = roles_of(method)
    # The owner steers, as a gateway does, and is no client.
    role = Role.GATEWAY if principal.is_owner else principal.role
    if not principal.is_anyone and role not in roles:
        raise RoleForbidden(f"{principal.caller} makes no calls of {method[1:].rpartition('/')[0]}")
    _require_scope(principal, method)


def _require_scope(principal: Principal, method: str) -> None:
    scope = SCOPE_OF_CALL.get(method)
    if scope is not None:
        require_scope(scope, principal)


def require_scope(scope: Scope, principal: Principal) -> None:
    """Refuse a caller whose key has not a scope.

    Raises:
        KeyInvalid, ScopeMissing: It has no key, or not the scope.
    """
    if principal.may(scope):
        return
    if not principal.key_id:
        raise KeyInvalid("this call needs a key; `fedplcc login` on the aggregator's host makes one")
    raise ScopeMissing(f"the key has not the scope {scope}", scope=scope)


def _keep(cache: OrderedDict[_Key, _Value], key: _Key, value: _Value) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > MAX_KNOWN:
        cache.popitem(last=False)
