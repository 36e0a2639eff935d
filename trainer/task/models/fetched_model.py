"""The model that a task comes with, fetched at the first look into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy.typing as npt

from fedplcc.shared.methods.arrays import ModelArrays


class FetchedModel(Mapping[str, npt.NDArray[Any]]):
    """A model by tensor name. A client that trains its own model never looks into it, and downloads nothing."""

    def __init__(self, fetch: Callable[[], ModelArrays]) -> None:
        """Prepare; nothing is fetched.

        Args:
            fetch: Returns the tensors; called once, at the first look.
        """
        self._fetch = fetch

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    @cached_property
    def _arrays(self) -> ModelArrays:
        return self._fetch()
