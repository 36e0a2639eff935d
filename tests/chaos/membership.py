"""A scenario: members join, renew, recover and are revoked, roots and keys change, and everything is in the audit.

The aggregator's owner and the sites ask again until they are answered, as the commands do. What the owner asks for twice may
be done twice, an invitation or a key; what a site asks for twice gives one certificate.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from fedplcc.remote.admin_calls import AdminCalls, admin_calls
from fedplcc.remote.joining import join_federation
from fedplcc.shared.errors import (
    AggregatorUnavailable,
    FailedPrecondition,
    InvitationInvalid,
    KeyInvalid,
    NotFound,
    TooManyCalls,
    Unavailable,
)
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2 as admin_pb2
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2_grpc as admin_grpc
from fedplcc.shared.gen.fedplcc.v1 import enrol_service_pb2 as enrol_pb2
from fedplcc.shared.gen.fedplcc.v1 import enrol_service_pb2_grpc as enrol_grpc
from fedplcc.shared.identity.api_keys import Scope
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.invitation_codes import InvitationCode
from fedplcc.shared.identity.names import Role
from fedplcc.shared.wire.addresses import join_address
from fedplcc.shared.wire.channels import open_channel
from fedplcc.shared.wire.enrolling.enrolment import recover, renew
from fedplcc.shared.wire.enrolling.renewal import keep, next_key
from fedplcc.shared.wire.serving.caller import KEY_METADATA
from fedplcc.shared.wire.statuses import translated
from fedplcc.shared.wire.tls import ClientTls
from tests.chaos.scenarios import PATIENCE_S, Operator, Outcome

HOUR_S = 3600.0
LOOK_S = 0.05
CALL_S = 60.0
AWAY = (AggregatorUnavailable, Unavailable, TooManyCalls)
"""Answers of an aggregator that dies, or is asked too often: ask again."""

_T = TypeVar("_T")


def patiently(call: Callable[[], _T], what: str) -> _T:
    """What a call returns, which is made again while the aggregator is away."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except AWAY as error:
            trouble = error.detail
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}; last: {trouble}"
        time.sleep(LOOK_S)


def new_key(state: Path, scope: Scope = Scope.RUN) -> str:
    """A key that the gateway lets through."""
    return patiently(
        lambda: _owner(state, lambda calls: calls.create_key("operator", [scope.value], HOUR_S)[1]), "a key"
    )


def perform(operator: Operator, folder: Path) -> Outcome:
    """Do everything that changes who belongs to the federation."""
    state, sites = folder / "aggregator", folder / "members" / operator.name
    gateway, north, watch = sites / "gateway", sites / "north", sites / "watch"
    _join_by_file(state, gateway)
    for role, name, site in ((Role.CLIENT, "north", north), (Role.MONITOR, "watch", watch)):
        _join(state, role, name, site)
    _renew(state, north)
    _change(north, lambda held: recover(held, next_key(north, held)), "north recovers")
    _rotate(state, finish=False)
    for site in (gateway, north, watch):
        _renew(state, site)
    _rotate(state, finish=True)
    _change_keys(state, gateway)
    patiently(lambda: _owner(state, lambda calls: calls.revoke("client", "north")), "north is revoked")
    return _ending(state)


def _ending(state: Path) -> Outcome:
    """Everything that is the same whatever died: not what the owner asked for twice."""
    holders = patiently(lambda: _owner(state, lambda calls: calls.holders()), "the holders are listed")
    held = Counter(f"{holder.role} {holder.name} {'revoked' if holder.revoked_at else 'holds'}" for holder in holders)
    keys = patiently(lambda: _owner(state, lambda calls: calls.keys()), "the keys are listed")
    labels = sorted({key.label for key in keys if key.kind == "key"})
    return {"certificates": json.dumps(dict(sorted(held.items()))), "keys": ", ".join(labels)}


def _owner(state: Path, ask: Callable[[AdminCalls], _T]) -> _T:
    with admin_calls(state) as calls:
        return ask(calls)


def _join_by_file(state: Path, site: Path) -> None:
    """Join as the gateway beside the aggregator does; the file must then go."""
    file = state / "gateway.join"

    def join_once() -> None:
        try:
            code = InvitationCode.parse(file.read_text())
        except FileNotFoundError:
            raise Unavailable("there is no invitation yet") from None
        try:
            join_federation(code, site, replace=True)
        except InvitationInvalid as error:  # an aggregator that starts again writes another
            raise Unavailable(error.detail) from error

    def is_gone() -> None:
        if file.exists():
            raise Unavailable("the gateway's invitation is there")

    def once_for_good() -> None:
        if not (site / IDENTITY_FILE).exists():
            join_once()

    patiently(once_for_good, "the gateway joins")
    patiently(is_gone, "the gateway's invitation goes")


