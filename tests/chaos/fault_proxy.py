"""A link with faults: a TCP proxy that delays, limits, cuts, swallows and doubles what passes, and counts it.

    with FaultProxy(aggregator.address) as link:
        link.up.bytes_per_s, link.down.bytes_per_s = 50_000, 50_000
        link.up.delay_s = link.down.delay_s = 1.0         # one way: a round trip takes two seconds
        client = AggregatorConnection(link.address, ...)
        link.up.cut_after(100_000)                        # and every connection ends
        link.forget()                                     # or: nobody is told that they are dead

`up` is from the side that dials to the target, `down` the way back. Faults may be set from any thread and at any time, and
hold for all connections together, as those of a cable do: connections share one rate, and a cut ends all of them.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tests.support.hosts.proxies import START_S, Proxy

PIECE_BYTES = 4096
"""Most bytes that pass at once: connections take turns on a slow link by so much."""
BUFFER_BYTES = 1 << 14
"""What waits in front of the link by connection and direction, here and again in the kernel: a small router's queue."""
HOLD_S = 0.15
"""How long a cut link is silent before its connections end, as when a cable is pulled: what had passed is dealt with."""


class Direction:
    """Faults of bytes on their way in one direction, and the number that have passed."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        """How long each byte is under way."""
        self.bytes_per_s = float("inf")
        """How many bytes pass in a second."""
        self.is_swallowing = False
        """Whether bytes vanish on the way, and nobody is told; a connection that lost some passes none in this direction any
        more."""
        self.num_bytes = 0
        """Bytes that have passed."""
        self._cut_at: float = float("inf")
        self._cut_every: float = float("inf")
        self._free_at = 0.0

    def cut_after(self, num_bytes: int) -> None:
        """Cut the link once, when so many more bytes have passed."""
        self._cut_at, self._cut_every = self.num_bytes + num_bytes, float("inf")

    def cut_every(self, num_bytes: int) -> None:
        """Cut the link again and again, each time when so many more bytes have passed."""
        self._cut_at, self._cut_every = self.num_bytes + num_bytes, num_bytes

    def mend(self) -> None:
        """Have it cut, and swallow, no more; what it swallowed stays lost."""
        self._cut_at = self._cut_every = float("inf")
        self.is_swallowing = False

    def take(self, num_bytes: int) -> tuple[int, bool]:
        """Count bytes that are to pass; returns how many do, and whether the link is cut behind them."""
        passing = int(min(num_bytes, self._cut_at - self.num_bytes))
        self.num_bytes += passing
        is_cut = self.num_bytes >= self._cut_at
        if is_cut:
            self._cut_at = self.num_bytes + self._cut_every
        return passing, is_cut

    def sent_at(self, num_bytes: int, now: float) -> float:
        """When bytes that come now have gone onto the link, behind those that came before them."""
        self._free_at = max(self._free_at, now) + num_bytes / self.bytes_per_s
        return self._free_at


class _Connection:
    """One connection of the dialling side, and what becomes of it."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Future[None]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.dead: set[Direction] = set()
        """Directions in which it passes nothing any more, and nobody is told."""
        self.moved = asyncio.Event()

    def add(self, writer: asyncio.StreamWriter) -> asyncio.StreamWriter:
        """Take one end of it; what it is given to write is never held back here."""
        writer.transport.set_write_buffer_limits(0)
        self.writers.append(writer)
        return writer

    def end(self) -> None:
        """Close every end of it, at once."""
        for task in self.tasks:
            task.cancel()
        for writer in self.writers:
            writer.transport.abort()


