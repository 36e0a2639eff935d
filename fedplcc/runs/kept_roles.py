"""Roles that a local run gave to its clients' images, kept for runs that begin with its model.

A trainer's state goes when a local run has completed, and with it the record of the images that each client trained on. What
later runs compare stays beside the model, without names of images:

    RUN/roles/CLIENT/RUN_ID    digests of the images that the client trained on in the run, or in one that it begins from
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from fedplcc.runs.atomic_file import atomic_file, make_folder
from fedplcc.shared.process.disk import read_regular
from fedplcc.trainer.data.record import TEST, TRAIN, RunRecord
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.manifest import KEPT_RECORDS, manifest_in

ROLES = "roles"


def keep_roles(states: Mapping[str, Path], folder: Path) -> None:
    """Write what clients keep of their images' roles into a run's folder.

    Args:
        states: Folder of each client's kept state; a process may work with it.

    Raises:
        StoreUnavailable: It cannot be written.
    """
    for client, kept in states.items():
        for run_id, record in _records(kept).items():  # without any nobody knows, as a run from this one is told
            make_folder(folder / ROLES / client)
            with atomic_file(folder / ROLES / client / run_id) as file:
                file.write(record.without_names.to_bytes())


def images_of_roles(
    states: Mapping[str, Path], run_id: str, only_tested: Collection[str]
) -> tuple[dict[str, Collection[str]], dict[str, Collection[str]]]:
    """Return digests of the images that each client trains on in a run, and of those that it is tested on.

    Args:
        states: Folder of each client's kept state.
        only_tested: Clients that never train.
    """
    found = {client: record.latest for client, kept in states.items() if (record := _records(kept).get(run_id))}
    return (
        {client: record.digests(TRAIN) for client, record in found.items() if client not in only_tested},
        {client: record.digests(TEST) for client, record in found.items()},
    )


def _records(kept: Path) -> dict[str, RunRecord]:
    """Return the records that a client keeps, by run; none where they cannot be read."""
    try:
        manifest = manifest_in(kept)
        return {
            run_id: RunRecord.from_bytes(read_regular(kept / blob.sha256))
            for run_id, blob in (*manifest.ended, *manifest.data.items())
        }
    except (OSError, ValueError):
        return {}


def bring_roles(model: Path | None, states: Mapping[str, Path]) -> None:
    """Give clients the roles that their images had in the runs that trained a model file, where its folder has them.

    Args:
        model: The file; None where a run begins with a new model.
        states: Folder of each client's kept state, with which no process works yet.

    Raises:
        DiskFull, StoreUnavailable: They cannot be kept.
    """
    for client, kept in states.items() if model is not None else ():
        assert model is not None
        folder = model.parent / ROLES / client
        for path in sorted(folder.iterdir())[:KEPT_RECORDS] if folder.is_dir() else ():
            try:
                record = RunRecord.from_bytes(read_regular(path))
            except (OSError, ValueError):
                continue
            own = ClientStates(kept)
            if own.data_record(path.name) is None:
                own.keep_ended_record(path.name, record)
