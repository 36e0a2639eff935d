"""Data of a release, which later versions must read: a state directory with its results, and the folder of a simulation.

`python -m tests.support.records.release` writes them to tests/golden/VERSION, once, before the version is tagged. From then
on they do not change; tests/unit/test_releases.py reads them with whatever version there is.

    aggregator.sql   the database of an aggregator that was killed: a run that has completed, one that waits for a report of
                     a client that is away, a pending one and a deleted one, with labels, an invitation, a certificate, a
                     key and an audit
    state.json       the blobs of that state by path, and the lines of metrics.jsonl of its runs by name
    run/             the folder of a completed simulation
"""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
import tempfile
from contextlib import chdir, closing
from pathlib import Path
from typing import Any

from fedplcc.shared.run_lists import LabelChange
from fedplcc.shared.types import TaskKind
from fedplcc.shared.version import VERSION
from tests.contract.test_audit_store import RECORD
from tests.contract.test_identity_store import a_certificate, an_invitation
from tests.contract.test_key_store import a_key
from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.federation.simulations import simulated

GOLDEN = ROOT / "tests" / "golden"
DOMAINS = {"ann": "north", "bob": "north", "cat": "south", "zoe": "south"}
"""The clients of the state's runs, with their domains."""
AWAY = "zoe"
"""The client whose report the waiting run lacks."""
WAITING, DONE, PENDING, DELETED = "waits", "done", "pending", "deleted"
"""Names of the state's runs."""


def clients() -> list[NumpyClient]:
    """The clients of the state's runs."""
    return [NumpyClient(name, size=3, domain=domain) for name, domain in DOMAINS.items()]


def write_state(folder: Path) -> None:
    """Write the dump of a state directory, and what its runs come to."""
    with tempfile.TemporaryDirectory() as name:
        state, results = Path(name), dict[str, list[str]]()
        with LocalFederation(state, clients()) as federation:
            federation.join()
            coordinator = federation.coordinator
            ids = {}
            for run, rounds in ((DELETED, 1), (DONE, 2)):
                document = a_document("fedplcc", clients=tuple(DOMAINS), run={"name": run, "rounds": rounds})
                ids[run] = coordinator.create_run(run, document).run_id
                federation.run_to_end(ids[run])
                results[run] = federation.metrics_lines(ids[run])
            coordinator.labels.change(ids[DONE], LabelChange(tags=("kept",), notes="für später"), request_id="label")
            coordinator.delete_run(ids[DELETED])
            document = a_document("feddyn", clients=tuple(DOMAINS), run={"name": WAITING, "rounds": 3})
            ids[WAITING] = coordinator.create_run(WAITING, document).run_id
            while not all(federation.task(each).kind is TaskKind.EVALUATE for each in federation.clients.values()):
                federation.step()
            for each in federation.clients.values():
                if each.client_id != AWAY:
                    federation.perform(each, federation.task(each))
            coordinator.create_run(PENDING, a_document(clients=("ann", "nobody"), run={"name": PENDING}))
            with federation.store.transaction() as transaction:
                transaction.save_invitation(an_invitation())
                transaction.save_certificate(a_certificate())
                transaction.save_key(a_key())
                transaction.add_audit([RECORD, RECORD])
        shutil.copytree(state, state / "copy", ignore=shutil.ignore_patterns("copy"))
        with LocalFederation(state / "copy", clients()) as federation:
            federation.join()
            federation.run_to_end(ids[WAITING])
            results[WAITING] = federation.metrics_lines(ids[WAITING])
        with closing(sqlite3.connect(state / "aggregator.sqlite")) as connection:
            dump = "\n".join(connection.iterdump())
        blobs = {
            path.relative_to(state).as_posix(): base64.b64encode(path.read_bytes()).decode()
            for path in sorted((state / "blobs").rglob("*"))
            if path.is_file()
        }
    (folder / "aggregator.sql").write_text(f"{dump}\n", encoding="utf-8")
    content = {"blobs": blobs, "metrics": {run: [json.loads(line) for line in lines] for run, lines in results.items()}}
    (folder / "state.json").write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_state(folder: Path, state: Path) -> dict[str, list[object]]:
    """Make a state directory of what `write_state` wrote; returns the lines of metrics.jsonl of its runs by name."""
    with closing(sqlite3.connect(state / "aggregator.sqlite")) as connection:
        connection.executescript((folder / "aggregator.sql").read_text(encoding="utf-8"))
    content = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    for name, data in content["blobs"].items():
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_bytes(base64.b64decode(data))
    found: dict[str, list[object]] = content["metrics"]
    return found


def write_run(folder: Path) -> None:
    """Write the folder of a completed simulation, without its state."""
    with tempfile.TemporaryDirectory() as name, chdir(name):
        tiny_federation.write_data(Path())
        simulated(run_document(), folder / "run")
    shutil.rmtree(folder / "run" / "state", ignore_errors=True)
    (folder / "run" / "accuracy.png").unlink()


def run_document() -> dict[str, Any]:
    """The configuration of the simulation, whose data lie in the present folder."""
    return tiny_federation.document(Path(), training={"local_steps": 1}, data={"image_size": 16})


if __name__ == "__main__":
    made = GOLDEN / VERSION
    made.mkdir()
    write_state(made)
    write_run(made)
