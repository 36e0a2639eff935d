"""The aggregator's time, asked for over a TLS connection that is open already.

gRPC cannot ask: it checks the aggregator's certificate by the own clock, which is what is in doubt. The call is one request
of HTTP/2 whose answer is read frame by frame.
"""

from __future__ import annotations

import struct
from typing import Protocol

GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_FRAME_BYTES = 16 << 10
"""Largest frame that is read; nobody sends larger ones unasked."""
MAX_FRAMES = 50
"""Most frames before the answer."""
_DATA, _HEADERS, _SETTINGS, _GOAWAY = 0, 1, 4, 7
_END_HEADERS, _END_STREAM, _ACK = 4, 1, 1
_STREAM = 1


class Connection(Protocol):
    """A connection, as of `ssl.SSLSocket`."""

    def sendall(self, data: bytes, /) -> None:
        """Send bytes."""

    def recv(self, size: int, /) -> bytes:
        """Return at most so many bytes, none at the end."""


def time_at(connection: Connection) -> float:
    """Return the time that EnrolService.GetTime tells, in seconds since the epoch.

    Raises:
        ValueError: It is no EnrolService that answers.
        OSError: The connection broke.
    """
    fields = {
        ":method": "POST",
        ":scheme": "https",
        ":path": "/fedplcc.v1.EnrolService/GetTime",
        ":authority": "aggregator",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    # Each field as a literal that is not indexed, RFC 7541 6.2.2: every name and value here is shorter than 127 bytes.
    headers = b"".join(
        b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in fields.items()
    )
    request = bytes(5)  # not compressed, and an empty message
    connection.sendall(
        GREETING
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, _STREAM, headers)
        + _frame(_DATA, _END_STREAM, _STREAM, request)
    )
    answer = b""
    for _ in range(MAX_FRAMES):
        kind, flags, stream, payload = _read_frame(connection)
        if kind == _SETTINGS and not flags & _ACK:
            connection.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _DATA and stream == _STREAM:
            answer += payload
            # The first field of GetTimeResponse: a double.
            if len(answer) >= 14 and answer[5] == 0x09:
                (seconds,) = struct.unpack("<d", answer[6:14])
                return float(seconds)
        elif kind == _GOAWAY or (kind == _HEADERS and flags & _END_STREAM):
            break
    raise ValueError("no EnrolService answers")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _read_frame(connection: Connection) -> tuple[int, int, int, bytes]:
    head = _read(connection, 9)
    size = int.from_bytes(head[:3], "big")
    if size > MAX_FRAME_BYTES:
        raise ValueError("a frame is too large")
    return head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF, _read(connection, size)


def _read(connection: Connection, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ValueError("the connection ended")
        data += part
    return data
