"""Seconds of transfer that a round of ResNet10 takes on a slow line, by precision: 4 Mbit/s, 200 ms there and back.

The line is the loopback of a network namespace under `tc netem`, where kernel and rights allow it; else a proxy of this
process with the same rate and delay. A real aggregator and a real trainer with its own data are at its ends. Seconds are
those that the trainer measures: its upload, and its downloads before training and before evaluation. Round 1 begins with
the whole model; those after it are judged.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from benchmarks.support.report import Row, finish, options
from fedplcc.shared.encoded_models import CODES
from tests.chaos.fault_proxy import FaultProxy
from tests.support.federation import tiny_federation
from tests.support.federation.grpc_client import ENDED, RunControl
from tests.support.federation.processes import Federation, eventually

BYTES_PER_S, DELAY_S = 4e6 / 8, 0.1
INSIDE = "--on-netem"
"""Flag of the process that runs in the namespace."""
SHAPED = f"ip link set lo up && tc qdisc add dev lo root netem rate 4mbit delay {DELAY_S * 1000:.0f}ms"
MOVED = ("received_bytes", "evaluation_received_bytes", "sent_bytes")
SECONDS = ("download_seconds", "evaluation_download_seconds", "upload_seconds")
PATIENCE_S = 900.0


def main() -> None:
    """Measure each precision, in a namespace if there can be one."""
    is_inside = INSIDE in sys.argv
    if not is_inside and _answers(["unshare", "--net", "sh", "-ec", SHAPED]):
        again = f'{SHAPED} && exec "$0" -m benchmarks.by_hand.slow_line {INSIDE} "$@"'
        sys.exit(subprocess.call(["unshare", "--net", "sh", "-ec", again, sys.executable, *sys.argv[1:]]))
    sys.argv = [argument for argument in sys.argv if argument != INSIDE]
    arguments = options(__doc__)
    precisions = ("int8",) if arguments.quick else ("float32", *CODES)
    rows = [
        row
        for precision in precisions
        for row in measure(precision, arguments.quick, is_netem=is_inside, plain=arguments.plain)
    ]
    finish("slow_line", rows, arguments)


def measure(precision: str, is_quick: bool, *, is_netem: bool, plain: bool) -> list[Row]:
    """Three rounds of one client, two where it is to be quick."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedplcc-line-")))
        tiny_federation.write_data(folder)
        federation = stack.enter_context(Federation(folder / "federation", tls=not plain))
        federation.folder.mkdir()
        federation.start_aggregator()
        address = federation.address
        if not is_netem:
            link = stack.enter_context(FaultProxy(address))
            for direction in (link.up, link.down):
                direction.bytes_per_s, direction.delay_s = BYTES_PER_S, DELAY_S
            address = link.address
        federation.start_trainer("left", f"npz:{folder / 'left.npz'}", "--aggregator", address)
        control = stack.enter_context(closing(RunControl(federation.address, tls=federation.operator_tls)))
        run_id = control.create(_document(folder, precision, 3 - is_quick)).run_id
        eventually(lambda: control.get(run_id).status in ENDED, "the run ends", PATIENCE_S)
        lines = [line for line in control.timings(run_id) if line["round"] > 1]
        return [
            {
                "precision": precision,
                "line": "netem" if is_netem else "proxy",
                "round": line["round"],
                "bytes": int(sum(client.get(name, 0) for name in MOVED)),
                "down (s)": round(sum(client.get(name, 0.0) for name in SECONDS[:2]), 1),
                "up (s)": round(client.get(SECONDS[2], 0.0), 1),
                "transfer (s)": round(sum(client.get(name, 0.0) for name in SECONDS), 1),
            }
            for line in lines
            for client in line["clients"].values()
        ]


def _document(folder: Path, precision: str, rounds: int) -> dict[str, Any]:
    values = tiny_federation.document(
        folder, "fedavg", model={"name": "resnet10"}, run={"clients": ["left"], "rounds": rounds}
    )
    return {**tiny_federation.run_document(values), "wire": {"precision": precision}}


def _answers(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


if __name__ == "__main__":
    main()
