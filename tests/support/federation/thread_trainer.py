"""A trainer with torch in threads of this process, with the registry that it counts in."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Self

from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.wire.tls import ClientTls
from fedplcc.trainer.aggregator.connection import AggregatorConnection
from fedplcc.trainer.readings.metrics import TrainerMetrics
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from fedplcc.trainer.worker import Worker
from tests.support.hosts.memory_folder import memory_folder


class ThreadTrainer:
    """It works from the beginning on, until `end` or the end of its block."""

    def __init__(
        self,
        address: str,
        client: str,
        data: str,
        *,
        tls: ClientTls | None = None,
        token: str = "t" * 20,
        poll_hold_s: float | None = None,
        **options: Any,
    ) -> None:
        self.registry = new_registry("trainer")
        metrics = TrainerMetrics(self.registry)
        self._folder = memory_folder()
        site = ClientSite.at(client, client, data, device="cpu")
        runner = TaskRunner(site, ClientStates(Path(self._folder.name)), metrics=metrics)
        connection = AggregatorConnection(address, client, token, metrics, poll_hold_s=poll_hold_s, tls=tls)
        self.worker = Worker(runner, connection, metrics, **options)
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.worker.run()
        except Exception as error:
            self.error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.end()

    def end(self) -> None:
        self.worker.end()
        self.wait()

    def wait(self) -> None:
        """Wait for it to end by itself."""
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._folder.cleanup()

    def value(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(f"fedplcc_{name}", labels)
        assert value is not None
        return value

    @property
    def num_samples(self) -> float:
        return self.value("training_samples_total")
