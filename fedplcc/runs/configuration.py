"""Configuration files with the overrides of the command line. Pure but for reading the file."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from fedplcc.runs.backbone_digests import with_digests
from fedplcc.runs.initial_model import anchored, with_model_file
from fedplcc.shared.config.run import ClientSection, FederationFile, canonical_json, parse_federation, read_document
from fedplcc.shared.config.younger_keys import without_unset
from fedplcc.shared.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Values of the command line in place of the file's; None means not given."""

    method: str | None = None
    rounds: int | None = None
    seed: int | None = None
    samples_per_class: int | None = None
    """For every client."""
    assignments: Sequence[str] = ()
    """SECTION.KEY=VALUE, the value as TOML writes it; quotes around text may be left out."""


DEFAULT_FILE = Path("run.toml")
"""The usual configuration file, in the present folder."""


def chosen_file(file: Path | None) -> Path:
    """The given file, or `run.toml` of the present folder.

    Raises:
        InvalidConfig: There is no such file.
    """
    if file is not None:
        try:
            file.stat()
        except FileNotFoundError:
            raise InvalidConfig(
                f"cannot read {file}: there is no such file; "
                f"write one with: fedplcc config init {shlex.quote(str(file))}"
            ) from None
        except OSError:
            pass  # reading the file gives the better error
    elif not DEFAULT_FILE.exists():
        raise InvalidConfig(
            f"there is no {DEFAULT_FILE} here; name a configuration file, or write one with: fedplcc config init"
        )
    return file or DEFAULT_FILE


def demo_file() -> Path:
    """The configuration that `fedplcc demo` runs."""
    return Path(str(resources.files("fedplcc.runs") / "demo.toml"))


def plain_demo() -> dict[str, Any]:
    """The demo's document without what was chosen for its method, so that any method begins with its own settings."""
    document = read_document(demo_file())
    training = {key: value for key, value in document["training"].items() if key not in ("clip_norm", "augment")}
    return {**document, "method": {}, "training": training}


def stream_demo_file() -> Path:
    """The configuration that `fedplcc demo --stream` runs."""
    return demo_file().with_name("demo-stream.toml")


def read_federation(path: Path, overrides: Overrides | None = None) -> FederationFile:
    """Read a configuration file, change it as the command line says, and check it.

    An initial model that is a file is looked for beside the configuration, from the command line in the present folder; in
    what is returned its SHA-256 stands for it.

    Raises:
        InvalidConfig: The file cannot be read, is not TOML, or something in it or on the command line is wrong.
    """
    document = anchored(read_document(path), path.parent)
    document = anchored(override(document, overrides or Overrides()), Path.cwd())
    return with_model_file(parse_federation(document))


def read_as_it_stands(path: Path) -> FederationFile:
    """Read and check a configuration file; the model that its run begins with need not be there.

    Raises:
        InvalidConfig: The file cannot be read, is not TOML, or something in it is wrong.
    """
    return parse_federation(with_digests(read_document(path)))


