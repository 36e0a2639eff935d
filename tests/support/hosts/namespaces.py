"""Hosts that exist only for a test: a network namespace each, plugged into switches that are bridges in one more.

Addresses are of the ranges that RFC 5737 keeps for documentation, and are seen in these namespaces alone. Nothing routes
between two switches: who sits behind another one is reached, and reaches out, only through a relay that the test opens.
Whatever ends the test ends the network; what a killed process of tests left is removed by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

PREFIX = "fedplcc-test"
PREFIX_LENGTH = 24
"""Size of a switch's network, in the CIDR notation."""
COMMAND_S = 20.0


class Network:
    """Switches and hosts; used in a `with` block."""

    def __init__(self) -> None:
        self._name = f"{PREFIX}-{os.getpid()}-{secrets.token_hex(2)}"
        self._middle = f"{self._name}-middle"
        self._namespaces: list[str] = []
        self._relays: list[Relay] = []
        self._num_ports = 0

    def __enter__(self) -> Self:
        _remove_what_dead_tests_left()
        try:
            self._add_namespace(self._middle)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        with contextlib.ExitStack() as ending:  # what one step cannot undo keeps no other from being undone
            for namespace in self._namespaces:
                ending.callback(_ip, "netns", "delete", namespace)
            for relay in self._relays:
                ending.callback(relay.close)

    def add_switch(self, name: str, address: str) -> None:
        """A switch, with an address of its own at which relays listen."""
        _ip("-n", self._middle, "link", "add", name, "type", "bridge")
        _ip("-n", self._middle, "address", "add", f"{address}/{PREFIX_LENGTH}", "dev", name)
        _ip("-n", self._middle, "link", "set", name, "up")

    def add_host(self, name: str, address: str, switch: str) -> Host:
        """A host at a port of a switch."""
        namespace, port = f"{self._name}-{name}", f"port{self._num_ports}"
        self._num_ports += 1
        self._add_namespace(namespace)
        _ip("-n", self._middle, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("-n", self._middle, "link", "set", port, "master", switch)
        _ip("-n", self._middle, "link", "set", port, "up")
        _ip("-n", namespace, "address", "add", f"{address}/{PREFIX_LENGTH}", "dev", "eth0")
        _ip("-n", namespace, "link", "set", "eth0", "up")
        return Host(name, namespace, address, self._middle, port)

    def add_relay(self, listen: tuple[str, int], to: tuple[str, int]) -> Relay:
        """Pass connections to one address on to another, as a router with address translation or a proxy does."""
        relay = Relay(self._middle, listen, to)
        self._relays.append(relay)
        return relay

    def _add_namespace(self, name: str) -> None:
        _ip("netns", "add", name)
        self._namespaces.append(name)
        _ip("-n", name, "link", "set", "lo", "up")


@dataclass(frozen=True, slots=True)
class Host:
    """A machine, as far as the network is concerned."""

    name: str
    namespace: str
    address: str
    _middle: str
    _port: str

    @property
    def command_prefix(self) -> list[str]:
        """What makes a command run on this host; the process keeps its id."""
        return ["ip", "netns", "exec", self.namespace]

    def unplug(self) -> None:
        """Take the cable out."""
        _ip("-n", self._middle, "link", "set", self._port, "down")

    def plug(self) -> None:
        """Put the cable in again."""
        _ip("-n", self._middle, "link", "set", self._port, "up")

    def run(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout_s: float = 120.0, given: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on this host to its end; it reads what is given."""
        return subprocess.run(
            [*self.command_prefix, *command],
            cwd=cwd,
            env=env,
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def fetch(self, url: str, body: object = None, headers: Mapping[str, str] | None = None) -> bytes:
        """What this host is answered at a URL; a body is posted as JSON."""
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(url, data=data, headers=sent)
        with entered(self.namespace), urllib.request.urlopen(request, timeout=20) as answer:
            content: bytes = answer.read()
        return content

    def can_connect(self, address: str, port: int, timeout_s: float = 1.0) -> bool:
        """Whether a connection from this host is accepted there."""
        with entered(self.namespace):
            try:
                socket.create_connection((address, port), timeout_s).close()
            except OSError:
                return False
        return True

    def kill_all(self) -> None:
        """Kill every process of this host; whatever runs there was started by the test."""
        for pid in map(int, _ip("netns", "pids", self.namespace).split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def listening(self) -> set[tuple[str, int]]:
        """Addresses and ports of this host at which something listens."""
        with entered(self.namespace):
            tables = {name: Path(f"/proc/thread-self/net/{name}").read_text() for name in ("tcp", "tcp6")}
        return {
            _socket_address(fields[1])
            for table in tables.values()
            for fields in map(str.split, table.splitlines()[1:])
            if fields[3] == TCP_LISTEN
        }


TCP_LISTEN = "0A"
"""How the kernel's tables write that state."""


def _socket_address(text: str) -> tuple[str, int]:
    """Address and port of the kernel's hexadecimal notation: words of the machine's byte order, the port big-endian."""
    words, _, port = text.partition(":")
    packed = b"".join(int(words[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(words), 8))
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    # A socket for both versions of IP listens at IPv4 addresses under this prefix.
    return socket.inet_ntop(family, packed).removeprefix("::ffff:"), int(port, 16)


class Relay:
    """A thread between two networks that passes bytes on."""

    def __init__(self, namespace: str, listen: tuple[str, int], to: tuple[str, int]) -> None:
        self.num_connections = 0
        self._namespace, self._listen, self._to = namespace, listen, to
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._is_open = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()
        assert self._is_open.wait(COMMAND_S), "the relay does not listen"

    def close(self) -> None:
        """Stop listening and drop every connection."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self) -> None:
        with entered(self._namespace):
            asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        connections: set[asyncio.Task[None]] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connections.add(task)
            self.num_connections += 1
            try:
                await self._pass_on(reader, writer)
            except (OSError, asyncio.CancelledError):
                writer.close()
            finally:
                connections.discard(task)

        server = await asyncio.start_server(accept, *self._listen)
        self._is_open.set()
        await self._stopping.wait()
        server.close()
        for task in connections:
            task.cancel()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(*self._to)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(1 << 16):
                target.write(data)
                await target.drain()

        tasks = [asyncio.create_task(copy(*ends)) for ends in ((reader, to_writer), (to_reader, writer))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for each in (writer, to_writer):
                each.close()


@contextlib.contextmanager
def entered(namespace: str) -> Iterator[None]:
    """Within the block this thread is on another host: sockets that it makes belong there."""
    with _opened("/proc/thread-self/ns/net") as ours, _opened(f"/run/netns/{namespace}") as theirs:
        _enter(theirs)
        try:
            yield
        finally:
            _enter(ours)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000


def _enter(descriptor: int) -> None:
    # os.setns comes with Python 3.12 only.
    if _libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")


def need_namespaces() -> None:
    """Skip the test that asks where this process may not make hosts."""
    if sys.platform != "linux":
        pytest.skip("network namespaces are Linux's")
    if shutil.which("ip") is None:
        pytest.skip("there is no command ip (iproute2)")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    try:
        with Network() as probe:
            probe.add_switch("probe", "192.0.2.1")
            probe.add_host("probe", "192.0.2.2", "probe")
    except AssertionError as refusal:
        pytest.skip(f"this machine allows no network namespaces: {refusal}")


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=COMMAND_S)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr.strip()}"
    return done.stdout


def _remove_what_dead_tests_left() -> None:
    for line in _ip("netns", "list").splitlines():
        name = line.split()[0]
        owner = name.removeprefix(f"{PREFIX}-").partition("-")[0]
        if name.startswith(f"{PREFIX}-") and owner.isdigit() and not Path(f"/proc/{owner}").exists():
            _ip("netns", "delete", name)
