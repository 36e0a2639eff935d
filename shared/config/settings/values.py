"""Types of single settings: ports, addresses, names, and lists that are one text in the environment."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from fedplcc.shared.bounds import METHOD_NAME
from fedplcc.shared.config.sections import FACTORY
from fedplcc.shared.identity.api_keys import Scope
from fedplcc.shared.wire.addresses import is_trustworthy, split_address

Port = Annotated[int, Field(ge=0, le=65_535)]
"""A TCP port; 0 takes any free one."""


def none_if_off(value: object) -> object:
    """Return None for "off", "none" and an empty text."""
    return None if isinstance(value, str) and value.lower() in ("", "off", "none") else value


OptionalPort = Annotated[Port | None, BeforeValidator(none_if_off)]
"""A TCP port, or "off"."""


def _of_aggregator(value: str) -> str:
    split_address(value)
    return value


def _of_proxy(value: str | None) -> str | None:
    if value is not None:
        split_address(value, "http_proxy")
    return value


Address = Annotated[str, AfterValidator(_of_aggregator)]
"""HOST:PORT."""
ProxyAddress = Annotated[str | None, BeforeValidator(none_if_off), AfterValidator(_of_proxy)]
"""HOST:PORT, or "off"."""


def _all(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.lower() == "all":
        return None
    if not value.strip().lstrip("+-").isdecimal():
        raise ValueError('write a whole number, or "all"')
    return value


OptionalPath = Annotated[Path | None, BeforeValidator(none_if_off)]
"""A file, or "off"."""
CountOrAll = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_all)]
"""A positive number, or "all"."""
AnyCountOrAll = Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(_all)]
"""A number from 0 on, or "all"."""


def _listed(value: object) -> object:
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


def _factory(name: str) -> str:
    if not FACTORY.fullmatch(name):
        raise ValueError("write package.module:factory")
    return name


def _method(name: str) -> str:
    if not METHOD_NAME.fullmatch(name):
        raise ValueError("write package.module, or the name of an entry point of the group fedplcc.methods")
    return name


FactoryNames = Annotated[tuple[Annotated[str, AfterValidator(_factory)], ...], NoDecode, BeforeValidator(_listed)]
"""Names of code (MODULE:NAME), as a list or a comma-separated text."""


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ValueError("write an address, or a network as 10.0.0.0/8") from None
    return text


Networks = Annotated[tuple[Annotated[str, AfterValidator(_network)], ...], NoDecode, BeforeValidator(_listed)]
"""IP addresses and networks, as a list or a comma-separated text."""
MethodNames = Annotated[tuple[Annotated[str, AfterValidator(_method)], ...], NoDecode, BeforeValidator(_listed)]
"""Names of methods of other packages, as a list or a comma-separated text."""


def _issuer(text: str | None) -> str | None:
    if text is not None and not is_trustworthy(text):
        raise ValueError("write https://HOST/PATH, or http on loopback, without a query")
    return text


def _role(text: str) -> str:
    value, _, scope = text.rpartition("=")
    if not 1 <= len(value) <= MAX_VALUE or scope not in list(Scope):
        raise ValueError(f"write VALUE=SCOPE with a scope of {', '.join(Scope)}")
    return text


MAX_VALUE, MAX_VALUES = 256, 64
"""Most characters of a claim's value, and most values that a setting lists."""
Issuer = Annotated[str | None, BeforeValidator(none_if_off), AfterValidator(_issuer)]
"""Issuer of an OpenID provider, or "off"."""
_Name = Annotated[str, Field(min_length=1, max_length=MAX_VALUE)]
Names = Annotated[tuple[_Name, ...], NoDecode, BeforeValidator(_listed), Field(max_length=MAX_VALUES)]
"""Values of a claim, as a list or a comma-separated text."""
Roles = Annotated[
    tuple[Annotated[str, AfterValidator(_role)], ...], NoDecode, BeforeValidator(_listed), Field(max_length=MAX_VALUES)
]
"""VALUE=SCOPE, as a list or a comma-separated text."""

Specifications = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    NoDecode,
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
]
"""Data specifications, as one text or a list; a comma is part of one."""
