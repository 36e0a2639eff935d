"""Connections of a port, shared out by address: so many of one, and some kept for this machine whatever others open."""

from __future__ import annotations

import ipaddress
from collections import Counter

MOST_OF_AN_ADDRESS = 128
"""Open connections of an address that have shown nothing that tells their callers apart."""
OWN_ADDRESSES = frozenset({"127.0.0.1", "::1"})
"""This machine, which may have all connections that there are."""
KEPT = 4
"""One of so many connections is kept for whom a port is meant for, whatever others open."""
NETWORK_BITS = 64
"""Bits of an IPv6 address that tell callers apart: whoever has one has all others of its network."""

NEIGHBOUR_BITS = {4: 24, 6: 48}
"""Bits of the addresses that one party is commonly given, by the version of IP."""


class AddressShares:
    """Count of open connections by address; used by one thread at a time."""

    def __init__(self, most: int, of_an_address: int = MOST_OF_AN_ADDRESS) -> None:
        """Begin with none."""
        self._most, self._of_an_address = most, of_an_address
        self._of: Counter[str] = Counter()
        self.num_open = 0

    def take(self, host: str, *, is_kept_for: bool = False) -> str | None:
        """Count a connection of an address; returns why there may not be one more, and counts none then.

        Args:
            is_kept_for: Whether the reserve is for it, as for this machine, and it has no other limit.
        """
        if is_kept_for or is_own(host):
            if self.num_open >= self._most:
                return "too many connections"
        elif self.num_open >= self._most - self._most // KEPT:
            return "too many connections"
        elif self._of[network_of(host)] >= self._of_an_address:
            return "too many connections of an address"
        self._of[network_of(host)] += 1
        self.num_open += 1
        return None

    def give_back(self, host: str) -> None:
        """Count a connection of an address no more."""
        network = network_of(host)
        self.num_open -= 1
        self._of[network] -= 1
        if not self._of[network]:
            del self._of[network]


def is_own(host: str) -> bool:
    """Whether an address is this machine's own, by which nobody else comes."""
    return plain_host(host) in OWN_ADDRESSES


def network_of(host: str) -> str:
    """Return what tells an address apart from others: itself, or of IPv6 its network; other text stays as it is."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:64]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, NETWORK_BITS), strict=False))


def neighbourhood_of(host: str) -> str:
    """Return the network from which one party may have many addresses; other text stays as it is."""
    try:
        network = ipaddress.ip_network(host, strict=False)
    except ValueError:
        return host
    return str(network.supernet(new_prefix=min(network.prefixlen, NEIGHBOUR_BITS[network.version])))


def plain_host(host: str) -> str:
    """Return an address without its zone, as IPv4 where it is one."""
    host = host.partition("%")[0]
    return host.removeprefix("::ffff:") if "." in host else host
