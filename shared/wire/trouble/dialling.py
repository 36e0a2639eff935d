"""TCP connections, through an HTTP proxy where one is on the way."""

from __future__ import annotations

import socket

from fedplcc.shared.wire.addresses import split_address

STEP_S = 3.0
"""Longest wait for each step."""
CONNECT_BYTES = 8 << 10
"""Most bytes of a proxy's answer to CONNECT."""


class ProxyRefused(OSError):
    """The HTTP proxy opens no tunnel."""


def dialled(address: str, http_proxy: str = "", timeout_s: float = STEP_S) -> socket.socket:
    """Return a TCP connection to HOST:PORT, through an HTTP proxy if one is named.

    Args:
        address: HOST:PORT.
        http_proxy: HOST:PORT of a proxy that is asked to CONNECT; none if empty.
        timeout_s: Longest wait for each step.

    Raises:
        InvalidConfig: It is no address.
        ProxyRefused: The proxy opens no tunnel.
        OSError: Nobody answers.
    """
    connection = socket.create_connection(
        split_address(http_proxy or address, "http_proxy" if http_proxy else "address"), timeout_s
    )
    if http_proxy:
        try:
            connection.sendall(f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
            answer = b""
            while b"\r\n\r\n" not in answer and len(answer) < CONNECT_BYTES:
                part = connection.recv(1)  # not one byte of what follows is read here
                if not part:
                    break
                answer += part
            status = answer.partition(b"\r\n")[0].decode("ascii", "replace")
            if status.split(" ")[1:2] != ["200"]:
                raise ProxyRefused(f"the HTTP proxy {http_proxy} opens no tunnel to {address}: {status[:100]!r}")
        except BaseException:
            connection.close()
            raise
    return connection
