"""A site's own model of a run, made at the site: of the run's model, and of the state that its trainer keeps on this host.

The state never leaves the site, so nobody else can make this model: no gateway has it, and no key opens it. The state's
files are their owner's alone, and so is the model that is written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedplcc.runs.artifacts import MANIFEST as RUN_MANIFEST
from fedplcc.runs.artifacts import METRICS, MODEL
from fedplcc.runs.atomic_file import atomic_file
from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.errors import InvalidModel, NotFound, StoreUnavailable
from fedplcc.shared.process.disk import read_regular
from fedplcc.shared.tensors import from_bytes, sha256_hex, to_bytes
from fedplcc.trainer.app import STATES_FOLDER
from fedplcc.trainer.task.manifest import MANIFEST, Promoted, manifest_from_bytes

STATE = Path("fedplcc-state")


def state_folder(site: str) -> Path:
    """Return the folder of a client's kept state on this host.

    Args:
        site: The client's name, whose trainer has its usual state directory below the present folder; or that directory.

    Raises:
        NotFound: There is none.
    """
    directory = Path(site) if "/" in site else STATE / f"trainer-{site}"
    found = sorted(path.parent for path in (directory / STATES_FOLDER).glob(f"*/{MANIFEST}"))
    if len(found) != 1:
        what = "no client's state" if not found else f"the state of {len(found)} clients"
        raise NotFound(
            f"{directory} has {what}; a site's model is made on the host of its trainer: name that trainer's state "
            "directory, as in --site /srv/fedplcc/trainer-north"
        )
    return found[0]


def write_site_model(folder: Path, states: Path) -> Path:
    """Write a client's own model of a fetched run into the run's folder, readable by its owner alone; returns its file.

    Args:
        states: Folder of the client's kept state, whose name is the client's; it is only read.

    Raises:
        NotFound: The client keeps nothing of the run.
        InvalidModel: The method gives clients no model of their own, the client has its own kind, or it is of another round.
        StoreUnavailable: A file cannot be read or written.
    """
    manifest = json.loads(_read(folder / RUN_MANIFEST))
    config, run_id = parse_run_config(manifest["config"]), manifest["run_id"]
    entry = _kept(states, run_id)
    number = len(_read(folder / METRICS).splitlines())
    if entry.update.round != number:
        raise InvalidModel(
            f"client {states.name} keeps its state of round {entry.update.round} of run {run_id}, and {folder} has round "
            f"{number}; fetch the run again when its last round has ended"
        )
    own = _own_model(config, from_bytes(_read(folder / MODEL)), states, entry)
    path = folder / f"model-of-{states.name}.safetensors"
    with atomic_file(path) as file:
        Path(file.name).chmod(0o600)
        file.write(to_bytes(own))
    return path


def _own_model(config: RunConfig, received: Any, states: Path, entry: Promoted) -> Any:
    if entry.kind:
        raise InvalidModel(
            f"client {states.name} has its own kind of model; this command makes those of the run's kind"
        )
    state = None
    if entry.state is not None:
        data = _read(states / entry.state.sha256)
        if sha256_hex(data) != entry.state.sha256:
            raise StoreUnavailable(
                f"the state that client {states.name} keeps is damaged; `fedplcc doctor` names the file"
            )
        state = from_bytes(data)
    own = config.algorithm.own_model(received, state, config.method)
    if own is None:
        raise InvalidModel(f"method {config.run.method}, as it is set, has no model of client {states.name} alone")
    return own


def _kept(states: Path, run_id: str) -> Promoted:
    try:
        found = manifest_from_bytes(_read(states / MANIFEST)).promoted.get(run_id)
    except ValueError:
        raise StoreUnavailable(f"{states / MANIFEST} is damaged") from None
    if found is None:
        raise NotFound(
            f"client {states.name} keeps nothing of run {run_id}: it took no part, its method keeps no state, or the "
            "trainer has worked for a later run since"
        )
    return found


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise StoreUnavailable(f"cannot read {path}: {error.strerror or error}") from error
