"""A proxy as it stands between hosts: it cuts idle calls and holds answers back, or shares connections out among gateways.
For faults of connections see chaos/fault_proxy.py.

Each runs in a thread of its own on a free port of loopback, and is ended by leaving its block.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Self

import grpc
import grpc.aio

from fedplcc.shared.wire.channels import CHANNEL_OPTIONS, SERVER_OPTIONS

START_S = 20.0


class Proxy:
    """What both have: a thread with an event loop, an address, and a count of what was cut."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.address = ""
        self.num_cut = 0
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name=type(self).__name__)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(START_S)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(START_S)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        await self._serve()

    async def _serve(self) -> None:
        raise NotImplementedError

    async def _up(self, port: int) -> None:
        """Say where it listens, and wait for the end of the block."""
        self.address = f"127.0.0.1:{port}"
        self._is_up.set()
        await self._closing.wait()


class CallProxy(Proxy, grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Passes gRPC calls on, and cuts every call that answers nothing for `idle_s` seconds; others go on beside it.

    With `is_buffering` it holds a call's answers back until the call ends.
    """

    def __init__(self, target: str, *, idle_s: float, is_buffering: bool = False) -> None:
        super().__init__(target)
        self._idle_s, self._is_buffering = idle_s, is_buffering

    def service(self, handler_call_details: Any) -> Any:
        """Every method, as bytes in both directions."""

        async def forward(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            call: Any = self._channel.stream_stream(handler_call_details.method, None, None)(requests)
            held: list[bytes] = []
            try:
                while True:
                    async with asyncio.timeout(self._idle_s):
                        answer = await call.read()
                    if answer is grpc.aio.EOF:  # type: ignore[attr-defined]  # the stubs are older
                        break
                    if self._is_buffering:
                        held.append(answer)
                    else:
                        yield answer
                for answer in held:
                    yield answer
                if await call.code() is not grpc.StatusCode.OK:
                    await context.abort(await call.code(), await call.details(), await call.trailing_metadata())
            except TimeoutError:
                self.num_cut += 1
                await context.abort(grpc.StatusCode.UNAVAILABLE, "stream timeout")
            finally:
                call.cancel()

        return grpc.stream_stream_rpc_method_handler(forward)

    async def _serve(self) -> None:
        server = grpc.aio.server(handlers=[self], options=SERVER_OPTIONS)
        port = server.add_insecure_port("127.0.0.1:0")
        async with grpc.aio.insecure_channel(self.target, options=CHANNEL_OPTIONS) as self._channel:
            await server.start()
            await self._up(port)
            await server.stop(0)


class RoundRobin(Proxy):
    """Passes each new connection on to the next of its targets that takes it."""

    def __init__(self, targets: Sequence[str]) -> None:
        super().__init__(targets[0])
        self._next = itertools.cycle(targets)
        self._num_targets = len(targets)
        self.passed: Counter[str] = Counter()
        """Connections by target."""
        self.last = ""
        """Target of the last connection."""

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        await self._up(server.sockets[0].getsockname()[1])
        server.close()

    async def _pass_on(self, reads: asyncio.StreamReader, writes: asyncio.StreamWriter) -> None:
        for target in itertools.islice(self._next, self._num_targets):
            host, _, port = target.rpartition(":")
            with suppress(OSError):
                there_reads, there_writes = await asyncio.open_connection(host, int(port))
                self.passed[target] += 1
                self.last = target
                await asyncio.gather(_copy(reads, there_writes), _copy(there_reads, writes))
                return
        writes.close()


async def _copy(reads: asyncio.StreamReader, writes: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while data := await reads.read(1 << 16):
                writes.write(data)
                await writes.drain()
    finally:
        writes.close()