def _join(state: Path, role: Role, name: str, site: Path) -> None:
    def invited(calls: AdminCalls) -> InvitationCode:
        address = join_address("127.0.0.1", calls.enrol_port or 0)
        return calls.invite(role.value, name, address=address, valid_s=HOUR_S)[0]

    code = patiently(lambda: _owner(state, invited), f"{name} is invited")
    patiently(lambda: join_federation(code, site), f"{name} joins")


def _renew(state: Path, site: Path) -> None:
    def renewed(held: Credentials) -> Credentials:
        endpoint = json.loads((state / "endpoint.json").read_text())
        return renew(held, next_key(site, held), f"127.0.0.1:{endpoint['port']}")

    _change(site, renewed, f"{site.name} renews its certificate")


def _change(site: Path, change: Callable[[Credentials], Credentials], what: str) -> None:
    held = Credentials.load(site / IDENTITY_FILE)

    def once() -> Credentials:
        try:
            return change(held)
        except FileNotFoundError:  # of a start that has not said its ports
            raise Unavailable("no aggregator runs") from None

    keep(patiently(once, what), site)


def _rotate(state: Path, *, finish: bool) -> None:
    """Rotate the roots; a second request, after an answer that was lost, finds it done."""

    def rotated(calls: AdminCalls) -> None:
        with suppress(FailedPrecondition):
            calls.rotate(finish=finish)

    patiently(lambda: _owner(state, rotated), "the roots are rotated")


def _change_keys(state: Path, gateway: Path) -> None:
    """Make keys and a session, look who calls, read the audit, and revoke one key."""
    text = new_key(state, Scope.ADMIN)
    dropped = patiently(
        lambda: _owner(state, lambda calls: calls.create_key("dropped", [Scope.READ.value], HOUR_S)[0]), "a second key"
    )
    keys = patiently(lambda: _owner(state, lambda calls: calls.keys()), "the keys are listed")
    for key_id in {dropped.key_id, *(key.key_id for key in keys if key.label == "dropped")}:

        def revoke(calls: AdminCalls, key_id: str = key_id) -> None:
            with suppress(NotFound):
                calls.revoke_key(key_id)

        patiently(lambda revoke=revoke: _owner(state, revoke), "a key is revoked")  # type: ignore[misc]
    _use_key(state, gateway, text)


def _use_key(state: Path, gateway: Path, text: str) -> None:
    def session() -> None:
        code = _owner(state, lambda calls: calls.console_code())
        with _admin_of(state, gateway) as stub, suppress(KeyInvalid):  # of a code whose session was lost on the way
            stub.RedeemConsoleCode(admin_pb2.RedeemConsoleCodeRequest(code=code), timeout=CALL_S)

    def look() -> None:
        key = ((KEY_METADATA, text),)
        with _admin_of(state, gateway) as stub:
            stub.GetCaller(admin_pb2.GetCallerRequest(), timeout=CALL_S, metadata=key)
            stub.ListAudit(admin_pb2.ListAuditRequest(page_size=100), timeout=CALL_S, metadata=key)

    def tell_time() -> None:
        held = Credentials.load(gateway / IDENTITY_FILE)
        with open_channel(held.enrolment, tls=ClientTls(lambda: held)) as channel, translated(held.enrolment):
            enrol_grpc.EnrolServiceStub(channel).GetTime(enrol_pb2.GetTimeRequest(), timeout=CALL_S)

    patiently(session, "a session begins")
    patiently(tell_time, "the time is told")
    patiently(look, "the audit is read")


@contextmanager
def _admin_of(state: Path, site: Path) -> Iterator[Any]:
    """AdminService as a member calls it."""
    try:
        endpoint = json.loads((state / "endpoint.json").read_text())
    except FileNotFoundError:
        raise Unavailable("no aggregator runs") from None
    held = Credentials.load(site / IDENTITY_FILE)
    address = f"127.0.0.1:{endpoint['port']}"
    with open_channel(address, tls=ClientTls(lambda: held)) as channel, translated(address):
        yield admin_grpc.AdminServiceStub(channel)
