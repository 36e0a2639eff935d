"""The whole contract, and its trial on a method.

A method of another package is also tried in a process of its own where torch cannot be imported: aggregators have none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from fedplcc.method_contract import (
    fold_checks,
    loss_checks,
    prototype_checks,
    public_checks,
    record_checks,
    server_checks,
    state_checks,
)
from fedplcc.method_contract.checks import Check
from fedplcc.method_contract.settings import Setting
from fedplcc.shared.config.settings import environment_without_settings
from fedplcc.shared.errors import ResourceExhausted
from fedplcc.shared.importing import places
from fedplcc.shared.methods import METHODS, add_methods
from fedplcc.shared.methods.method import Method

CHECKS: tuple[Check, ...] = tuple(
    check
    for part in (record_checks, loss_checks, fold_checks, server_checks, public_checks, state_checks, prototype_checks)
    for check in part.check.all
)
"""Every check of the contract."""
WITHOUT_TORCH_S = 120.0
"""Longest time that the server half may take without torch."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check came to.

    Attributes:
        sentence: The promise in words.
        problem: What is wrong; None where the promise holds.
    """

    sentence: str
    problem: str | None


def method_of(name: str) -> Method:
    """Return a method by its name; one of another package is imported, by wish of the person who names it.

    Raises:
        InvalidConfig: There is none.
    """
    add_methods([name])
    return METHODS[name]


def findings(method: Method) -> Iterator[Finding]:
    """Try every check that applies to a method with its defaults, and yield what each came to."""
    setting = Setting(method)
    for check in CHECKS:
        if _applies(check, setting):
            yield Finding(check.sentence, _problem_of(check, setting))
    yield Finding("its server half needs no torch", _problem_without_torch(method.name))


def _applies(check: Check, setting: Setting) -> bool:
    try:
        return check.applies(setting)
    except Exception:  # the trial meets the same error, and says it
        return True


def _problem_of(check: Check, setting: Setting) -> str | None:
    try:
        check.trial(setting)
    # A stranger's method may raise anything.
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = "; ".join(lines[:3])
        if isinstance(error, AssertionError):
            return said or "it does not hold"
        return f"{type(error).__name__}: {said}" if said else type(error).__name__
    return None


def _problem_without_torch(name: str) -> str | None:
    program = [sys.executable, "-m", "fedplcc.method_contract.without_torch", name]
    environment = environment_without_settings()
    environment["PYTHONPATH"] = os.pathsep.join(places())
    try:
        done = subprocess.run(  # nosec B603
            program, capture_output=True, text=True, env=environment, timeout=WITHOUT_TORCH_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {WITHOUT_TORCH_S:g} s"
    except OSError as error:
        raise ResourceExhausted(f"no process can be started to try the server half: {error.strerror}") from error
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"its process ended with {done.returncode}"
