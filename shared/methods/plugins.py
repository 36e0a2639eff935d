"""Methods of other packages: named by their module, or by an entry point of the group `fedplcc.methods`.

A method is code, and no document of a run makes a process import code. The owner of a service lists the methods that its
runs may name (`allow_method`), and a person who starts a command with their own configuration lists the one in it. They
are imported then; a run finds its method by name among those that are there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from fedplcc.shared.bounds import METHOD_NAME
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.importing import import_module
from fedplcc.shared.methods.method import Method

GROUP = "fedplcc.methods"
"""Group of entry points; each is `NAME = "package.module"`."""
RECORD = "METHOD"
"""Name of the record in a method's module."""


def load_method(name: str, *, needs_no_torch: bool = False) -> Method:
    """Import a method of another package and return its record, under the name that a run writes.

    Args:
        name: `package.module`, or the name of an entry point.
        needs_no_torch: Whether this process must not load torch: an aggregator's or a gateway's.

    Raises:
        InvalidConfig: There is no such module or entry point, it holds no method, or its import loads torch where that must
            not be.
    """
    if not METHOD_NAME.fullmatch(name):
        raise InvalidConfig(
            f"{name[:40]!a} is no name of a method: write package.module, or the name of an entry point"
        )
    module_name = _module_of(name)
    had_torch = "torch" in sys.modules
    module = import_module(module_name, name, InvalidConfig)
    if needs_no_torch and not had_torch and "torch" in sys.modules:
        raise InvalidConfig(
            f"method {name!r} imports torch, and aggregator and gateway run without it: write its loss with operators and "
            "step.ops, and its server half with numpy"
        )
    record = getattr(module, RECORD, None)
    if not isinstance(record, Method):
        raise InvalidConfig(
            f"{module_name!r} has no method: set {RECORD} = Method(...) in it, of fedplcc.shared.methods.method"
        )
    return replace(record, name=name)


def entry_point(name: str) -> EntryPoint | None:
    """Return the entry point of a method; None if no installed package has one of that name."""
    return installed().get(name)


@cache
def installed() -> Mapping[str, EntryPoint]:
    """Return the methods of installed packages by name, read once: who asks for unknown names must not read disks."""
    return {each.name: each for each in entry_points(group=GROUP)}


def _module_of(name: str) -> str:
    if "." in name:
        return name
    found = entry_point(name)
    if found is None:
        raise InvalidConfig(f"no installed package has a method {name!r} (an entry point of the group {GROUP})")
    return found.module
