"""Runs of a federation on other hosts (tests/support/hosts/namespaces.py), steered through its gateway from one of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.federation.processes import eventually
from tests.support.hosts.namespaces import Host

RUN_S = 120.0
"""Bound on whatever is waited for, on a busy machine."""
LEFT = {"metrics.jsonl": "metrics.jsonl", "model.safetensors": "model", "prototypes.safetensors": "prototypes"}
"""Where the gateway serves the files on which equal federations agree, by their names in a run's folder."""


@dataclass(frozen=True, slots=True)
class RemoteRuns:
    """The gateway, as a person on this host sees it."""

    host: Host
    gateway: str
    key: str = ""
    """What the gateway is shown; none where it asks for none."""

    def start(self, document: dict[str, Any]) -> str:
        """Start a run; its id."""
        return str(self._ask("runs", document)["run_id"])

    def listed(self) -> list[str]:
        """Ids of all runs."""
        return [str(run["run_id"]) for run in self._ask("runs")["runs"]]

    def get(self, run_id: str) -> dict[str, Any]:
        """A run, which has not failed."""
        run: dict[str, Any] = self._ask(f"runs/{run_id}")
        assert run["status"] != "failed", run["reason"]
        return run

    def wait(self, run_id: str, status: str, number: int = 0) -> None:
        """Until the run has the status, and the round at least this number."""

        def is_there() -> bool:
            try:
                run = self.get(run_id)
            except OSError:  # the aggregator is away
                return False
            return bool(run["status"] == status and run["round"] >= number)

        eventually(is_there, f"{run_id} is {status} in round {number} or later", RUN_S)

    def end_of(self, run_id: str) -> dict[str, str]:
        """Wait for the run's end; the SHA-256 of what it leaves, as `tests.support.federation.simulations.hashed` gives
        them."""
        self.wait(run_id, "completed")
        return {name: hashlib.sha256(self._fetch(f"runs/{run_id}/{path}")).hexdigest() for name, path in LEFT.items()}

    def clients(self) -> dict[str, dict[str, Any]]:
        """Clients by id; none while the gateway or the aggregator is away."""
        try:
            answer = self._ask("clients")
        except OSError:
            return {}
        return {client["client_id"]: client for client in answer["clients"]}

    def connected(self) -> list[str]:
        """Ids of the clients that are connected."""
        return [name for name, client in self.clients().items() if client["is_connected"]]

    def _ask(self, path: str, body: object = None) -> Any:
        return json.loads(self._fetch(path, body))

    def _fetch(self, path: str, body: object = None) -> bytes:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return self.host.fetch(f"{self.gateway}/v1/{path}", body, headers)


def key_of(user: Path) -> str:
    """The one key that `fedplcc login` kept in a user's folder of configurations."""
    (key,) = json.loads((user / "fedplcc" / "keys.json").read_text()).values()
    return str(key)
