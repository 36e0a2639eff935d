"""One configuration for all links: a federation on slow ones, unchanged, ends as on loopback, and loses nobody.

    python -m tests.chaos.slow_link          # 50 kB/s and a second of delay each way; a link each, then one for both

Real aggregator, two real trainer shells with numpy work, every setting at its default. The run has a deadline that is far
shorter than any transfer on these links: whoever moves is waited for. Nothing may be sent twice, nobody lost, superseded or
dropped, and every round must end in the bytes of a run without a network.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from tests.chaos.fault_proxy import FaultProxy
from tests.chaos.network import undisturbed
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.numpy_client import FEATURE_DIM, NumpyClient, a_document
from tests.support.federation.numpy_trainer import NumpyTrainer
from tests.support.federation.processes import Federation, eventually

CLIENTS = ("ann", "bob")
DEADLINE_S = 0.5
FRAMING_BYTES_PER_S = 2000
"""What each client's heartbeats, polls for its task and acknowledgements may take of a link."""
ALLOWED_EVENTS = {
    "run_created",
    "client_joined",
    "clients_admitted",
    "run_started",
    "round_opened",
    "update_committed",
    "round_aggregating",
    "round_evaluating",
    "evaluation_reported",
    "round_committed",
    "run_completed",
}
"""What the history of an undisturbed run consists of."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a run on slow links."""

    seconds: float
    payload_bytes: int
    link_bytes: int
    silent_s: float
    """Longest time for which the aggregator heard nothing of a client."""
    lease_s: float
    events: tuple[str, ...]
    resumed: int
    """Transfers that broke and went on."""
    is_same: bool

    def violations(self) -> list[str]:
        """What should not be, in words."""
        allowed_bytes = self.payload_bytes * 1.01 + len(CLIENTS) * FRAMING_BYTES_PER_S * (self.seconds + 5)
        found = {
            "the rounds do not end in the bytes of a run without a network": not self.is_same,
            f"the history has {sorted(set(self.events) - ALLOWED_EVENTS)}": set(self.events) - ALLOWED_EVENTS,
            "a client joined more than once": self.events.count("client_joined") != len(CLIENTS),
            f"{self.resumed} transfers broke": self.resumed,
            f"{self.link_bytes} bytes passed for a payload of {self.payload_bytes}": self.link_bytes > allowed_bytes,
            f"a client was silent for {self.silent_s:.1f} s of its lease": self.silent_s >= self.lease_s,
        }
        return [sentence for sentence, holds in found.items() if holds]


def run(
    folder: Path, *, bytes_per_s: float, delay_s: float, model_bytes: int, rounds: int = 1, is_shared: bool = False
) -> Result:
    """Run a federation over links of so many bytes a second and so much delay each way; one for both if `is_shared`."""
    clients = [NumpyClient(name, size=model_bytes // (4 * FEATURE_DIM)) for name in CLIENTS]
    quorum = {"deadline_s": DEADLINE_S, "min_clients": 1}
    document = {**a_document("fedplcc", clients=CLIENTS, run={"rounds": rounds}), "quorum": quorum}
    with Federation(folder) as federation, ExitStack() as stack:
        federation.start_aggregator()
        control = RunControl(federation.address, tls=federation.operator_tls)
        stack.callback(control.close)
        links = [stack.enter_context(FaultProxy(federation.address)) for _ in CLIENTS[: 1 if is_shared else None]]
        for link in links:
            for direction in (link.up, link.down):
                direction.bytes_per_s, direction.delay_s = bytes_per_s, delay_s
        trainers = [
            stack.enter_context(
                NumpyTrainer(links[index % len(links)].address, client, tls=federation.client_tls(client.client_id))
            )
            for index, client in enumerate(clients)
        ]
        begin = time.monotonic()
        run_id = control.create(document).run_id
        silences = [0.0]

        def has_ended() -> bool:
            now = time.time()
            for client in control.stub.ListClients(run_pb2.ListClientsRequest(), timeout=20).clients:
                silences.append(now - client.last_seen_time.ToNanoseconds() / 1e9)
            status = control.get(run_id).status
            assert status != types_pb2.RUN_STATUS_FAILED
            return status == types_pb2.RUN_STATUS_COMPLETED

        transfers = model_bytes * (2 + 3 * rounds) / bytes_per_s * (len(CLIENTS) if is_shared else 1)
        eventually(has_ended, "the run completes", 60 + 2 * transfers + delay_s * 60 * rounds)
        seconds = time.monotonic() - begin
        history = control.stub.WatchRun(run_pb2.WatchRunRequest(page_size=1000), timeout=20)
        events = tuple(response.event.type for response in history)
        lines = control.metrics_lines(run_id)
        directions, kinds = ("sent", "received"), ("model", "prototypes")
        payload = sum(
            trainer.count("transfer_bytes", way, kind) for trainer in trainers for way in directions for kind in kinds
        )
        resumed = sum(trainer.count("transfers_resumed", way) for trainer in trainers for way in directions)
        lease_s = trainers[0].worker._lease.lasts_s
        link_bytes = sum(link.num_bytes for link in links)
    same_clients = [NumpyClient(name, size=model_bytes // (4 * FEATURE_DIM)) for name in CLIENTS]
    is_same = lines == undisturbed(folder / "undisturbed", same_clients, document)
    return Result(seconds, int(payload), link_bytes, max(silences), lease_s, events, int(resumed), is_same)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the federation over slow links, print what came of it, and return 1 if anything was not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.slow_link", description=__doc__.partition("\n")[0])
    parser.add_argument("--bytes-per-s", type=float, default=50e3)
    parser.add_argument("--delay-s", type=float, default=1.0, help="one way")
    parser.add_argument("--model-bytes", type=int, default=300_000)
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    status = 0
    links = (
        ("a link each", False, options.bytes_per_s, options.delay_s),
        ("one link for both", True, options.bytes_per_s, options.delay_s),
        ("loopback", False, float("inf"), 0.0),
    )
    for name, is_shared, bytes_per_s, delay_s in links:
        with tempfile.TemporaryDirectory() as folder:
            result = run(
                Path(folder),
                bytes_per_s=bytes_per_s,
                delay_s=delay_s,
                model_bytes=options.model_bytes,
                is_shared=is_shared,
            )
        print(
            f"{name}, {bytes_per_s / 1e3:g} kB/s, {delay_s:g} s: {result.seconds:.1f} s, {result.payload_bytes} bytes of "
            f"payload, {result.link_bytes} on the links, {result.resumed} resumed, silent for {result.silent_s:.1f} s at "
            f"most of {result.lease_s:g}, SHA-256 of every round {'the same' if result.is_same else 'DIFFERENT'}"
        )
        for violation in result.violations():
            status = 1
            print(f"violation: {violation}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
