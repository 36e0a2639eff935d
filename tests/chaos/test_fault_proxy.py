"""The link with faults does to bytes what it says, and counts what passed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.chaos.fault_proxy import FaultProxy
from tests.support.federation.processes import eventually

WAIT_S = 60.0


class Echo:
    """A server that sends back what it is sent, and keeps the bytes of each connection."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.received: list[bytearray] = []
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                end, _peer = self._listening.accept()
            except OSError:
                return
            self._ends.append(end)
            self.received.append(bytearray())
            threading.Thread(target=self._echo, args=(end, self.received[-1]), daemon=True).start()

    @staticmethod
    def _echo(end: socket.socket, received: bytearray) -> None:
        try:
            while data := end.recv(1 << 16):
                received += data
                end.sendall(data)
        except OSError:
            pass

    def close(self) -> None:
        self._listening.close()
        for end in self._ends:
            end.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def link(echo: Echo) -> Iterator[FaultProxy]:
    with FaultProxy(echo.address) as link:
        yield link


def dialled(link: FaultProxy) -> socket.socket:
    host, port = link.address.split(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


def exchanged(end: socket.socket, data: bytes) -> bytes:
    """What comes back of bytes that are sent, until all are there or the connection ends."""
    threading.Thread(target=lambda: end.sendall(data), daemon=True).start()
    back = bytearray()
    while len(back) < len(data) and (piece := end.recv(1 << 16)):
        back += piece
    return bytes(back)


def is_ended(end: socket.socket) -> bool:
    try:
        return end.recv(1) == b""
    except ConnectionError:
        return True


def test_delay_is_one_way_and_holds_no_rate_down(link: FaultProxy) -> None:
    link.up.delay_s, link.down.delay_s = 0.2, 0.1
    data = bytes(200_000)
    begin = time.monotonic()
    with dialled(link) as end:
        assert exchanged(end, data) == data
    seconds = time.monotonic() - begin
    assert seconds > 0.6, "a handshake and an exchange are two round trips"
    assert seconds < 5, "its 49 pieces are under way beside each other"


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_cut_lets_exactly_its_bytes_pass_and_ends_every_connection(link: FaultProxy, echo: Echo, way: str) -> None:
    with dialled(link) as bystander, dialled(link) as end:
        assert exchanged(bystander, b"here") == b"here"
        before = getattr(link, way).num_bytes
        getattr(link, way).cut_after(1000)
        exchanged(end, bytes(5000))
        assert is_ended(bystander)
        assert getattr(link, way).num_bytes == before + 1000
        assert link.num_cut == 1
    with dialled(link) as end:
        assert exchanged(end, b"again") == b"again"


def test_a_link_may_be_cut_again_and_again_or_now(link: FaultProxy) -> None:
    link.up.cut_every(100)
    for number in range(1, 4):
        with dialled(link) as end:
            end.sendall(bytes(300))
            while end.recv(1000):
                pass
        assert link.num_cut == number
    assert link.up.num_bytes == 300
    link.up.mend()
    with dialled(link) as end:
        assert exchanged(end, bytes(300)) == bytes(300)
        link.cut()
        assert is_ended(end)


@pytest.mark.parametrize("way", ["up", "down"])
def test_what_is_swallowed_is_gone_and_nobody_is_told(link: FaultProxy, echo: Echo, way: str) -> None:
    with dialled(link) as end:
        assert exchanged(end, b"before") == b"before"
        getattr(link, way).is_swallowing = True
        end.sendall(b"lost")
        if way == "down":
            eventually(lambda: bytes(echo.received[0]) == b"beforelost", "the request arrives", WAIT_S)
        end.settimeout(0.3)
        with pytest.raises(TimeoutError):
            end.recv(1)
        assert bytes(echo.received[0]) == (b"before" if way == "up" else b"beforelost")
        getattr(link, way).mend()
        end.sendall(b"still lost")
        with pytest.raises(TimeoutError):
            end.recv(1)
        with dialled(link) as other:
            assert exchanged(other, b"new") == b"new"


def test_a_doubled_connection_reaches_the_target_twice_and_is_answered_once(link: FaultProxy, echo: Echo) -> None:
    link.is_doubling = True
    with dialled(link) as end:
        assert exchanged(end, b"once") == b"once"
        eventually(
            lambda: [bytes(received) for received in echo.received] == [b"once", b"once"], "it came twice", WAIT_S
        )
    assert link.up.num_bytes == 4


def test_idle_connections_are_closed_and_others_are_not(echo: Echo) -> None:
    with FaultProxy(echo.address, idle_s=2.0) as link, dialled(link) as idle, dialled(link) as busy:
        end = time.monotonic() + 60.0
        while not link.num_cut and time.monotonic() < end:
            assert exchanged(busy, b"x") == b"x"
        assert is_ended(idle)
        assert link.num_cut == 1
