"""This process's own connections, seen and ended from outside of what holds them; and addresses that the kernel drops."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from fedplcc.shared.process import sockets
from fedplcc.shared.process.address_shares import AddressShares
from fedplcc.shared.process.barred_addresses import bar
from fedplcc.shared.process.sockets import Link, OwnSockets

OTHER = "127.0.0.2"
WAIT_S = 60.0


@contextmanager
def accepted(count: int, host: str = "127.0.0.1") -> Iterator[tuple[int, list[socket.socket], list[socket.socket]]]:
    """A port, and both ends of so many connections of it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as held:
        listening = held.enter_context(socket.create_server((host, 0), family=family))
        callers, ours = [], []
        for _ in range(count):
            callers.append(held.enter_context(socket.create_connection(listening.getsockname()[:2], timeout=WAIT_S)))
            ours.append(held.enter_context(listening.accept()[0]))
        yield listening.getsockname()[1], callers, ours


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_connections_of_a_port_are_seen_and_those_of_another_are_not(host: str) -> None:
    with accepted(3, host) as (port, callers, ours), accepted(2, host):
        looking = OwnSockets(port)
        for _ in range(2):  # the second time from what is known
            seen = looking.look()
            assert {(each.host, each.port) for each in seen.links.values()} == {
                each.getsockname()[:2] for each in callers
            }
            assert len(seen.listening) == 1
            assert seen.num_files > 10
        ours[0].close()
        assert len(looking.look().links) == 2


def test_an_ipv4_caller_of_an_ipv6_socket_is_seen_by_its_ipv4_address() -> None:
    listening = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    with (
        listening,
        socket.create_connection(("127.0.0.1", listening.getsockname()[1])) as caller,
        listening.accept()[0],
    ):
        assert list(OwnSockets(listening.getsockname()[1]).look().links) == [caller.getsockname()]


def test_a_connection_ends_for_both_sides_and_a_file_that_was_given_again_does_not() -> None:
    with accepted(2) as (port, callers, ours):
        links = OwnSockets(port).look().links
        ended, other = (links[each.getsockname()] for each in callers)
        assert ended.end()
        assert callers[0].recv(1) == b""
        assert ours[0].recv(1) == b""
        stale = Link(other.file, other.inode + 1, other.host, other.port)
        assert not stale.end()
        callers[1].sendall(b"x")
        assert ours[1].recv(1) == b"x"
        ours[0].close()
        assert not ended.end()


def test_a_socket_that_was_seen_is_asked_for_what_has_come_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with accepted(5) as (port, callers, ours):
        looking = OwnSockets(port)
        before = looking.look()
        assert set(before.received.values()) == {0}
        callers[0].sendall(b"x" * 1000)
        assert ours[0].recv(2000)
        monkeypatch.setattr(OwnSockets, "_examined", None)
        after = looking.look()
    assert (after.links, after.listening) == (before.links, before.listening)
    if sys.platform == "linux":
        assert sum(after.received.values()) == 1000


def test_a_system_that_shows_no_files_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_FOLDERS", ())
    with pytest.raises(OSError, match="open files"):
        OwnSockets(1).look()


def reaches(listening: socket.socket, source: str, timeout_s: float) -> bool:
    with suppress(TimeoutError):
        where = listening.getsockname()
        socket.create_connection(where, timeout=timeout_s, source_address=(source, 0)).close()
        return True
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="a filter of Linux")
def test_the_kernel_drops_new_connections_of_a_barred_address_and_lets_them_in_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        held = socket.create_connection(listening.getsockname(), source_address=(OTHER, 0))
        ours, _ = listening.accept()
        with held, ours:
            assert bar(listening, ["2001:db8:1:2::/64", *(f"192.0.2.{number}" for number in range(250)), OTHER])
            assert not reaches(listening, OTHER, 0.3)
            assert reaches(listening, "127.0.0.1", WAIT_S)
            assert reaches(listening, "127.0.0.3", WAIT_S)
            held.sendall(b"x")
            assert ours.recv(1) == b"x", "an open connection goes on"
            assert bar(listening, [])
            assert bar(listening, [])
            assert reaches(listening, OTHER, WAIT_S)


@pytest.mark.skipif(sys.platform != "linux", reason="a filter of Linux")
def test_the_kernel_drops_networks_of_ipv6() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
        port = listening.getsockname()[1]
        assert bar(listening, [OTHER, "2001:db8::/64", "::/64"])
        with pytest.raises(TimeoutError):
            socket.create_connection(("::1", port), timeout=0.3)
        socket.create_connection(("127.0.0.1", port), timeout=WAIT_S).close()
        with pytest.raises(TimeoutError):
            socket.create_connection(("127.0.0.1", port), timeout=0.3, source_address=(OTHER, 0))


def test_shares_of_addresses_and_a_reserve_for_this_machine() -> None:
    shares = AddressShares(8, of_an_address=3)
    assert [shares.take("192.0.2.1") for _ in range(4)] == [None] * 3 + ["too many connections of an address"]
    assert [shares.take(f"2001:db8::{number}") for number in range(4)][2:] == [None, "too many connections"]
    assert [shares.take("127.0.0.1") for _ in range(3)] == [None, None, "too many connections"]
    shares.give_back("192.0.2.1")
    assert shares.take("203.0.113.1", is_kept_for=True) is None
    shares.give_back("2001:db8::1")
    shares.give_back("2001:db8::2")
    shares.give_back("2001:db8::2")
    assert shares.num_open == 5
    assert shares.take("2001:db8::9") is None
