"""Options that stand once for all commands, before or after their names: how a gateway is reached, and JSON.

A command that takes them has parameters `way` or `as_json`; `explains_errors` fills these in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from fedplcc.shared.errors import InvalidConfig

DEFAULT_GATEWAY = "http://127.0.0.1:8080"
GATEWAY, INSECURE, GATEWAY_CA, JSON = "--gateway", "--insecure", "--gateway-ca", "--json"
FLAGS = (INSECURE, JSON)
VALUES = (GATEWAY, GATEWAY_CA)

GatewayUrl = Annotated[
    str | None,
    typer.Option(
        GATEWAY,
        envvar="FEDPLCC_GATEWAY",
        metavar="URL",
        help=f"Where the gateway is: https://HOST:PORT, or http:// on loopback; {DEFAULT_GATEWAY} if not given.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(INSECURE, envvar="FEDPLCC_INSECURE", help="Accept plain text to another machine; trust the network."),
]
GatewayCa = Annotated[
    Path | None,
    typer.Option(
        GATEWAY_CA,
        envvar="FEDPLCC_GATEWAY_CA",
        help="Certificates that an https gateway is checked against, in PEM, or a member's identity.pem; those that "
        "'fedplcc login' kept if not given, else the system's.",
        dir_okay=False,
    ),
]
Json = Annotated[
    bool, typer.Option(JSON, help="Print JSON on stdout, one object or one a line; everything else goes to stderr.")
]


class Way(NamedTuple):
    """How a gateway is reached."""

    given: str | None = None
    insecure: bool = False
    ca: Path | None = None
    is_named: bool = False
    """Whether the command line names it, not only the environment."""

    @property
    def url(self) -> str:
        """Its address."""
        return self.given or DEFAULT_GATEWAY


class SharedOptions(NamedTuple):
    """What a command line and the environment say of the shared options."""

    way: Way = Way()
    as_json: bool = False
    typed: tuple[str, ...] = ()
    """Those that stand on the command line."""


_given: ContextVar[SharedOptions] = ContextVar("given")


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the shared options of a command line, wherever they stand before `--`, and its other words."""
    shared, others, place = list[str](), list[str](), 0
    while place < len(words):
        word = words[place]
        if word == "--":
            others += words[place:]
            break
        name, _, value = word.partition("=")
        takes_next = name in VALUES and not value and place + 1 < len(words)
        (shared if word in FLAGS or name in VALUES else others).extend(words[place : place + 1 + takes_next])
        place += 1 + takes_next
    return shared, others


def names_in(shared: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the options among words that `split` found."""
    return tuple(name for word in shared if (name := word.partition("=")[0]) in (*FLAGS, *VALUES))


@contextmanager
def kept() -> Iterator[None]:
    """Forget the shared options of a command line at the end of the block."""
    token = _given.set(SharedOptions())
    try:
        yield
    finally:
        _given.reset(token)


def keep(given: SharedOptions) -> None:
    """Keep the shared options for the command that comes next."""
    _given.set(given)


def typed_parameters() -> dict[str, str]:
    """Return the parameters `way` and `as_json` that the command line gives, each with the option that stands there."""
    return {"as_json" if name == JSON else "way": name for name in _given.get(SharedOptions()).typed}


def values_for(parameters: Sequence[str]) -> dict[str, object]:
    """Return the values for these parameters of a command.

    Args:
        parameters: Those of `way` and `as_json` that it has.

    Raises:
        InvalidConfig: An option is typed that the command has no use for.
    """
    given = _given.get(SharedOptions())
    usable = {JSON} if "as_json" in parameters else set()
    usable |= {GATEWAY, INSECURE, GATEWAY_CA} if "way" in parameters else set()
    for name in given.typed:
        if name not in usable:
            raise InvalidConfig(f"this command takes no {name}")
    known = {"way": given.way, "as_json": given.as_json}
    return {name: known[name] for name in parameters}


def taken_note(parameters: Sequence[str]) -> str:
    """Return a sentence for the help of a command that takes shared options."""
    names = [GATEWAY, GATEWAY_CA, INSECURE] if "way" in parameters else []
    names += [JSON] if "as_json" in parameters else []
    return f"Takes {', '.join(names)} too: see `fedplcc --help`." if names else ""
