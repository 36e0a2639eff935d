"""Cut the link at every k-th chunk of every transfer: only the chunk at hand is sent again, and the bytes are the same.

    python -m tests.chaos.network            # every k from 1 to the number of chunks; exits 1 on a violation

One real aggregator, one real trainer shell with numpy work, and between them a link (fault_proxy.py) that is cut again and
again while a blob is under way, each time when k and a half chunks have passed since the last cut, so that every cut falls
into the middle of a chunk. In each round of one run all four transfers (a model and prototypes, up and down) are cut at
another k. What passed over the link in a transfer's direction while it lasted, less its payload, may be at most

    cuts x (chunk + window + what a new connection costs) + framing

The window is HTTP/2's: what one end has sent and the other has not read is lost with a connection. Chunks of the contract's
size (256 KiB and more) hold it; the ones here are smaller, so that there are many. The last two are measured on the same
federation without a fault: one transfer's bytes around its payload, and what passes when an idle connection is cut and
comes back.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.types import LOCAL_CLUSTER, BlobRef, PrototypeSet, Task
from fedplcc.trainer.aggregator.port import AggregatorPort
from fedplcc.trainer.aggregator.task_connection import TaskConnection
from fedplcc.trainer.cancellation import ShouldStop, never
from fedplcc.trainer.task.job import OnActivity, OnProblem
from tests.chaos.fault_proxy import Direction, FaultProxy
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import FEATURE_DIM, NumpyClient, a_document
from tests.support.federation.numpy_trainer import NumpyRunner, NumpyTrainer
from tests.support.federation.processes import Federation, eventually

CHUNK_BYTES = 8 << 10
NUM_CHUNKS = 20
WINDOW_BYTES = 65_535
"""Initial size of HTTP/2's flow control window (RFC 9113, section 6.9.2)."""
HOLD_S, BYTES_PER_S = 0.5, 1e6
"""A link that both ends mostly keep up with, and time to deal with what has passed before its connection ends."""
WAIT_S = 60.0
ROUND_S = 60.0


