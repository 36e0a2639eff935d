"""The clients in a picture, and the places of their images."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fedplcc.runs.configuration import domain_of, local_clients, read_as_it_stands
from fedplcc.runs.run_folder import FEDERATION, recorded_clients
from fedplcc.shared.bounds import NAME_PATTERN
from fedplcc.shared.config.run import FACTORY, ClientSection, FederationFile, RunConfig
from fedplcc.shared.config.tables.stream import STAGES_KIND, split_stages_spec
from fedplcc.shared.errors import InvalidConfig, InvalidData
from fedplcc.trainer.data.parts import split_part
from fedplcc.trainer.data.specs import KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownClient:
    """A client whose images are in a picture.

    Attributes:
        samples_per_class: Size of its training subset; all training images if None.
        fraction: Share of each class's training images, in place of it.
    """

    name: str
    domain: str
    data: str
    samples_per_class: int | None = None
    fraction: float | None = None


def shown_clients(
    model_file: Path, config: RunConfig, *, config_file: Path | None = None, named: Sequence[str] = ()
) -> tuple[ShownClient, ...]:
    """Return the clients to show, in the order of their names.

    The command line names them, else the configuration file, else federation.json in the run's folder. A client of the
    command line keeps its domain and its subset if the run knows it.

    Args:
        model_file: The run's model; its folder may hold federation.json.
        named: `NAME=SPECIFICATION` or `SPECIFICATION`, as `--data` takes them.

    Raises:
        InvalidConfig: The places of the clients' data are unknown, or the file that names them is wrong.
        StoreUnavailable: A file cannot be read.
    """
    federation_file = model_file.with_name(FEDERATION)
    known: Mapping[str, ShownClient] = {}
    if config_file is not None:
        federation = read_as_it_stands(config_file)
        known = _shown(local_clients(federation)) if federation.clients else {}
    else:
        # Data on the command line need no federation.json.
        with suppress(InvalidConfig) if named else nullcontext():
            known = _recorded(federation_file, config)
    if named:
        return _named(named, known)
    if not known:
        source = config_file or model_file.parent
        raise InvalidConfig(
            f"{source} does not say where the data of the run's clients lie; name them with --data NAME=DATA, once for each "
            "client, or name the run's configuration file with --config"
        )
    if config_file is None:
        for client in known.values():
            _refuse_code(client, federation_file)
    return tuple(known.values())


@contextmanager
def reading(client: ShownClient) -> Iterator[None]:
    """Within the block, errors of data name their client, and what to do about them."""
    try:
        yield
    except InvalidData as error:
        raise InvalidData(
            f"client {client.name}: {error.detail} (paths are read from the present folder; where data have moved, name "
            f"them with --data {client.name}=DATA and so on for each client)"
        ) from error


def _shown(clients: Mapping[str, ClientSection]) -> dict[str, ShownClient]:
    return {
        name: ShownClient(
            name=name,
            domain=domain_of(name, client),
            data=client.data,
            samples_per_class=client.samples_per_class,
            fraction=client.fraction,
        )
        for name, client in sorted(clients.items())
    }


def _recorded(path: Path, config: RunConfig) -> dict[str, ShownClient]:
    """Return the clients of a run folder's federation.json; none if there is no such file."""
    try:
        sections = recorded_clients(path.parent)
    except InvalidConfig as error:
        raise InvalidConfig(f"{error.detail}; name their data with --data NAME=DATA") from error
    return _shown(local_clients(FederationFile(config=config, clients=sections))) if sections else {}


def _named(texts: Sequence[str], known: Mapping[str, ShownClient]) -> tuple[ShownClient, ...]:
    """Return the clients of the command line, in the order of their names."""
    found: dict[str, ShownClient] = {}
    for text in texts:
        name, equals, data = text.partition("=")
        if not equals or not re.fullmatch(NAME_PATTERN, name):
            name, data = _label(text), text
        if not data:
            raise InvalidConfig(f"--data {text}: write NAME=DATA, for instance --data mnist=digits:mnist")
        if name in found:
            raise InvalidConfig(f"--data names {name!r} twice; write NAME=DATA with a name of its own for each")
        client = known.get(name) or ShownClient(name=name, domain=name, data=data)
        found[name] = replace(client, data=data)
    return tuple(found[name] for name in sorted(found))


def _label(data: str) -> str:
    """Return a name for data without one: the part after the kind, of a path its last part."""
    parts = data.split(":")
    last = parts[1] if len(parts) > 2 else parts[-1]
    return Path(last).stem or data


def _refuse_code(client: ShownClient, path: Path) -> None:
    """Refuse data that name code: a run's folder may come from anywhere and must not choose the code that runs here."""
    if _names_code(client.data):
        raise InvalidConfig(
            f"{path} names the data {client.data!r} of client {client.name}, which would import code and run it; if you "
            "trust it, name the run's configuration file with --config, or the clients' data with --data NAME=DATA"
        )


def _names_code(data: str) -> bool:
    kind, _, rest = data.partition(":")
    kind, paren, settings = kind.partition("(")
    if kind == "part":
        return _names_code(split_part(rest).data)
    if kind == STAGES_KIND:
        return any(map(_names_code, split_stages_spec(data) or ()))
    if kind == "long_tail":
        return _names_code((paren + settings + ":" + rest).partition("):")[2])
    return kind not in KINDS and FACTORY.match(data) is not None
