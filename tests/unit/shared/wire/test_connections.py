"""Connections of a gRPC port, of which a look tells: which ones end, and why; no socket is opened."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fedplcc.shared.errors import TooManyCalls
from fedplcc.shared.identity.api_keys import EVERY_SCOPE
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.principals import ANYONE, NOBODY, Principal
from fedplcc.shared.process.address_shares import MOST_OF_AN_ADDRESS
from fedplcc.shared.process.sockets import Link, Seen
from fedplcc.shared.wire.serving import connections as module
from fedplcc.shared.wire.serving.bars import FIRST_S, REMEMBERED_S
from fedplcc.shared.wire.serving.connections import (
    FIRST_CALL_S,
    IN_VAIN_AT_ONCE,
    LOOK_S,
    MOST_OF_A_GATEWAY,
    MOST_OF_A_MEMBER,
    REFUSED_AT_ONCE,
    Connections,
)
from fedplcc.shared.wire.serving.unread_bytes import AT_ONCE
from tests.support.records.captured_logs import logged

ANN = Principal(role=Role.CLIENT, name="ann", serial="01")
MALLORY = Principal(role=Role.CLIENT, name="mallory", serial="02")
CONSOLE = Principal(role=Role.GATEWAY, name="console", serial="03")
FAR, ELSEWHERE, HERE = "192.0.2.7", "198.51.100.1", "127.0.0.1"
MANY = 200


@dataclass(frozen=True, slots=True)
class FakeLink(Link):
    ended: list[str] = field(default_factory=list)

    def end(self) -> bool:
        self.ended.append(f"{self.host}:{self.port}")
        return True


class Port:
    """A port whose connections are open until they are ended, by a clock of its own."""

    def __init__(self, most: int = 10_000) -> None:
        self.now, self.links, self.num_files = 0.0, dict[tuple[str, int], FakeLink](), 0
        self.ended: list[str] = []
        self.connections = Connections(most=most, steady=lambda: self.now)
        self.connections._looking = object()  # type: ignore[assignment]  # as if it looked
        self._next = 1000

    def connect(self, host: str, count: int = 1) -> list[str]:
        made = []
        for _ in range(count):
            self._next += 1
            self.links[host, self._next] = FakeLink(self._next, self._next, host, self._next, self.ended)
            made.append(f"[{host}]:{self._next}" if ":" in host else f"{host}:{self._next}")
        self.look()
        return made

    def look(self, after_s: float = 0.0) -> None:
        self.now += after_s
        self.connections.look(Seen(dict(self.links), (), self.num_files + len(self.links)))
        self.links = {peer: link for peer, link in self.links.items() if f"{peer[0]}:{peer[1]}" not in self.ended}
        self.connections.look(Seen(dict(self.links), (), self.num_files + len(self.links)))

    def call(self, peer: str, principal: Principal | None = None, **how: bool) -> Any:
        """A call from its beginning to its end; returns why its connection ends, if it does."""
        connection = self.connections.called(peer)
        if connection.is_ended:
            return self.connections.ended(connection)
        try:
            if principal is not None:
                self.connections.admitted(connection, principal)
        except TooManyCalls as error:
            self.connections.ended(connection, is_refused=True)
            return error
        return self.connections.ended(connection, **how)


def most_unread(port: Port, peer: str, read: int = 0) -> int:
    """MiB that come over a connection, a look each, until it ends."""
    (where,) = (each for each in port.links if f"{each[0]}:{each[1]}" == peer)
    for mib in range(2000):
        seen = Seen(dict(port.links), (), 0, {where: mib << 20})
        ended = port.connections._unread.ended(seen, port.connections._open)
        if ended:
            port.connections.look(seen, ended)
            return mib
        port.connections.read(where, read)
    return -1


@pytest.mark.parametrize(("whose", "most"), [(None, 2), (MALLORY, AT_ONCE), (CONSOLE, 16 * AT_ONCE)])
def test_bytes_that_nobody_reads_end_their_connections_and_bar_who_sends_them(
    port: Port, whose: Principal | None, most: int
) -> None:
    peer, again = port.connect(FAR, 2)
    if whose is not None:
        port.call(peer, whose)
        port.call(again, whose)
    assert most <= most_unread(port, peer) <= most + 16
    assert set(port.ended) == {peer, again}
    assert port.connections._barred_addresses.current() == (FAR,)


def test_of_this_machine_itself_no_bytes_are_counted(port: Port) -> None:
    (peer,) = port.connect(HERE)
    assert most_unread(port, peer) == -1


def test_bytes_that_a_call_reads_are_free_also_of_a_connection_that_comes_where_another_was(port: Port) -> None:
    (peer,) = port.connect(FAR)
    port.call(peer, ANN)
    assert most_unread(port, peer, read=1 << 20) == -1
    (where,) = port.links
    port.links[where] = replace(port.links[where], inode=7)
    port.connections.read(where, 100 << 20)
    port.look()
    assert port.connections._open[where].read_bytes > 100 << 20


@pytest.fixture
def port() -> Port:
    return Port()


def test_a_connection_ends_that_makes_no_call_in_time(port: Port) -> None:
    silent, member, slow = port.connect(FAR, 3)
    port.call(member, ANN)
    port.connections.called(slow)
    port.look(FIRST_CALL_S / 2)
    assert port.ended == []
    port.look(FIRST_CALL_S / 2)
    assert port.ended == [silent], "a call that is open, and a certificate that was shown, keep a connection"
    port.look(100 * FIRST_CALL_S)
    assert port.ended == [silent]


def test_a_stranger_keeps_its_connection_by_calls_that_are_answered_alone(port: Port) -> None:
    joins, refused = port.connect(FAR, 2)
    for _ in range(3):
        port.call(joins, NOBODY)
        port.call(refused, NOBODY, is_refused=True)
        port.look(FIRST_CALL_S * 0.6)
    assert port.ended == [refused]
    port.look(FIRST_CALL_S)
    assert port.ended == [refused, joins]


def test_who_may_call_anything_keeps_its_connection(port: Port) -> None:
    (peer,) = port.connect(FAR)
    port.call(peer, ANYONE)
    port.look(10 * FIRST_CALL_S)
    assert port.ended == []


def test_a_certificate_that_holds_no_more_is_none(port: Port) -> None:
    (peer,) = port.connect(FAR)
    port.call(peer, ANN)
    port.connections.refused(port.connections.called(peer))
    port.connections.ended(port.connections._open[FAR, 1001], is_refused=True)
    port.look(FIRST_CALL_S)
    assert port.ended == [peer]


@pytest.mark.parametrize("hosts", [(FAR,), ("2001:db8::1", "2001:db8::2")])
def test_of_an_address_with_too_many_the_oldest_strangers_end(port: Port, hosts: tuple[str, ...]) -> None:
    (member,), (other,) = port.connect(hosts[0]), port.connect(ELSEWHERE)
    port.call(member, ANN)
    for host in hosts:
        port.look(0.1)
        port.connect(host, MOST_OF_AN_ADDRESS // len(hosts))
    assert port.ended == []
    port.connect(hosts[0], 50)
    assert len(port.ended) == 50
    assert member not in port.ended
    assert other not in port.ended
    assert port.ended[0] == f"{hosts[0]}:1003", "the oldest without a certificate"


def test_this_machine_has_no_bound_of_an_address(port: Port) -> None:
    port.connect(HERE, 5 * MOST_OF_AN_ADDRESS)
    assert port.ended == []


def test_many_sites_behind_one_address_keep_a_connection_each(port: Port) -> None:
    for number in range(3 * MOST_OF_AN_ADDRESS):
        (peer,) = port.connect(FAR)
        port.call(peer, Principal(role=Role.CLIENT, name=f"site-{number}", serial=str(number)))
    assert port.ended == []


@pytest.mark.parametrize(("whose", "most"), [(MALLORY, MOST_OF_A_MEMBER), (CONSOLE, MOST_OF_A_GATEWAY)])
def test_of_a_certificate_with_too_many_the_one_that_was_not_used_longest_ends(
    port: Port, whose: Principal, most: int
) -> None:
    made = port.connect(HERE, most + 1)
    for peer in (*made[:-1], made[0], made[-1]):
        port.now += 0.1
        port.call(peer, whose)
    port.look()
    assert port.ended == [made[1]]


def test_a_quarter_of_all_connections_is_kept_for_members() -> None:
    port = Port(most=40)
    (member,) = port.connect(ELSEWHERE)
    port.call(member, ANN)
    here = port.connect(HERE)
    for number in range(60):
        port.connect(f"192.0.2.{number}")
    assert len(port.links) == 30
    assert not {member, here[0]} & set(port.ended), "others give way first"
    port.connect(HERE, 60)
    assert len(port.links) == 30
    assert member not in port.ended


def test_files_are_kept_for_members(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "most_files", lambda: 100)
    port.num_files = 50
    for number in range(30):
        port.connect(f"192.0.2.{number}")
    assert len(port.ended) == 5
    assert len(port.links) == 25


def in_vain(port: Port, peer: str, principal: Principal | None, count: int, **how: bool) -> list[Any]:
    errors = (port.call(peer, principal, **how) for _ in range(count))
    return [error for error in errors if error is not None]


@pytest.mark.parametrize("how", [{"is_unread": True}, {"is_refused": True}])
def test_a_stranger_that_calls_in_vain_loses_all_connections_of_its_address(port: Port, how: dict[str, bool]) -> None:
    *its, other = *port.connect(FAR, 3), *port.connect(ELSEWHERE)
    assert in_vain(port, its[0], None, int(IN_VAIN_AT_ONCE), **how) == []
    (error,) = in_vain(port, its[1], None, 5, **how)
    assert error.reason == "TOO_MANY_CALLS"
    assert set(port.ended) == set(its)
    assert other not in port.ended
    assert port.connections._barred_addresses.current() == (FAR,)


def test_calls_that_come_slowly_are_forgiven(port: Port) -> None:
    (peer,) = port.connect(FAR)
    for _ in range(10 * int(IN_VAIN_AT_ONCE)):
        port.now += 1.0
        assert port.call(peer, ANN, is_unread=True) is None


def test_a_member_that_resets_calls_loses_its_connections_and_cannot_return_at_once(port: Port) -> None:
    its, (other,) = port.connect(FAR, 2), port.connect(FAR)
    port.call(other, ANN)
    port.call(its[1], MALLORY)
    assert len(in_vain(port, its[0], MALLORY, MANY, is_unread=True)) == 1
    port.look()
    assert set(port.ended) == set(its)
    assert port.connections._barred_addresses.current() == (), "another member is connected by this address"
    (again,) = port.connect(ELSEWHERE)
    assert "may connect again" in str(port.call(again, MALLORY))
    port.look()
    assert again in port.ended
    assert port.call(other, ANN) is None
    port.now += FIRST_S
    (later,) = port.connect(ELSEWHERE)
    assert port.call(later, MALLORY) is None


def test_a_bar_is_longer_each_time_and_forgotten_after_an_hour(port: Port) -> None:
    bars = port.connections._barred_certificates
    assert [bars.begin("client:mallory") for _ in range(3)] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    port.now += 4 * FIRST_S + REMEMBERED_S
    assert bars.wait_s("client:mallory") == 0
    assert bars.begin("client:mallory") == FIRST_S


def test_a_gateway_is_itself_whosever_keys_it_passes_on(port: Port) -> None:
    made = port.connect(FAR, MOST_OF_A_GATEWAY + 1)
    for number, peer in enumerate(made):
        port.call(peer, replace(CONSOLE, name=f"console-{number % 2}", key_id="k1", scopes=EVERY_SCOPE))
    port.look()
    assert port.ended == []
    assert {each.holder for each in port.connections._open.values()} == {"gateway:console-0", "gateway:console-1"}


def test_calls_that_are_refused_for_a_gateways_callers_are_not_held_against_it(port: Port) -> None:
    (peer,) = port.connect(FAR)
    assert in_vain(port, peer, CONSOLE, 10_000, is_refused=True) == []
    assert in_vain(port, peer, CONSOLE, MANY, is_unread=True) == []


def test_a_member_that_calls_too_often_is_refused_before_it_is_cut_off(port: Port) -> None:
    (peer,) = port.connect(FAR)
    assert in_vain(port, peer, MALLORY, int(REFUSED_AT_ONCE), is_refused=True) == []
    assert in_vain(port, peer, MALLORY, 5, is_refused=True) != []


def test_where_no_certificate_is_asked_for_refusals_are_free_and_a_reset_is_its_connections_own(port: Port) -> None:
    its, other = port.connect(FAR, 2)
    assert in_vain(port, other, ANYONE, MANY, is_refused=True) == []
    assert len(in_vain(port, its, ANYONE, MANY, is_unread=True)) == 1
    port.look()
    assert set(port.ended) == {its}
    assert port.connections._barred_addresses.current() == ()


def test_what_came_before_the_first_look_ends_with_it(port: Port) -> None:
    peer = f"{FAR}:1001"
    assert in_vain(port, peer, None, MANY, is_unread=True) != []
    assert port.ended == []
    assert port.connections.called(peer).is_ended
    port.connect(FAR)
    assert port.ended == [peer]


def test_a_port_that_is_given_again_is_another_connection(port: Port) -> None:
    (peer,) = port.connect(FAR)
    port.call(peer, ANN)
    port.links[FAR, 1001] = FakeLink(5, 99, FAR, 1001, port.ended)
    port.look()
    assert port.connections._open[FAR, 1001].principal is None


def test_nothing_is_kept_of_connections_that_are_gone(port: Port) -> None:
    for peer in port.connect(FAR, 10):
        port.call(peer, ANN)
    port.call(f"{FAR}:7", ANN)
    port.links.clear()
    port.look(3 * LOOK_S)
    assert not port.connections._open


def test_ends_are_a_line_a_minute_for_each_address(port: Port) -> None:
    with logged("info") as lines:
        for _ in range(20):
            port.connect(FAR, 2 * MOST_OF_AN_ADDRESS)
        (line,) = lines("connections_ended")
    assert (line["peer"], line["caller"]) == (FAR, "nobody")
    assert line["reason"] == "too many connections of an address"


def test_where_sockets_cannot_be_seen_nothing_ends_and_nothing_is_kept() -> None:
    connections = Connections()
    for number in range(MANY):
        called = connections.called(f"{FAR}:{number}")
        connections.admitted(called, MALLORY)
        assert connections.ended(called, is_unread=True) is None
    assert not connections._open
