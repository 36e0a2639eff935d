"""The aggregator's memory for each connection of a client that has joined and listens for tasks, over TLS and in plain text.

Other processes hold the connections. What is counted is anonymous memory; what a client takes by itself, joined and
listening, is in both numbers.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.support.members import Served
from benchmarks.support.processes import ANSWER_S, aggregator, peer
from benchmarks.support.report import finish, options
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, round_service_pb2_grpc, types_pb2
from fedplcc.shared.wire.channels import open_aio_channel

CONNECTIONS, QUICK_CONNECTIONS = 800, 10
PROCESSES = 4
GOAL_KIB = 64
REST_S = 2.0
"""Time after the last call in which buffers of handshakes are given back."""


def main() -> None:
    """Measure both."""
    arguments = options(__doc__)
    num = QUICK_CONNECTIONS if arguments.quick else CONNECTIONS
    kinds = (True,) if arguments.plain else (False, True)
    rows = [_measured(num, plain=plain) for plain in kinds]
    if not arguments.plain:
        tls, text = (row["memory a connection (KiB)"] for row in rows)
        rows[0]["beyond plain text (KiB)"] = tls - text
    finish("connections", rows, arguments)


def _measured(num: int, *, plain: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="fedplcc-connections-") as name, ExitStack() as stack:
        share = num // PROCESSES
        firsts = [1000 * (1 + n) for n in range(PROCESSES)]
        clients = [f"client-{first + index}" for first in firsts for index in range(share)]
        started = aggregator(Path(name), "--heartbeat-interval-s", "600", plain=plain, clients=clients)
        served, pid = stack.enter_context(started)
        # The first ones make what any number shares: threads, caches, compiled statements.
        stack.enter_context(peer(hold, served, 0, PROCESSES)).receive()
        time.sleep(REST_S)
        before = _anonymous_kib(pid)
        holders = [stack.enter_context(peer(hold, served, first, share)) for first in firsts]
        for holder in holders:
            holder.receive()
        time.sleep(REST_S)
        after = _anonymous_kib(pid)
        return {
            "speaks": "plain text" if plain else "mutual TLS",
            "connections": share * PROCESSES,
            "before (MiB)": before / 1024,
            "after (MiB)": after / 1024,
            "memory a connection (KiB)": (after - before) / (share * PROCESSES),
            "goal": f"<= {GOAL_KIB} KiB",
        }


def hold(control: Connection, served: Served, first: int, num: int) -> None:
    """The process of some clients: each joins and listens for tasks over a connection of its own."""
    asyncio.run(_hold(control, served, [f"client-{first + index}" for index in range(num)]))


async def _hold(control: Connection, served: Served, names: list[str]) -> None:
    channels, streams = [], []
    for name in names:
        channel = open_aio_channel(served.address, tls=served.members.tls(name))
        stub: Any = round_service_pb2_grpc.RoundServiceStub(channel)
        token = uuid.uuid4().hex
        await stub.Join(
            round_service_pb2.JoinRequest(
                client_id=name,
                domain="benchmark",
                instance_token=token,
                num_examples=1,
                class_counts=[types_pb2.ClassCount(class_name="one", num_examples=1)],
                environment=types_pb2.Environment(cpu="any", device="cpu", platform="any"),
            ),
            timeout=ANSWER_S,
        )
        stream = stub.SyncRound(round_service_pb2.SyncRoundRequest(client_id=name, instance_token=token))
        await stream.read()
        channels.append(channel)
        streams.append(stream)
    control.send(None)
    await asyncio.to_thread(control.poll, None)  # until the benchmark lets go
    for channel in channels:
        await channel.close(None)


def _anonymous_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise RuntimeError(f"process {pid} has ended")


if __name__ == "__main__":
    main()
