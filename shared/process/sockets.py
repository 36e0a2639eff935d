"""TCP connections that this process has accepted, seen from outside the library that holds them.

gRPC tells a server nothing of its connections and ends none. But a process may look at its own open files: each connection
is one of them, knows both of its addresses, and ends by a duplicate of it. Linux and macOS.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fedplcc.shared.process.address_shares import plain_host

_FOLDERS = (Path("/proc/self/fd"), Path("/dev/fd"))
_TCP_INFO_BYTES, _RECEIVED = 136, slice(128, 136)
"""Length of Linux's `tcp_info` up to the bytes that a connection has received, and their place in it."""
_GONE = (errno.EBADF, errno.ENOENT, errno.ENOTCONN, errno.EINVAL, errno.ENOTSOCK)


@dataclass(frozen=True, slots=True)
class Link:
    """An accepted connection."""

    file: int
    """Number of the open file."""
    inode: int
    """Number of the socket, which no other one has: that of a file is given again."""
    host: str
    """Address of the other end; of IPv4 also where the socket is one of IPv6."""
    port: int
    """Port of the other end."""

    def received_bytes(self) -> int:
        """Return how many bytes have come over the connection; 0 if it has ended, or where Linux does not count them."""
        with _opened(self.file, self.inode) as found:
            if found is None or sys.platform != "linux":
                return 0
            try:
                return int.from_bytes(
                    found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)[_RECEIVED], sys.byteorder
                )
            except OSError:
                return 0

    def end(self) -> bool:
        """End the connection, which its holder reads as the other side's end; false if it has ended already."""
        with _opened(self.file, self.inode) as found:
            if found is not None:
                with suppress(OSError):  # the other end went away just now
                    found.shutdown(socket.SHUT_RDWR)
                    return True
        return False


@dataclass(frozen=True, slots=True)
class Listening:
    """A listening socket."""

    file: int
    inode: int

    @contextmanager
    def opened(self) -> Iterator[socket.socket | None]:
        """Give a duplicate of the socket for the block; None if it is closed."""
        with _opened(self.file, self.inode) as found:
            yield found


@dataclass(frozen=True, slots=True)
class Seen:
    """Open files of this process at one moment."""

    links: Mapping[tuple[str, int], Link]
    """The accepted connections of a port, by address and port of the other end."""
    listening: tuple[Listening, ...]
    """What listens at the port."""
    num_files: int
    """Open files of any kind."""
    received: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Bytes that have come over each connection."""


class OwnSockets:
    """Sockets of one port of this process; one thread at a time looks."""

    def __init__(self, port: int) -> None:
        """Begin; nothing is looked at yet."""
        self._port = port
        self._known: dict[int, Link | Listening | None] = {}
        """By number of the socket; None for one of another port."""

    def look(self) -> Seen:
        """Return what is open now. A socket that was seen before costs a few calls of the system.

        Raises:
            OSError: The system shows a process none of its files.
        """
        numbers = [int(name) for name in os.listdir(folder_of_files())]
        known: dict[int, Link | Listening | None] = {}
        for file in numbers:
            try:
                found = os.fstat(file)
            except OSError:  # closed just now, as the listing of the folder is
                continue
            if not stat.S_ISSOCK(found.st_mode):
                continue
            before = self._known.get(found.st_ino)
            is_known = before.file == file if before is not None else found.st_ino in self._known
            known[found.st_ino] = before if is_known else self._examined(file, found.st_ino)
        self._known = known
        links = {(each.host, each.port): each for each in known.values() if isinstance(each, Link)}
        listening = tuple(each for each in known.values() if isinstance(each, Listening))
        received = {peer: link.received_bytes() for peer, link in links.items()}
        return Seen(links, listening, len(numbers), received)

    def _examined(self, file: int, inode: int) -> Link | Listening | None:
        with _opened(file, inode) as found:
            if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            with suppress(OSError):
                if found.type != socket.SOCK_STREAM or found.getsockname()[1] != self._port:
                    return None
                if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    return Listening(file, inode)
                host, port = found.getpeername()[:2]
                return Link(file, inode, plain_host(host), port)
        return None


def folder_of_files() -> Path:
    """Return the folder that names the open files of this process.

    Raises:
        FileNotFoundError: This system has none.
    """
    for folder in _FOLDERS:
        if folder.is_dir():
            return folder
    raise FileNotFoundError(errno.ENOENT, "neither /proc nor /dev/fd shows this process's open files")


@contextmanager
def _opened(file: int, inode: int) -> Iterator[socket.socket | None]:
    """Give a duplicate of a socket, if the file is that socket still: a file may be closed by its holder at any time."""
    try:
        duplicate = os.dup(file)
    except OSError:
        yield None
        return
    try:
        found = socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        yield None
        return
    with found:
        yield found if os.fstat(duplicate).st_ino == inode else None
