"""Federated methods, one file each, in three folders; README.md says how to add one, here or in a package of your own."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from fedplcc.shared.bounds import METHOD_NAME
from fedplcc.shared.methods import fcclplus, fedavg, feddyn, fedntd, fedopt, fedprox, fedrep, moon
from fedplcc.shared.methods.heads import classsums, creff
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.plugins import entry_point, load_method
from fedplcc.shared.methods.prototypical import fedccl, fedmlp, fedpcl, fedplcc, fedplvm, fedproc, fedproto, fpl

BUILTIN: Mapping[str, Method] = MappingProxyType(
    {
        module.METHOD.name: module.METHOD
        for module in (
            fedavg,
            fedprox,
            moon,
            fedntd,
            fedopt,
            feddyn,
            creff,
            classsums,
            fcclplus,
            fedrep,
            fedproto,
            fedproc,
            fedmlp,
            fpl,
            fedpcl,
            fedplvm,
            fedplcc,
            fedccl,
        )
    }
)
"""Methods of this package by name."""
_added: dict[str, Method] = {}
METHODS: Mapping[str, Method] = MappingProxyType(ChainMap(_added, dict(BUILTIN)))
"""Methods that this process knows by name: those of this package, and those of others that its owner has listed."""


def add_methods(names: Iterable[str], *, needs_no_torch: bool = False) -> None:
    """Import methods of other packages, which their owner has listed; those that are known stay as they are.

    Args:
        names: `package.module`, or names of entry points.
        needs_no_torch: Whether this process must not load torch.

    Raises:
        InvalidConfig: One of them cannot be had; see `load_method`.
    """
    for name in names:
        if name not in METHODS:
            _added[name] = load_method(name, needs_no_torch=needs_no_torch)


def remove_method(name: str) -> None:
    """Forget a method of another package."""
    _added.pop(name, None)


def refusal(name: object) -> str | None:
    """Return the sentence about a method of another package that was not listed; None for any other name."""
    if not isinstance(name, str) or name in METHODS or not METHOD_NAME.fullmatch(name):
        return None
    if "." not in name and entry_point(name) is None:
        return None
    return (
        f"method {name!r} is code of another package that the owner of this process has not listed; nothing of it was "
        f"imported. Who trusts it starts this service with --allow-method {name}"
    )
