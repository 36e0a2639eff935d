"""Simulations for tests: run in this process into a folder, and compared by what must be equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedplcc.runs.run_folder import claimed_folder
from fedplcc.shared.documents import Event
from fedplcc.simulation import simulate_in_folder
from fedplcc.terminal.progress import RunProgress, console_for
from fedplcc.trainer.cancellation import never
from tests.support.federation import tiny_federation


class _Watched(RunProgress):
    """Shows a run, and hands its events on."""

    def __init__(self, total_rounds: int, on_event: Callable[[Event], None]) -> None:
        super().__init__(console_for(json=True), total_rounds=total_rounds)
        self._on_event = on_event

    def event(self, event: Event) -> None:
        super().event(event)
        self._on_event(event)


def simulated(
    values: dict[str, Any],
    out: Path,
    should_stop: Callable[[], bool] = never,
    *,
    jobs: int | None = 1,
    device: str = "cpu",
    on_event: Callable[[Event], None] = lambda event: None,
) -> dict[str, Any]:
    """The last line of metrics.jsonl of a simulation, and the bytes that must be equal, by name."""
    federation = tiny_federation.federation(values)
    with claimed_folder(out, federation) as folder:
        folder.prepare()
        progress = _Watched(federation.config.run.rounds, on_event)
        simulate_in_folder(federation, folder, progress, device=device, should_stop=should_stop, jobs=jobs)
    last: dict[str, Any] = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    return last


def hashed(out: Path) -> dict[str, str]:
    """Hashes of the result files of a simulation, by name; equal federations have equal ones."""
    names = ("metrics.jsonl", "model.safetensors", "prototypes.safetensors")
    return {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in names}


def write_config(path: Path, values: dict[str, Any]) -> Path:
    """The configuration as TOML, in the few forms that these tests need."""
    lines = []
    for section, table in values.items():
        tables = (
            {f"{section}.{name}": entry for name, entry in table.items()} if section == "clients" else {section: table}
        )
        for name, entry in tables.items():
            lines.append(f"[{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in entry.items()]
    path.write_text("\n".join(lines) + "\n")
    return path