def override(document: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Return a configuration with the overrides in it; assignments come last.

    Another method than the file's takes no hyper-parameters from it: they are the other method's.

    Raises:
        InvalidConfig: A key is set twice, or by an assignment that cannot be read.
    """
    options = [f"run.{name}" for name in ("method", "rounds", "seed") if getattr(overrides, name) is not None]
    keys = Counter([*options, *(each.partition("=")[0].replace(" ", "") for each in overrides.assignments)])
    for key, count in keys.items():
        if count > 1:
            raise InvalidConfig(f"{key} is set {count} times, by options or --set; write it once", location=key)
    changed = dict(document)
    run = _table(changed, "run")
    if overrides.method is not None:
        if run.get("method") != overrides.method:
            changed.pop("method", None)
        run["method"] = overrides.method
    if overrides.rounds is not None:
        run["rounds"] = overrides.rounds
    if overrides.seed is not None:
        run["seed"] = overrides.seed
    changed["run"] = run
    if overrides.samples_per_class is not None and "partition" in changed:
        changed["partition"] = {**_table(changed, "partition"), "samples_per_class": overrides.samples_per_class}
    elif overrides.samples_per_class is not None:
        changed["clients"] = {
            name: _with_samples(table, overrides.samples_per_class) if isinstance(table, Mapping) else table
            for name, table in _table(changed, "clients").items()
        }
    for assignment in overrides.assignments:
        changed = _assigned(changed, assignment)
    return changed


def _with_samples(table: Mapping[str, Any], samples_per_class: int) -> dict[str, Any]:
    """Return a client's table with this size of its subset, in place of what it says of it."""
    return {**{key: value for key, value in table.items() if key != "fraction"}, "samples_per_class": samples_per_class}


def local_clients(federation: FederationFile) -> dict[str, ClientSection]:
    """The clients of a demo or a simulation, in id order: the roster's, or all tables' without a roster.

    Raises:
        InvalidConfig: A client of the roster has no table, or there are fewer clients than the run waits for.
    """
    run = federation.config.run
    wanted = run.clients if run.clients is not None else sorted(federation.clients)
    missing = [name for name in wanted if name not in federation.clients]
    if missing:
        raise InvalidConfig(f"run.clients names {missing[0]!r}, but there is no table [clients.{missing[0]}]")
    trained = [name for name in wanted if not federation.clients[name].evaluate_only]
    if wanted and not trained:
        raise InvalidConfig("every client has evaluate_only = true: a run needs at least one that trains")
    if run.min_clients is not None and len(trained) < run.min_clients:
        which = "" if len(trained) == len(wanted) else " that train"
        raise InvalidConfig(
            f"run.min_clients = {run.min_clients}, but there are {len(trained)} tables [clients.NAME]{which}"
        )
    return {name: federation.clients[name] for name in sorted(wanted)}


def without_validation(federation: FederationFile) -> str | None:
    """Return the first client that trains without validation images; None if each has some."""
    if federation.config.data.validation_every is not None:
        return None
    return next(
        (
            name
            for name, client in local_clients(federation).items()
            if client.validation_per_class is None and not client.evaluate_only
        ),
        None,
    )


def require_validation(federation: FederationFile) -> None:
    """Refuse `run.patience` where a client has no validation images.

    Raises:
        InvalidConfig: It is so, or the clients are wrong.
    """
    patience = federation.config.run.patience
    client = None if patience is None else without_validation(federation)
    if client is not None:
        raise InvalidConfig(
            f"run.patience = {patience} does nothing: client {client} has no validation images; set data.validation_every, "
            "or validation_per_class for each client"
        )


def domain_of(name: str, client: ClientSection) -> str:
    """The client's domain label: its own name if none is given."""
    return client.domain or name


def federation_json(federation: FederationFile) -> str:
    """The configuration with its clients as canonical JSON: equal texts mean equal training on equal data."""
    tables = {name: client.model_dump(mode="json") for name, client in federation.clients.items()}
    clients = {name: without_unset({"clients": table})["clients"] for name, table in tables.items()}
    return canonical_json({"config": json.loads(federation.config.canonical_json), "clients": clients})


def _assigned(document: Mapping[str, Any], assignment: str) -> dict[str, Any]:
    key, equals, text = assignment.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or len(path) < 2 or not all(path):
        raise InvalidConfig(f"--set {assignment}: write SECTION.KEY=VALUE, for instance --set training.batch_size=16")
    changed = dict(document)
    table = changed
    for part in path[:-1]:
        table[part] = _table(table, part)
        table = table[part]
    table[path[-1]] = _value(text.strip())
    return changed


def _value(text: str) -> Any:
    """The text as a TOML value; a string if it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _table(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, Mapping):
        raise InvalidConfig(f"{name} is a table of keys; write [{name}]")
    return dict(table)
