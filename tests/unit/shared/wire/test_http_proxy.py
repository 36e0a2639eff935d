"""Mutual TLS through an HTTP proxy that is asked to CONNECT."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from fedplcc.shared import errors
from fedplcc.shared.gen.fedplcc.v1 import enrol_service_pb2, enrol_service_pb2_grpc
from fedplcc.shared.identity.names import Role
from fedplcc.shared.wire.channels import open_aio_channel
from fedplcc.shared.wire.statuses import translated
from fedplcc.shared.wire.trouble.connection_trouble import cause_of_failure
from tests.support import present
from tests.support.federation.certificates import TestAuthority
from tests.support.federation.processes import free_port
from tests.unit.shared.wire.test_connection_trouble import serving


@contextlib.asynccontextmanager
async def proxy(status: str = "200 Connection established") -> AsyncIterator[tuple[str, list[str]]]:
    """An HTTP proxy that opens tunnels; yields its address and the targets that were asked for."""
    asked: list[str] = []
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError, EOFError):
            await tunnel(reader, writer)

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target = head.split(" ")[1]
        asked.append(target)
        writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
        if not status.startswith("200"):
            writer.close()
            return
        host, _, port = target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writers.append(far_writer)
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()
        for writer in writers:
            writer.close()
        # A connection that outlives its event loop is found by the garbage collector, in whatever test runs then.
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


async def ask_time(address: str, authority: TestAuthority, http_proxy: str) -> float:
    held = authority.issue(Role.CLIENT, "ann")
    async with open_aio_channel(address, tls=held.tls, http_proxy=http_proxy) as channel:
        stub = enrol_service_pb2_grpc.EnrolServiceStub(channel)
        with translated(address):
            return float((await stub.GetTime(enrol_service_pb2.GetTimeRequest(), timeout=20)).time)


async def test_a_call_with_a_certificate_goes_through_the_proxy() -> None:
    authority = TestAuthority()
    async with serving(authority) as address, proxy() as (http_proxy, asked):
        assert await ask_time(address, authority, http_proxy) > 0
        assert asked == [address]


async def test_a_proxy_that_refuses_is_named() -> None:
    authority = TestAuthority()
    held = authority.issue(Role.CLIENT, "ann")
    async with serving(authority) as address, proxy("403 Forbidden") as (http_proxy, _):
        with pytest.raises(errors.AggregatorUnavailable):
            await ask_time(address, authority, http_proxy)
        found = present(await asyncio.to_thread(cause_of_failure, address, held, http_proxy=http_proxy))
        assert found.detail == f"the HTTP proxy {http_proxy} opens no tunnel to {address}: 'HTTP/1.1 403 Forbidden'"


async def test_the_causes_are_found_through_the_proxy_too() -> None:
    authority = TestAuthority()
    held = authority.issue(Role.CLIENT, "ann")
    async with serving(TestAuthority("fabababababababa")) as address, proxy() as (http_proxy, _):
        found = present(await asyncio.to_thread(cause_of_failure, address, held, http_proxy=http_proxy))
        assert found.detail.startswith("TLS is intercepted by")


def test_an_address_of_a_proxy_without_a_port_is_refused() -> None:
    with pytest.raises(errors.InvalidConfig, match="http_proxy"):
        open_aio_channel(
            f"127.0.0.1:{free_port()}", tls=TestAuthority().issue(Role.CLIENT, "ann").tls, http_proxy="here"
        )