class WideClient(NumpyClient):
    """A client whose model and prototypes are some twenty chunks each."""

    def __init__(self, client_id: str) -> None:
        each = CHUNK_BYTES * NUM_CHUNKS // (3 * 4 * (FEATURE_DIM + 6))
        super().__init__(client_id, counts=(each, each, each), size=CHUNK_BYTES * NUM_CHUNKS // (4 * FEATURE_DIM))

    def prototypes(self, task: Task, kind: str | None = LOCAL_CLUSTER) -> PrototypeSet:
        """Every sample is a prototype of its own."""
        ids = np.repeat(np.arange(len(self.counts)), self.counts)
        rows = self._rng(task).random((len(ids), FEATURE_DIM)) + ids[:, None]
        return PrototypeSet.of(rows, ids.tolist(), [1] * len(ids))


@dataclass(frozen=True, slots=True)
class Transfer:
    """One blob's way over the link."""

    way: str
    """"up" or "down"."""
    kind: str
    every: int
    """After how many chunks the link was cut, again and again; 0 for never."""
    payload_bytes: int
    link_bytes: int
    """Bytes that passed the link in this direction while it lasted."""
    cuts: int

    @property
    def over_bytes(self) -> int:
        """Bytes beyond the payload."""
        return self.link_bytes - self.payload_bytes


@dataclass
class Report:
    """Observations of a sweep."""

    transfers: list[Transfer] = field(default_factory=list)
    framing: dict[tuple[str, str], int] = field(default_factory=dict)
    """Bytes around the payload of an undisturbed transfer, by way and kind."""
    connection: dict[str, int] = field(default_factory=dict)
    """Bytes that a new connection of the trainer costs, by way."""
    is_same: bool = False
    """Whether every round of the run ended in the bytes of the undisturbed one."""
    seconds: float = 0.0

    def bound(self, transfer: Transfer) -> int:
        """Most bytes beyond the payload that a transfer may have needed."""
        framing = self.framing[transfer.way, transfer.kind]
        return transfer.cuts * (CHUNK_BYTES + WINDOW_BYTES + self.connection[transfer.way] + framing) + framing

    def violations(self) -> list[str]:
        """What should not be, in words."""
        found = [] if self.is_same else ["the run does not end in the bytes of the undisturbed one"]
        for transfer in self.transfers:
            if transfer.cuts and transfer.over_bytes > self.bound(transfer):
                found.append(f"{transfer} needed {transfer.over_bytes} bytes more than its payload")
        cut = {(transfer.way, transfer.kind) for transfer in self.transfers if transfer.cuts}
        return found + [f"no {kind} was cut on the way {way}" for way, kind in sorted(self.framing.keys() - cut)]

    def table(self) -> str:
        """What was done, one line a transfer."""
        lines = [
            f"{'direction':9} {'blob':10} {'cut every':>9} {'payload':>8} {'cuts':>4} {'over':>7} {'bound':>7}  result"
        ]
        for each in self.transfers:
            result = "ok" if not each.cuts or each.over_bytes <= self.bound(each) else "TOO MUCH"
            lines.append(
                f"{each.way:9} {each.kind:10} {each.every:>2} chunks {each.payload_bytes:>8} {each.cuts:>4} "
                f"{each.over_bytes:>7} {self.bound(each):>7}  {result}"
            )
        cuts = sum(transfer.cuts for transfer in self.transfers)
        framing = ", ".join(f"{way} {kind} {size}" for (way, kind), size in sorted(self.framing.items()))
        lines.append(
            f"chunk {CHUNK_BYTES} bytes; around an undisturbed blob: {framing}; a new connection: {self.connection}"
        )
        lines.append(
            f"{len(self.transfers)} transfers, {cuts} cuts, {self.seconds:.0f} s; "
            f"final SHA-256 of every round {'as undisturbed' if self.is_same else 'DIFFERENT'}"
        )
        return "\n".join(lines)


class _Cutter:
    """A task's connection whose link is cut while a blob is under way, and measured."""

    def __init__(self, connection: TaskConnection, link: FaultProxy, every: int, report: Report) -> None:
        self._connection, self._link, self._every, self._report = connection, link, every, report

    @property
    def retries(self) -> int:
        return self._connection.retries

    def fetch(self, blob: BlobRef) -> bytes:
        with self._measured(
            "down", self._link.down, "model" if blob.role == "model" else "prototypes", blob.size_bytes
        ):
            return self._connection.fetch(blob)

    def store(self, run_id: str, round_number: int, blob: BlobRef, data: bytes, *, is_prototypes: bool) -> None:
        with self._measured("up", self._link.up, "prototypes" if is_prototypes else "model", len(data)):
            self._connection.store(run_id, round_number, blob, data, is_prototypes=is_prototypes)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    @contextmanager
    def _measured(self, way: str, direction: Direction, kind: str, payload_bytes: int) -> Iterator[None]:
        bytes_before, cuts_before = direction.num_bytes, self._link.num_cut
        if self._every:
            direction.cut_every(self._every * CHUNK_BYTES + CHUNK_BYTES // 2)
        try:
            yield
        finally:
            direction.mend()
        cuts, link_bytes = self._link.num_cut - cuts_before, direction.num_bytes - bytes_before
        transfer = Transfer(way, kind, self._every, payload_bytes, link_bytes, cuts)
        if self._every:
            self._report.transfers.append(transfer)
        else:
            known = self._report.framing.get((way, kind), 0)
            self._report.framing[way, kind] = max(known, transfer.over_bytes)


class _CuttingRunner(NumpyRunner):
    """Does tasks over a link that is cut: round t at every k-th chunk, where k is the t-th of a list; 0 leaves it alone."""

    def __init__(self, client: NumpyClient, link: FaultProxy, every: Sequence[int], report: Report) -> None:
        super().__init__(client)
        self._link, self._every, self._report = link, every, report

    def perform(
        self,
        task: Task,
        aggregator: AggregatorPort,
        should_stop: ShouldStop = never,
        on_activity: OnActivity | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        assert isinstance(aggregator, TaskConnection)
        cutter: AggregatorPort = _Cutter(aggregator, self._link, self._every[task.round], self._report)  # type: ignore[assignment]
        super().perform(task, cutter, should_stop, on_activity, on_problem)


def sweep(folder: Path, every: Sequence[int]) -> Report:
    """Run a federation once, with a round for each k of `every`, after undisturbed ones that are measured."""
    begin, report, client = time.monotonic(), Report(), WideClient("ann")
    plan = (0, 0, 0, *every)
    document = {
        **a_document("fedplcc", clients=("ann",), run={"rounds": len(plan) - 1}),
        "method": {"partition": "first"},  # of which the most global prototypes come back
    }
    # No heartbeat is due meanwhile: what passes the link is the transfer's, and what its retries need.
    flags = ("--max-chunk-bytes", str(CHUNK_BYTES), "--max-inline-bytes", "0", "--heartbeat-interval-s", "600")
    with Federation(folder) as federation:
        federation.start_aggregator(*flags)
        control = RunControl(federation.address, tls=federation.operator_tls)
        with FaultProxy(federation.address, hold_s=HOLD_S) as link:
            link.up.bytes_per_s = link.down.bytes_per_s = BYTES_PER_S
            runner = _CuttingRunner(client, link, plan, report)
            with NumpyTrainer(
                link.address, client, runner=runner, tls=federation.client_tls(client.client_id)
            ) as trainer:
                report.connection = _cost_of_connection(link, trainer)
                run_id = control.create(document).run_id
                eventually(
                    lambda: control.get(run_id).status == types_pb2.RUN_STATUS_COMPLETED,
                    "the run completes",
                    WAIT_S + ROUND_S * len(plan),
                )
        lines = control.metrics_lines(run_id)
        control.close()
    report.is_same = lines == undisturbed(folder / "undisturbed", [WideClient("ann")], document)
    report.seconds = time.monotonic() - begin
    return report


def _cost_of_connection(link: FaultProxy, trainer: NumpyTrainer) -> dict[str, int]:
    """Cut an idle connection; returns what passes until the trainer has its task again, by way."""

    def is_back(num_lost: float) -> bool:
        return trainer.count("retries", "join") > num_lost and trainer.count("is_connected") == 1

    eventually(lambda: is_back(-1), "the trainer is connected", WAIT_S)
    lost, up, down = trainer.count("retries", "join"), link.up.num_bytes, link.down.num_bytes
    link.cut()
    eventually(lambda: is_back(lost), "the trainer is connected again", WAIT_S)
    return {"up": link.up.num_bytes - up, "down": link.down.num_bytes - down}


def undisturbed(folder: Path, clients: Sequence[NumpyClient], document: dict[str, object]) -> list[str]:
    """The metrics lines of a run, which name its bytes, without network and faults."""
    folder.mkdir()
    with LocalFederation(folder, clients) as federation:
        federation.chunk_bytes = 1 << 20
        federation.join()
        run = federation.coordinator.create_run("undisturbed", document)
        federation.run_to_end(run.run_id)
        return federation.metrics_lines(run.run_id)


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep, print what was done, and return 1 if anything was not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.network", description=__doc__.partition("\n")[0])
    parser.add_argument("--every", type=int, nargs="+", help="cut at every so many chunks; default: 1 to 20")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # the trainer's own, of every cut
    with tempfile.TemporaryDirectory() as folder:
        report = sweep(Path(folder), options.every or range(1, NUM_CHUNKS + 1))
    print(report.table())
    violations = report.violations()
    for violation in violations:
        print(f"violation: {violation}", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
