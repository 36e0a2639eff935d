"""The tiny federation as processes: an aggregator, a trainer for each client, and an operator's hand on its runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.federation.grpc_client import RUN_S, RunControl
from tests.support.federation.processes import Federation, eventually


class Deployed:
    """Processes that run; `control` is of the aggregator that was started last."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.control = RunControl(federation.address, tls=federation.operator_tls)

    def kill_all(self) -> None:
        """SIGKILL of every process; each is started again."""
        for process in self.federation.processes.values():
            process.kill()
        self.federation.start_aggregator()
        for name, process in self.federation.processes.items():
            if name != "aggregator":
                process.start()
        self.control.close()
        self.control = RunControl(self.federation.address, tls=self.federation.operator_tls)

    def lines(self, run_id: str) -> list[dict[str, Any]]:
        """The metrics of the rounds that have committed."""
        return [json.loads(line) for line in self.control.metrics_lines(run_id) if line]

    def await_round(self, run_id: str, number: int) -> None:
        """Until so many rounds have committed."""
        eventually(lambda: len(self.lines(run_id)) >= number, f"round {number} ends", RUN_S)


@contextmanager
def deployed(folder: Path, clients: Mapping[str, Mapping[str, Any]], *flags: str) -> Iterator[Deployed]:
    """Start the processes for the clients' tables of a configuration; each trainer gets these flags besides."""
    with Federation(folder) as federation:
        federation.start_aggregator()
        for name, table in clients.items():
            own = [(f"--{key.replace('_', '-')}", str(value)) for key, value in table.items() if key != "data"]
            federation.start_trainer(name, table["data"], *(word for pair in own for word in pair), *flags)
        running = Deployed(federation)
        try:
            yield running
        finally:
            running.control.close()
