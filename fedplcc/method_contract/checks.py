"""A check of the contract: a sentence that holds of a method, and the function that tries it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedplcc.method_contract.settings import Setting

Claim = Callable[[Setting], bool]
Trial = Callable[[Setting], None]


def _always(setting: Setting) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Check:
    """One promise of the contract.

    Attributes:
        name: Name of its function.
        applies: Whether it says something of a setting.
        trial: Raises an error, mostly an AssertionError, where the promise does not hold.
    """

    name: str
    applies: Claim
    trial: Trial

    @property
    def sentence(self) -> str:
        """The promise in words."""
        return self.name.replace("_", " ")


class Checks:
    """The checks of one part of the contract, in the order in which they are written."""

    def __init__(self) -> None:
        self._all: list[Check] = []

    def __call__(self, applies: Claim = _always) -> Callable[[Trial], Trial]:
        """Return the decorator that adds a function as a check of the settings of which the claim holds."""

        def add(trial: Trial) -> Trial:
            self._all.append(Check(trial.__name__, applies, trial))
            return trial

        return add

    @property
    def all(self) -> Sequence[Check]:
        """Every check of the part."""
        return tuple(self._all)


def require(holds: object, what: str) -> None:
    """Raise an AssertionError with this sentence unless the first argument is true."""
    if not holds:
        raise AssertionError(what)


def module_text(setting: Setting) -> str:
    """Return the docstring of the module that the method's loss is in; empty where there is none."""
    import sys

    module = sys.modules.get(setting.method.client_loss.__module__)
    return (module and module.__doc__) or ""
