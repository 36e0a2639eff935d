"""Every RPC of this project, from the descriptors of the generated code: a new one is found without being named anywhere."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import fedplcc.shared.gen.fedplcc.v1 as generated

SERVICES: list[Any] = [
    service
    for module in pkgutil.iter_modules(generated.__path__)
    if module.name.endswith("_pb2")
    for service in importlib.import_module(f"{generated.__name__}.{module.name}").DESCRIPTOR.services_by_name.values()
]
METHODS = {f"/{service.full_name}/{method.name}": method for service in SERVICES for method in service.methods}
"""Descriptors by full name."""
