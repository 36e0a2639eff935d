"""Shares of a server's callers: streams by certificate and key, and rates of the calls by which a member stays one."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fedplcc.shared.errors import FedplccError, KeyInvalid, Overloaded, TooManyCalls
from fedplcc.shared.identity.api_keys import EVERY_SCOPE
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.principals import Principal
from fedplcc.shared.identity.standing import Standing
from fedplcc.shared.wire.call_logs import Call
from fedplcc.shared.wire.serving import caller

DOWNLOAD = "/fedplcc.v1.RoundService/DownloadBlob"
WATCH = "/fedplcc.v1.RunService/WatchRun"


class Keys:
    """Every text is a key of its own."""

    def principal_of(self, text: str) -> Principal:
        if not text:
            raise KeyInvalid("no key")
        return Principal(key_id=text, scopes=EVERY_SCOPE)


class OfNames(caller.Callers):
    """Takes the peer's name for a checked certificate: the checks have tests of their own."""

    def __init__(self, role: Role) -> None:
        super().__init__(caller.Certificates(lambda: b"", lambda _serial: Standing.LISTED), Keys(), steady=lambda: 0.0)
        self._role = role

    def _certificate(self, context: Any) -> Any:
        return SimpleNamespace(principal=Principal(role=self._role, name=context.name), ends_at=1.0, roots_pem=b"")


def admitted(callers: caller.Callers, method: str, name: str, key: str = "", *, is_stream: bool = True) -> Any:
    call = Call(method, is_response_stream=is_stream, metadata=((caller.KEY_METADATA, key),) if key else ())
    call.set_peer("ipv4:192.0.2.1:40000")
    return callers.admit(call, SimpleNamespace(name=name, peer=lambda: "ipv4:192.0.2.1:40000"))


def until_refused(admit: Callable[[], Any]) -> tuple[list[Any], FedplccError]:
    found: list[Any] = []
    for _ in range(2000):
        try:
            found.append(admit())
        except FedplccError as error:
            return found, error
    raise AssertionError("it is never refused")


@pytest.mark.parametrize(
    ("role", "method", "key", "other", "most"),
    [
        (Role.CLIENT, DOWNLOAD, "", ("south", ""), caller.MOST_STREAMS[Role.CLIENT]),
        (Role.GATEWAY, WATCH, "k1", ("north", "k2"), caller.MOST_OTHER_STREAMS),
    ],
)
async def test_a_caller_has_its_share_of_streams(
    role: Role, method: str, key: str, other: tuple[str, str], most: int
) -> None:
    callers = OfNames(role)
    opened, error = until_refused(lambda: admitted(callers, method, "north", key))
    assert (len(opened), type(error)) == (most, Overloaded)
    admitted(callers, method, *other)
    callers.closed(opened[0])
    admitted(callers, method, "north", key)
    for each in opened[1:]:
        callers.closed(each)


@pytest.mark.parametrize("method", caller.RATES_OF_THEIR_OWN)
def test_what_keeps_a_member_in_is_counted_by_itself(method: str) -> None:
    contextvars.copy_context().run(_counted_by_itself, method)


def _counted_by_itself(method: str) -> None:
    callers = OfNames(Role.CLIENT)
    answered, error = until_refused(lambda: admitted(callers, method, "north", is_stream=False))
    assert (len(answered), type(error)) == (caller.BURST_S * caller.RATES_OF_THEIR_OWN[method], TooManyCalls)
    admitted(callers, method, "south", is_stream=False)
    for other in caller.RATES_OF_THEIR_OWN.keys() - {method}:
        admitted(callers, other, "north", is_stream=False)
