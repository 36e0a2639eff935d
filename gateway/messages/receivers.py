"""Receivers of messages, read from the file of the gateway's owner. No other address is ever called.

None is shown either. By REST or in a run's document, whoever may start a run could send data anywhere.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import httpx
from pydantic import Field, ValidationError, field_validator, model_validator

from fedplcc.gateway.messages.message import MessageKind
from fedplcc.shared.config.sections import MAX_SAID, Name, Section, explain, form, problems_of
from fedplcc.shared.errors import InvalidConfig, KeyInvalid
from fedplcc.shared.identity.api_keys import parse_api_key
from fedplcc.shared.process.loopback import is_loopback
from fedplcc.shared.types import Event
from fedplcc.shared.wire.addresses import is_host

MAX_FILE_BYTES = 64 << 10
"""Largest file of receivers, and largest secret beside it."""
MAX_RECEIVERS = 16
MIN_SECRET_BYTES, MAX_SECRET_BYTES = 24, 64
"""Length of a webhook's secret, as Standard Webhooks has it."""
SECRET_PREFIX = "whsec_"  # nosec B105 # what stands before each secret

Pattern = Annotated[str, Field(min_length=1, max_length=128)]
MailAddress = Annotated[
    str,
    Field(pattern=form(r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,189}$", "write NAME@DOMAIN in ASCII")),
]
Chosen = (
    MessageKind.RUN_COMPLETED,
    MessageKind.RUN_FAILED,
    MessageKind.RUN_STOPPED,
    MessageKind.RUN_PARKED,
    MessageKind.CLIENT_AWAY,
    MessageKind.APPROVAL_WANTED,
    MessageKind.WORST_DOMAIN_FALLS,
)
"""Events that a receiver is told of unless its table says others."""


class _Choice(Section):
    """What a receiver is told."""

    events: tuple[Annotated[MessageKind, Field(strict=False)], ...] = Field(Chosen, min_length=1, strict=False)
    """Events that it is told of."""
    runs: tuple[Pattern, ...] = Field(("*",), min_length=1, max_length=64, strict=False)
    """Patterns of run ids; events of no run are told in any case."""
    clients: tuple[Pattern, ...] = Field(("*",), min_length=1, max_length=64, strict=False)
    """Patterns of client ids, of events about one."""
    away_s: float = Field(600.0, ge=1, le=30 * 86_400)
    """Seconds after the end of a client's lease for which it may be away before that is told."""
    points: float = Field(5.0, gt=0, le=100)
    """Percentage points by which the worst domain falls below its best before that is told."""
    ca_file: str | None = None
    """File in PEM with the authorities that its certificate may come from; the system's if not set."""

    def wants(self, kind: MessageKind, event: Event) -> bool:
        """Whether an event is told to this receiver."""
        return (
            kind in self.events
            and (not event.run_id or any(fnmatchcase(event.run_id, each) for each in self.runs))
            and (not event.client_id or any(fnmatchcase(event.client_id, each) for each in self.clients))
        )


class Webhook(_Choice):
    """A receiver that is called over HTTPS."""

    kind: Literal["webhook"]
    url: str = Field(repr=False)
    """HTTPS address; HTTP is for loopback alone. It is never shown: some hold a secret."""
    secret_file: str
    """File with the secret of the signature: `whsec_` and 24 to 64 bytes in base64."""

    @model_validator(mode="after")
    def _safe(self) -> Self:
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL:
            raise ValueError("url: it is no address") from None
        is_safe = url.scheme == "https" or (url.scheme == "http" and is_loopback(url.host))
        if not is_safe or not url.host or url.userinfo or url.fragment:
            raise ValueError("url: write https://HOST/PATH without a user; http is for loopback alone")
        return self

    @property
    def host(self) -> str:
        """Host, the part of the address that is shown."""
        return httpx.URL(self.url).host


class Mail(_Choice):
    """A receiver of e-mail by SMTP."""

    kind: Literal["mail"]
    host: str
    """SMTP server."""
    port: int = Field(587, ge=1, le=65_535)
    tls: Literal["starttls", "implicit", "off"] = "starttls"
    """Protection: STARTTLS, TLS from the first byte (port 465), or none, on loopback alone."""
    user: str | None = Field(
        None, min_length=1, max_length=256, pattern=form(r"^[\x21-\x7e]+$", "write ASCII without spaces")
    )
    password_file: str | None = None
    """File with the password of `user`."""
    sender: MailAddress = Field(alias="from")
    to: tuple[MailAddress, ...] = Field(min_length=1, max_length=32, strict=False)

    @field_validator("host")
    @classmethod
    def _a_host(cls, host: str) -> str:
        if not is_host(host):
            raise ValueError("write the name or address of the SMTP server")
        return host

    @model_validator(mode="after")
    def _protected(self) -> Self:
        if self.tls == "off" and not is_loopback(self.host):
            raise ValueError('tls = "off" is for a server on loopback alone')
        if (self.user is None) != (self.password_file is None):
            raise ValueError("user and password_file belong together: give both, or neither")
        return self


class MessagesFile(Section):
    """The whole file."""

    key_file: str | None = None
    """File with a key of the scope read, by which the gateway reads the history; none where no keys are asked for."""
    receivers: dict[Name, Annotated[Webhook | Mail, Field(discriminator="kind")]] = Field(
        min_length=1, max_length=MAX_RECEIVERS
    )


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver with what it takes to reach it."""

    name: str
    choice: Webhook | Mail
    secret: bytes = field(repr=False)
    """Key of the signature, or password."""
    tls: ssl.SSLContext = field(repr=False)


@dataclass(frozen=True, slots=True)
class Receivers:
    """What the file says."""

    key: str = field(repr=False)
    """Key for reading the history; empty for none."""
    by_name: Mapping[str, Receiver]


def read_receivers(path: Path, *, asks_keys: bool) -> Receivers:
    """Read the file and the secrets that it names, whose paths are relative to its folder.

    Raises:
        InvalidConfig: A file cannot be read, or says something that it may not.
    """
    try:
        document: dict[str, Any] = tomllib.loads(_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidConfig(f"the receivers {path} are not TOML: {str(error)[:200]}") from error
    try:
        found = MessagesFile.model_validate(document)
    except ValidationError as error:
        said = "; ".join(_explained(problem) for problem in problems_of(error)[:MAX_SAID])
        raise InvalidConfig(f"the receivers {path}: {said}") from None
    if asks_keys and found.key_file is None:
        raise InvalidConfig(
            f"the receivers {path}: key_file is missing; `fedplcc key create --scope read` makes the key, "
            "by which the gateway reads the history"
        )
    key = "" if found.key_file is None or not asks_keys else _key(path.parent / found.key_file)
    made = {name: _receiver(name, choice, path.parent) for name, choice in found.receivers.items()}
    return Receivers(key, made)


def _explained(problem: Any) -> str:
    """Return a sentence for a problem without the value, which may be an address or a secret at a wrong place."""
    return explain(problem if problem["loc"][-1:] == ("[key]",) else {**problem, "input": {}})


def _receiver(name: str, choice: Webhook | Mail, folder: Path) -> Receiver:
    try:
        authorities = None if choice.ca_file is None else str(folder / choice.ca_file)
        tls = ssl.create_default_context(cafile=authorities)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise InvalidConfig(f"receivers.{name}.ca_file cannot be read: {error}") from error
    if isinstance(choice, Webhook):
        secret = _webhook_secret(folder / choice.secret_file)
    else:
        secret = b"" if choice.password_file is None else _secret(folder / choice.password_file).encode()
    return Receiver(name, choice, secret, tls)


def _webhook_secret(path: Path) -> bytes:
    text = _secret(path)
    try:
        secret = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not text.startswith(SECRET_PREFIX) or not MIN_SECRET_BYTES <= len(secret) <= MAX_SECRET_BYTES:
        sizes = f"{MIN_SECRET_BYTES} to {MAX_SECRET_BYTES}"
        raise InvalidConfig(f"{path} holds no secret of a webhook: {SECRET_PREFIX} and {sizes} bytes in base64")
    return secret


def _key(path: Path) -> str:
    text = _secret(path)
    try:
        parse_api_key(text)
    except KeyInvalid:
        raise InvalidConfig(f"{path} holds no key of `fedplcc key create`") from None
    return text


def _secret(path: Path) -> str:
    text = _text(path, is_secret=True).strip()
    if not text or "\n" in text or not text.isprintable():
        raise InvalidConfig(f"{path} must hold one line")
    return text


def _text(path: Path, *, is_secret: bool = False) -> str:
    """Return a regular file's text; a pipe, whose writer may never come, is not waited for."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(MAX_FILE_BYTES + 1) if stat.S_ISREG(status.st_mode) else None
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror or error}") from error
    if data is None or len(data) > MAX_FILE_BYTES:
        raise InvalidConfig(f"{path} is no file of at most {MAX_FILE_BYTES} bytes")
    if is_secret and status.st_mode & 0o007:
        raise InvalidConfig(f"{path} is open to others: chmod 600 {path}")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path} is not UTF-8 text") from error
