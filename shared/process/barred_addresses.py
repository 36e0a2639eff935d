"""Addresses whose new connections the kernel drops at a listening socket of this process (Linux).

Who may open a socket may attach a filter to it, without any right of an administrator. At one that listens it sees the
first packet of each connection to be (SYN) and may drop it: nothing is accepted, and no thread of the process wakes. The
classic filter machine of bpf(4) and Linux's Documentation/networking/filter.rst.
"""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterable, Iterator

_ATTACH, _DETACH = 26, 27
"""SO_ATTACH_FILTER and SO_DETACH_FILTER of Linux."""
_LOAD_WORD, _LOAD_BYTE, _IF_EQUAL, _IF_BITS, _GO, _RETURN = 0x20, 0x30, 0x15, 0x45, 0x05, 0x06
"""Instructions: BPF_LD|BPF_W|BPF_ABS, BPF_LD|BPF_B|BPF_ABS, BPF_JMP|BPF_JEQ, BPF_JMP|BPF_JSET, BPF_JMP|BPF_JA, BPF_RET."""
_NETWORK_HEADER, _PROTOCOL = -0x100000, -0x1000
"""Offsets that stand for the IP header, and for the protocol that carries it (SKF_NET_OFF, SKF_AD_OFF)."""
_IPV4, _IPV6 = 0x0800, 0x86DD
_FLAGS, _SYN = 13, 0x02
"""Byte of the TCP header with its flags, and the one that begins a connection."""
_TAKE, _DROP = 0xFFFFFFFF, 0

Instruction = tuple[int, int, int, int]
"""Code, jumps if true and if not, and its number."""


def bar(listening: socket.socket, networks: Iterable[str]) -> bool:
    """Have the kernel drop new connections of these addresses, and of no others, at a listening socket.

    Args:
        networks: IPv4 addresses, and networks of IPv6 of 64 bits; a few hundred at most.

    Returns:
        Whether this system does that.
    """
    if sys.platform != "linux":
        return False
    named = [ipaddress.ip_network(each) for each in networks]
    try:
        if not named:
            listening.setsockopt(socket.SOL_SOCKET, _DETACH, 0)
            return True
        program = [*_program(named)]
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
        # struct sock_fprog: a number, padding, a pointer.
        listening.setsockopt(socket.SOL_SOCKET, _ATTACH, struct.pack("@HP", len(program), ctypes.addressof(code)))
    except OSError:  # ENOENT: there was none to detach; EPERM, ENOMEM: a sandbox forbids it
        return not named
    return True


def _program(networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> Iterator[Instruction]:
    """Yield the filter: what is no first packet of a connection passes, then those of other addresses."""
    of_4 = [each for network in networks if network.version == 4 for each in _of_ipv4(network)]
    of_6 = [each for network in networks if network.version == 6 for each in _of_ipv6(network)]
    yield _LOAD_BYTE, 0, 0, _FLAGS
    yield _IF_BITS, 1, 0, _SYN
    yield _RETURN, 0, 0, _TAKE
    for protocol, instructions in ((_IPV4, of_4), (_IPV6, of_6)):
        yield _LOAD_WORD, 0, 0, (_PROTOCOL) & 0xFFFFFFFF
        yield _IF_EQUAL, 1, 0, protocol
        yield _GO, 0, 0, len(instructions)  # conditional jumps are short
        yield from instructions
    yield _RETURN, 0, 0, _TAKE


def _of_ipv4(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> Iterator[Instruction]:
    yield _LOAD_WORD, 0, 0, (_NETWORK_HEADER + 12) & 0xFFFFFFFF
    yield _IF_EQUAL, 0, 1, int(network.network_address)
    yield _RETURN, 0, 0, _DROP


def _of_ipv6(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> Iterator[Instruction]:
    prefix = int(network.network_address) >> 64
    yield _LOAD_WORD, 0, 0, (_NETWORK_HEADER + 8) & 0xFFFFFFFF
    yield _IF_EQUAL, 0, 3, prefix >> 32
    yield _LOAD_WORD, 0, 0, (_NETWORK_HEADER + 12) & 0xFFFFFFFF
    yield _IF_EQUAL, 0, 1, prefix & 0xFFFFFFFF
    yield _RETURN, 0, 0, _DROP