class FaultProxy(Proxy):
    """The link; see the module. Set faults from any thread."""

    def __init__(self, target: str, *, idle_s: float | None = None, hold_s: float = HOLD_S) -> None:
        """Prepare a link.

        Args:
            target: HOST:PORT of the other side.
            idle_s: Every connection over which nothing has gone for so long is closed, as common proxies do.
            hold_s: How long the link is silent between a cut and the end of its connections; 0 ends them at once.
        """
        super().__init__(target)
        self.up, self.down = Direction(), Direction()
        self.num_connections = 0
        self.is_doubling = False
        """Whether the bytes of every new connection reach the target a second time, over a connection of their own."""
        self._idle_s, self._hold_s = idle_s, hold_s
        self._connections: set[_Connection] = set()
        self._is_cut = False

    @property
    def num_bytes(self) -> int:
        """Bytes that have passed in both directions."""
        return self.up.num_bytes + self.down.num_bytes

    def cut(self) -> None:
        """Cut the link now; new connections pass."""
        self._from_outside(self._cut)

    def forget(self) -> None:
        """Have every present connection pass nothing more without telling anybody; new ones pass."""
        self._from_outside(self._forget)

    def _from_outside(self, step: Callable[[], None]) -> None:
        """Do something in the proxy's own thread, and wait until it is done."""
        done = threading.Event()

        def run() -> None:
            step()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(START_S)

    def _forget(self) -> None:
        for connection in self._connections:
            connection.dead = {self.up, self.down}

    def _cut(self) -> None:
        if not self._is_cut:
            self._is_cut = True
            self.num_cut += 1
            self._loop.call_later(self._hold_s, self._end_connections)

    def _end_connections(self) -> None:
        for connection in [connection for connection in self._connections if not self._is_forgotten(connection)]:
            connection.end()
        self._is_cut = False

    def _is_forgotten(self, connection: _Connection) -> bool:
        return len(connection.dead) == 2

    async def _serve(self) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        server = await asyncio.start_server(self._accept, sock=listening, limit=BUFFER_BYTES)
        await self._up(listening.getsockname()[1])
        server.close()
        for connection in list(self._connections):
            connection.end()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.target.split(":")
        dialling = socket.socket()
        dialling.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        dialling.setblocking(False)
        try:
            await self._loop.sock_connect(dialling, (host, int(port)))
        except OSError:
            dialling.close()
            raise
        return await asyncio.open_connection(sock=dialling, limit=BUFFER_BYTES)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        connection = _Connection()
        connection.add(writer)
        self._connections.add(connection)
        try:
            await asyncio.sleep(self.up.delay_s + self.down.delay_s)  # the handshake's round trip
            try:
                there_reader, there_writer = await self._dial()
                copies = [connection.add(there_writer)]
                if self.is_doubling:
                    twin_reader, twin_writer = await self._dial()
                    copies.append(connection.add(twin_writer))
                    connection.tasks.append(asyncio.ensure_future(_discard(twin_reader)))
            except OSError:
                return
            pumps = [
                asyncio.ensure_future(self._pump(connection, self.up, reader, copies)),
                asyncio.ensure_future(self._pump(connection, self.down, there_reader, [writer])),
            ]
            connection.tasks += pumps
            await self._until_over(connection, pumps)
        except asyncio.CancelledError:
            pass  # the end of the block; a server's callback takes a task that ends so for one that failed
        finally:
            connection.end()
            self._connections.discard(connection)

    async def _until_over(self, connection: _Connection, pumps: Sequence[asyncio.Future[None]]) -> None:
        while not any(pump.done() for pump in pumps) or self._is_forgotten(connection):
            connection.moved.clear()
            moved = asyncio.ensure_future(connection.moved.wait())
            waited: list[asyncio.Future[Any]] = [moved] if self._is_forgotten(connection) else [moved, *pumps]
            await asyncio.wait(waited, timeout=self._idle_s, return_when=asyncio.FIRST_COMPLETED)
            moved.cancel()
            if self._idle_s is not None and not connection.moved.is_set() and not any(pump.done() for pump in pumps):
                self.num_cut += 1
                return

    async def _pump(
        self,
        connection: _Connection,
        direction: Direction,
        source: asyncio.StreamReader,
        sinks: list[asyncio.StreamWriter],
    ) -> None:
        """Move bytes until one side ends; then let the last of them arrive."""
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        arriving = asyncio.ensure_future(_arrive(on_the_way, sinks))
        connection.tasks.append(arriving)
        with suppress(ConnectionError):
            while data := await source.read(PIECE_BYTES):
                while self._is_cut:  # until the connection is ended
                    await asyncio.sleep(self._hold_s or 0.01)
                if direction.is_swallowing:
                    connection.dead.add(direction)
                if direction in connection.dead:
                    continue
                connection.moved.set()
                passing, is_cut = direction.take(len(data))
                sent_at = direction.sent_at(passing, self._loop.time())
                await asyncio.sleep(sent_at - self._loop.time())
                on_the_way.put_nowait((sent_at + direction.delay_s, data[:passing]))
                if is_cut:
                    await on_the_way.join()
                    self._cut()
        await on_the_way.join()
        arriving.cancel()


async def _arrive(on_the_way: asyncio.Queue[tuple[float, bytes]], sinks: list[asyncio.StreamWriter]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        arrives_at, data = await on_the_way.get()
        try:
            await asyncio.sleep(arrives_at - loop.time())
            for number, sink in enumerate(sinks):
                with suppress(ConnectionError):
                    sink.write(data)
                    if number == 0:  # the second copy never holds the first one up
                        await sink.drain()
        finally:
            on_the_way.task_done()


async def _discard(source: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while await source.read(1 << 16):
            pass
