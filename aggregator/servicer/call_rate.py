"""A limit of calls a minute for each address, for services that anybody may call."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import unquote

from fedplcc.shared.errors import TooManyCalls
from fedplcc.shared.process.address_shares import network_of
from fedplcc.shared.wire.addresses import plain_peer

MAX_ADDRESSES = 10_000
"""Most addresses that are remembered; beyond it the one that called longest ago is forgotten."""


class CallRate:
    """Calls that each address may still make: `most` at once, and as many more in each `period_s` seconds."""

    def __init__(self, most: int, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._period_s, self._clock = most, period_s, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Calls left by address and the time for which that is right, in the order of the last call."""

    def count(self, address: str) -> None:
        """Count a call from an address, as `address_of` returns it.

        Raises:
            TooManyCalls: The address has no calls left.
        """
        now = self._clock()
        left, since = self._left.pop(address, (float(self._most), now))
        left = min(self._most, left + (now - since) * self._most / self._period_s)
        is_allowed = left >= 1
        self._left[address] = (left - is_allowed, now)
        if len(self._left) > MAX_ADDRESSES:
            self._left.popitem(last=False)
        if not is_allowed:
            wait = max(1, math.ceil((1 - left) * self._period_s / self._most))
            raise TooManyCalls(
                f"{self._most} calls in {self._period_s:g} s are allowed; try again in {wait} s", retry_after_s=wait
            )

    def give_back(self, address: str) -> None:
        """Take back the last count of an address whose caller turned out to be welcome."""
        found = self._left.get(address)
        if found is not None:
            self._left[address] = (min(self._most, found[0] + 1), found[1])


def address_of(peer: str) -> str:
    """Return the IP address in the peer of a gRPC call, of IPv6 the network; of another kind of peer its beginning."""
    kind, _, where = peer.partition(":")
    return network_of(plain_peer(unquote(where))[0]) if kind in ("ipv4", "ipv6") else peer[:64]
