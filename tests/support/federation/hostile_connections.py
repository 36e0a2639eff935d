"""A hostile caller in a process of its own: `python -m tests.support.federation.hostile_connections`, one line of JSON.

    {"kind": "resets", "port": 50051, "source": "127.0.0.2", "connections": 16, "streams": 300, "path": "/...", ...}
    {"kind": "frames", "port": 50051, "source": "127.0.0.2", "connections": 4, "first": "0000...", "again": "0000...", ...}
    {"kind": "silence", "port": 50051, "source": "127.0.0.2", "connections": 500, "first": "1603010200"}

It says "begun" when it is under way, goes on until its input ends, and imports nothing of this project but its frames.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.support.federation.http2_frames import (
    CANCEL,
    END_HEADERS,
    HEADERS,
    PREFACE,
    RESET,
    SETTINGS,
    call_headers,
    frame,
)

PAUSE_S = 0.05
"""Pause after a connection that could not be made."""


@contextmanager
def hostile(**given: Any) -> Iterator[subprocess.Popen[str]]:
    """Such a process while the block lasts; it is under way at its beginning."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018  # both are pipes
        try:
            process.stdin.write(json.dumps(given) + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "begun\n"
            yield process
            assert process.poll() is None, "it went on to the end"
        finally:
            process.kill()


def connected(given: dict[str, Any]) -> socket.socket:
    """A connection from the source; with TLS if a file of a certificate is given, empty for none."""
    link = socket.create_connection(("127.0.0.1", given["port"]), timeout=10, source_address=(given["source"], 0))
    if "certificate" not in given:
        return link
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if given["certificate"]:
        context.load_cert_chain(given["certificate"])
    return context.wrap_socket(link)


def reset_streams(given: dict[str, Any]) -> None:
    """Open calls and reset them at full speed, on a connection that is made again when it ends."""
    block = call_headers(given["path"], "https" if "certificate" in given else "http")
    while True:
        try:
            with connected(given) as link:
                link.sendall(PREFACE + frame(SETTINGS, 0, 0))
                stream = 1
                while True:
                    streams = range(stream, stream + 2 * given["streams"], 2)
                    opened = b"".join(frame(HEADERS, END_HEADERS, each, block) for each in streams)
                    link.settimeout(10)
                    link.sendall(opened + b"".join(frame(RESET, 0, each, CANCEL) for each in streams))
                    stream += 2 * given["streams"]
                    link.settimeout(0)  # what it is told is thrown away, so that it is told more
                    with suppress(BlockingIOError, ssl.SSLWantReadError):
                        while link.recv(1 << 16):
                            pass
        except OSError:
            time.sleep(PAUSE_S)


def repeat_frames(given: dict[str, Any]) -> None:
    """Say the same frames again and again, on a connection that is made again when it ends."""
    again = bytes.fromhex(given["again"])
    while True:
        try:
            with connected(given) as link:
                link.sendall(PREFACE + frame(SETTINGS, 0, 0) + bytes.fromhex(given["first"]))
                while True:
                    link.sendall(again)
        except OSError:
            time.sleep(PAUSE_S)


def say_nothing(given: dict[str, Any]) -> list[socket.socket]:
    """Connections that say nothing, or always the same first bytes."""
    held = []
    for _ in range(given["connections"]):
        with suppress(OSError):  # it was one too many
            held.append(connected(given))
            held[-1].sendall(bytes.fromhex(given["first"]))
    return held


def main() -> None:
    """Do what the first line of the input says, until the input ends."""
    given = json.loads(sys.stdin.readline())
    held = []
    if given["kind"] == "silence":
        held = say_nothing(given)
    else:
        act = repeat_frames if given["kind"] == "frames" else reset_streams
        for _ in range(given["connections"]):
            threading.Thread(target=act, args=(given,), daemon=True).start()
    print("begun", flush=True)
    sys.stdin.read()
    for each in held:
        each.close()


if __name__ == "__main__":
    main()
