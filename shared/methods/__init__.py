"""Federated methods, one file each; README.md in this folder says how to add one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shared.methods import fedavg, fedccl, fedntd, fedplcc, fedplvm, fedproto, fedprox, fpl, moon
from shared.methods.base import Method

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        module.METHOD.name: module.METHOD
        for module in (fedavg, fedprox, moon, fedntd, fedproto, fpl, fedplvm, fedplcc, fedccl)
    }
)
"""Methods by name."""
