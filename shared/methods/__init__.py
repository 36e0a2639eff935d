"""The methods, one file each; README.md in this folder says how to add one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shared.methods import fedavg, fedplcc, moon
from shared.methods.base import Method

METHODS: Mapping[str, Method] = MappingProxyType(
    {method.name: method for method in (fedavg.METHOD, fedplcc.METHOD, moon.METHOD)}
)
"""Every method by name."""
