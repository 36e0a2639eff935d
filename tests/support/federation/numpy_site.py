"""A site as a process of its own that costs no torch: `python -m tests.support.federation.numpy_site ADDRESS CLIENT
DOMAIN [--stall ROUND] [--identity FILE]`.

It comes back by itself, as a trainer does, and gives signs of life while it works. With `--stall` it begins to train in that
round and then stands still, alive: what a hung data loader or a dead accelerator looks like from outside.
"""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

from fedplcc.shared.convert.tasks import task_from_proto
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.types import ClientActivity, Task, TaskKind
from tests.support.federation.grpc_client import GrpcClient
from tests.support.federation.numpy_client import NumpyClient
from tests.support.identity.issued import identity_tls

HEARTBEAT_S = 0.1
RETRY_S = 0.1


class Site:
    """Follows tasks in the caller's thread and sends heartbeats in another."""

    def __init__(self, client: GrpcClient, stalls_in: int) -> None:
        self._client, self._stalls_in = client, stalls_in
        self._doing: tuple[ClientActivity, str, int] = (ClientActivity.IDLE, "", 0)
        self._for_ever = threading.Event()

    def run(self) -> None:
        """Act for the client until the process is killed."""
        threading.Thread(target=self._beat, daemon=True).start()
        while True:
            try:
                self._client.join()
                for response in self._client.tasks():
                    if not response.HasField("task"):
                        break
                    self._do(task_from_proto(response.task))
            except FedplccError as error:
                print(f"again: {error.reason}: {error.detail}", flush=True)
            self._for_ever.wait(RETRY_S)

    def _do(self, task: Task) -> None:
        if task.run is None or task.kind in (TaskKind.WAIT, TaskKind.STOP):
            return
        is_training = task.kind is TaskKind.TRAIN
        activity = ClientActivity.TRAINING if is_training else ClientActivity.EVALUATING
        self._doing = (activity, task.run.run_id, task.round)
        if is_training and task.round == self._stalls_in:
            self._for_ever.wait()
        self._client.perform(task)
        self._doing = (ClientActivity.IDLE, "", 0)

    def _beat(self) -> None:
        while True:
            try:
                activity, run_id, number = self._doing
                self._client.heartbeat(activity, run_id, number, progress=0.5)
            except FedplccError:
                pass  # the other thread says what is wrong
            self._for_ever.wait(HEARTBEAT_S)


def main() -> None:
    """Act for the client that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("client")
    parser.add_argument("domain")
    parser.add_argument("--stall", type=int, default=0)
    parser.add_argument("--identity", type=Path, help="file with a client's identity; plain text if not given")
    options = parser.parse_args()
    tls = identity_tls(options.identity)
    Site(GrpcClient(options.address, NumpyClient(options.client, options.domain), tls=tls), options.stall).run()


if __name__ == "__main__":
    main()
