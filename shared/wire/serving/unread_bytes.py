"""Bytes that come over a connection and are in no message that a call has read.

They are frames of HTTP/2 that say nothing, heads without an end, and what is sent to nobody. gRPC reads them all, and before
anybody else's. Frames around messages, windows and messages that are not whole yet are free. So is all from this machine's
own address, which cannot be barred: who comes again at once would have more calls in line than before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.principals import Principal
from fedplcc.shared.process.address_shares import is_own, network_of
from fedplcc.shared.process.sockets import Seen
from fedplcc.shared.wire.serving.token_buckets import TokenBuckets

PER_S, AT_ONCE = 4.0, 32.0
"""Units of bytes of a certificate, or of an address without one."""
OF_A_MEMBER = 1 << 20
"""Bytes of a unit of a certificate. At once more than a few cut uploads leave in windows and in messages that are not whole;
with time more than the frames around what is read at full speed."""
OF_A_STRANGER, OF_A_GATEWAY = OF_A_MEMBER // 16, 16 * OF_A_MEMBER
"""The same of who has shown no certificate, and of a gateway, whose callers cut their uploads."""

Peer = tuple[str, int]


class Reader(Protocol):
    """A connection as its calls know it."""

    principal: Principal | None
    read_bytes: int

    @property
    def of(self) -> str | Peer:
        """Whose share it takes."""


class UnreadBytes:
    """Shares of callers; used by the thread that looks at sockets."""

    def __init__(self, steady: Callable[[], float]) -> None:
        """Begin with full shares; `steady` is the steady clock, in seconds."""
        self._shares = TokenBuckets(PER_S, AT_ONCE, steady)
        self._taken: dict[int, int] = {}
        """Unread bytes that were counted, by the number of the socket."""

    def ended(self, seen: Seen, known: Mapping[Peer, Reader]) -> list[Peer]:
        """End the connections of callers whose share is used up, and return their other ends."""
        ended = []
        self._taken = {link.inode: self._taken.get(link.inode, 0) for link in seen.links.values()}
        for peer, link in seen.links.items():
            if is_own(peer[0]):
                continue
            reader = known.get(peer)
            read_bytes, unit = (0, OF_A_STRANGER) if reader is None else (reader.read_bytes, _unit(reader.principal))
            while seen.received.get(peer, 0) - read_bytes - self._taken[link.inode] >= unit:
                self._taken[link.inode] += unit
                if self._shares.take(network_of(peer[0]) if reader is None else reader.of):
                    link.end()
                    ended.append(peer)
                    break
        return ended


def _unit(principal: Principal | None) -> int:
    if principal is None:
        return OF_A_STRANGER
    return OF_A_GATEWAY if principal.role is Role.GATEWAY else OF_A_MEMBER
